"""What cannot be had with privacy, refused before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Rule
from fedlit.privacy.layout import Layout, dtype_of
from fedlit.privacy.settings import LEAST, Privacy
from fedlit.sharing import Sharing

__all__ = ["layout_of", "refuse"]


def layout_of(sharing: Sharing, sites: Sequence[str], rule: Rule, least: int = LEAST) -> Layout:
    """What a round sums over whom.

    Args:
        sharing: what of each site's client is federated.
        sites: that take part.
        rule: whether rows are weights.
        least: sites that must stand behind each sum.

    Raises:
        ConfigError: a tensor of fewer of them, or too few of them.
    """
    if len(set(sites)) < least:
        raise ConfigError(
            f"masked sums: expected at least {least} sites that take part, found "
            f"{', '.join(sorted(set(sites))) or 'none'}; of fewer, one would know the other's part. Wait for more sites"
        )
    owners: dict[str, tuple[str, ...]] = {}
    for site in sorted(set(sites)):
        for name in sharing.names[site]:
            owners[name] = (*owners.get(name, ()), site)
    return Layout(owners, {name: sharing.forms[name] for name in owners}, "rows" in rule.needs, least)


def refuse(
    privacy: Privacy,
    rule: Rule,
    sharing: Sharing,
    taking_part: int,
    optimizer_state: str = "keep",
    published: Mapping[str, Any] | None = None,
) -> None:
    """Refuse what privacy cannot be had with.

    Args:
        privacy: what is wanted.
        rule: of the exchange.
        sharing: what of each site's client is federated.
        taking_part: sites in a round.
        optimizer_state: of the exchange.
        published: what the client here publishes beside its federated tensors.

    Raises:
        ConfigError: all that is wrong, a line each.
    """
    if not privacy.on:
        return
    name, problems = type(rule).__name__, list[str]()
    needed = {"cryptography": True, "dp_accounting": privacy.client_level is not None}
    if missing := [own for own, wanted in needed.items() if wanted and find_spec(own) is None]:
        problems.append(
            f"privacy: expected the packages of fedlit[privacy], found that {' and '.join(missing)} "
            f"{'are' if len(missing) > 1 else 'is'} "
            "missing; run: pip install 'fedlit[privacy]'"
        )
    what = "masked sums" if privacy.masked else "client-level privacy"
    if published:
        problems.append(
            f"{what}: expected federated tensors alone, found that {', '.join(sorted(published))} would travel as they "
            "are (publish); take another method, or go without"
        )
    if optimizer_state == "average":
        problems.append(
            f"exchange.optimizer_state: expected keep or reset with {what}, found average: an optimizer's state would "
            "travel too"
        )
    if privacy.masked:
        problems += _masked(rule, name, sharing, taking_part, privacy.masked.least)
    if privacy.client_level:
        problems += _client_level(rule, name, sharing)
    if problems:
        raise ConfigError("\n".join(problems))


def _masked(rule: Rule, name: str, sharing: Sharing, taking_part: int, least: int) -> list[str]:
    problems = []
    if not (rule.by_mean or rule.adds_answers):
        why = "single states" if "states" in rule.needs else "single answers" if "answers" in rule.needs else "updates"
        problems.append(
            f"masked sums: expected a rule that works with sums, found {name}, which needs each site's {why}; take "
            "Mean, an optimizer at the server (FedAvgM, FedAdam, …), Newton with of: all or GrowForest with summed: "
            "true, or go without masks"
        )
    if taking_part < least:
        problems.append(
            f"masked sums: expected at least {least} sites in a round, found {taking_part}; raise "
            "exchange.participation, or wait for more sites"
        )
    elif rule.by_mean:
        try:
            layout_of(sharing, list(sharing.names), rule, least)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _client_level(rule: Rule, name: str, sharing: Sharing) -> list[str]:
    problems = []
    if "answers" in rule.needs:
        problems.append(
            f"client-level privacy: expected a rule that asks nothing, found {name}: answers would be told as they are"
        )
    whole = [own for own, form in sharing.forms.items() if not dtype_of(form[0]).is_floating_point]
    if whole:
        problems.append(
            f"client-level privacy: expected floating-point tensors, found {whole[0]} of "
            f"{dtype_of(sharing.forms[whole[0]][0])}; keep it private"
        )
    buffers = sorted({own for site, names in sharing.names.items() for own in names} - _parameters(sharing))
    if buffers:
        problems.append(
            f"client-level privacy: expected parameters alone, found the buffer {buffers[0]}: with noise a variance "
            "can fall below 0; set exchange.buffers: private"
        )
    return problems


def _parameters(sharing: Sharing) -> set[str]:
    return {own for names in sharing.parameters.values() for own in names}
