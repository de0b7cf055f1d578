"""Settings that are impossible with privacy, refused before training."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Rule
from fedlit.privacy.layout import dtype_of, layout_of
from fedlit.privacy.settings import Privacy
from fedlit.sharing import Sharing


def refuse(
    privacy: Privacy,
    rule: Rule,
    sharing: Sharing,
    taking_part: int,
    published: Mapping[str, Any] | None = None,
) -> None:
    """Refuse settings that are impossible with privacy.

    Args:
        privacy: what is wanted.
        rule: of the exchange.
        sharing: what of each site's client is federated.
        taking_part: sites in a round.
        published: what the client here publishes beside its federated tensors.

    Raises:
        ConfigError: all that is wrong, a line each.
    """
    if not privacy.on:
        return
    masked, level, name = privacy.masked, privacy.client_level, type(rule).__name__
    what = "masked sums" if masked else "client-level privacy"
    needed = ["cryptography", *(["dp_accounting"] if level else [])]
    missing = [own for own in needed if find_spec(own) is None]
    needs = next((own for own in ("states", "answers") if own in rule.needs), "updates")
    whole = [own for own, form in sharing.forms.items() if not dtype_of(form[0]).is_floating_point]
    parameters = {own for names in sharing.parameters.values() for own in names}
    buffers = sorted({own for names in sharing.names.values() for own in names} - parameters)
    few = masked is not None and taking_part < masked.least
    problems: list[str] = []

    def refuse_if(wrong: Any, message: str) -> None:
        problems.extend([message] if wrong else [])

    found = ", ".join(missing)
    refuse_if(missing, f"privacy: expected fedlit[privacy], found no {found}; run: pip install 'fedlit[privacy]'")
    found = ", ".join(sorted(published or ()))
    refuse_if(published, f"{what}: expected federated tensors alone, found that {found} would travel too (publish)")
    if masked:
        refuse_if(
            not (rule.facts.by_mean or rule.facts.adds_answers),
            f"masked sums: expected a rule that works with sums, found {name}, which needs each site's single {needs}; "
            "take Mean, an optimizer at the server (FedAvgM, FedAdam, …), Newton with of: all or GrowForest with "
            "summed: true, or go without masks",
        )
        found = f"masked sums: expected at least {masked.least} sites in a round, found {taking_part}"
        refuse_if(few, f"{found}; raise exchange.participation, or wait for more sites")
    if level:
        found = f"client-level privacy: expected a rule that asks nothing, found {name}"
        refuse_if("answers" in rule.needs, f"{found}: answers would be told as they are")
        refuse_if(whole, f"client-level privacy: expected floating-point tensors, found {whole[:1]}; keep them private")
        found = f"client-level privacy: expected parameters alone, found the buffers {buffers[:1]}"
        refuse_if(buffers, f"{found}: noise can make a variance negative; set exchange.buffers: private")
    if masked and rule.facts.by_mean and not few:
        try:
            layout_of(sharing, list(sharing.names), rule, masked.least)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
