"""The transport by which a site finds out what it would send, without sending anything."""

from collections.abc import Iterable, Mapping

from fedlit.data.columns import NUMBERS
from fedlit.data.targets import target_of_another
from fedlit.exchange.transport import Transport
from fedlit.institutions.plain import Facts, Message
from fedlit.institutions.transport import LOCAL, told_of
from fedlit.meanings import Meaning, digests_of


class DryRun(Transport):
    """Records what would be sent. It replies as if other sites had the same columns, so that every
    fact about shared columns is asked for.

    Args:
        site: the name of the site.
        local: the topics that stay at the site.
        named: the columns that the settings name, which other sites may have if this one lacks them.
        patterns: the patterns of federated parameters.
        twins: the number of imaginary sites.
        identity: the federation's identity, or an empty text.

    Attributes:
        told: maps each topic to the site's facts.
    """

    everybody_here = False

    def __init__(
        self,
        site: str,
        local: tuple[str, ...] = (),
        named: Iterable[str] = (),
        patterns: Iterable[str] = (),
        twins: int = 1,
        identity: str = "",
    ) -> None:
        self.site = site
        self._local = (*LOCAL, *local)
        self._named = list(named)
        self._patterns = list(patterns)
        self._twins = twins
        self.identity = identity
        self.told: dict[str, Facts] = {}

    def disguise(self, meaning: Meaning) -> Meaning:
        """Return digests, as the site would send them."""
        return digests_of(meaning, self.identity)

    def share(self, topic: str, own: Facts) -> Message:
        """Record the facts, and reply as if the other sites had sent the same."""
        if topic.startswith(self._local) or self.site not in own:
            return dict(own)
        self.told[topic] = told_of(topic, own)[self.site]
        twin = own[self.site]
        if isinstance(twin, Mapping) and "task" in twin.get("target", {}):
            twin = {**twin, "target": target_of_another(twin["target"])}
        if topic in ("columns", "values") and self._named:
            columns = twin.get("columns", {})
            twin = {**twin, "columns": {**dict.fromkeys(self._named, NUMBERS), **columns}}
        if topic == "federated" and self._named:  # another site may have the parameters of a column
            twin = {**twin, "met": [*self._patterns, *twin["met"]], "chosen": True}
        # With two imaginary sites, the named columns that this site lacks are common to some sites.
        least = 2 if self._named else 1
        twins = [f"another-site-{number}" for number in range(max(self._twins, least))]
        return dict(sorted({**own, **dict.fromkeys(twins, twin)}.items()))
