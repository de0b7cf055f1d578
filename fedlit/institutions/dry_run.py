"""What a site would send, found offline: the run is set up as if another site had the same table."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedlit.data.columns import NUMBERS
from fedlit.exchange.transport import Transport
from fedlit.institutions.transport import LOCAL, told_of


class DryRun(Transport):
    """Records what would be sent. It pretends that another site has the same columns, so that everything is asked that
    may be asked about columns that sites share.

    Args:
        site: its name.
        local: topics that stay at the site.
        named: columns that the settings name; sites that lack some have others to meet.
        patterns: of what is federated.
        twins: how many other sites are pretended.

    Attributes:
        told: topic → facts of the site.
    """

    everybody_here = False

    def __init__(
        self,
        site: str,
        local: tuple[str, ...] = (),
        named: Iterable[str] = (),
        patterns: Iterable[str] = (),
        twins: int = 1,
    ) -> None:
        self.site, self._local = site, (*LOCAL, *local)
        self._named, self._patterns, self._twins = list(named), list(patterns), twins
        self.told: dict[str, Any] = {}

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record the facts, and reply as if the other sites had sent the same."""
        if topic.startswith(self._local) or self.site not in own:
            return dict(own)
        self.told[topic] = told_of(topic, own)[self.site]
        twin = own[self.site]
        if topic in ("columns", "values") and self._named:
            known = twin.get("columns", {})
            twin = {**twin, "columns": {**dict.fromkeys(self._named, NUMBERS), **known}}
        if topic == "federated" and self._named:  # what the site has no part of may be another's
            patterns = dict.fromkeys(self._patterns, "another's")
            twin = {**twin, "matched": {**patterns, **twin["matched"]}, "travel": list(patterns), "chosen": True}
        # at least two where columns are named, so that those which the site lacks are common to some
        twins = [f"another-site-{place}" for place in range(max(self._twins, 2 if self._named else 1))]
        return dict(sorted({**own, **dict.fromkeys(twins, twin)}.items()))
