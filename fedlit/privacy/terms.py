"""What a plan has to say about privacy: settings that are impossible with it, and what is promised
at what price.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Rule
from fedlit.extras import needs
from fedlit.privacy.client_level import NOT_COVERED, epsilon, noise_to_signal
from fedlit.privacy.masking import dtype_of, largest, layout_of, tolerance
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
    masked = privacy.masked
    level = privacy.client_level
    name = type(rule).__name__
    what = "masked sums" if masked else "client-level privacy"
    needed = ["cryptography", *(["dp_accounting"] if level else [])]
    missing = [module for module in needed if find_spec(module) is None]
    asks_for = next((own for own in ("states", "answers") if own in rule.needs), "updates")
    whole = [own for own, form in sharing.forms.items() if not dtype_of(form[0]).is_floating_point]
    parameters = {own for names in sharing.parameters.values() for own in names}
    buffers = sorted({own for names in sharing.names.values() for own in names} - parameters)
    few = masked is not None and taking_part < masked.least
    problems: list[str] = []

    def refuse_if(wrong: Any, message: str) -> None:
        problems.extend([message] if wrong else [])

    if missing:
        problems.append(f"{what}: {needs(missing[0], 'privacy')}")
    found = ", ".join(sorted(published or ()))
    refuse_if(
        published,
        f"{what}: expected federated tensors alone, found that {found} would travel too (publish)",
    )
    if masked:
        refuse_if(
            not (rule.facts.by_mean or rule.facts.adds_answers),
            f"masked sums: expected a rule that works with sums, found {name}, which needs each "
            f"site's single {asks_for}; take Mean, an optimizer at the server (FedAvgM, FedAdam, "
            "…), Newton with of: all or GrowForest with summed: true, or go without masks",
        )
        found = (
            f"masked sums: expected at least {masked.least} sites in a round, found {taking_part}"
        )
        refuse_if(few, f"{found}; raise exchange.participation, or wait for more sites")
    if level:
        found = f"client-level privacy: expected a rule that asks nothing, found {name}"
        refuse_if("answers" in rule.needs, f"{found}: answers would be told as they are")
        refuse_if(
            whole,
            f"client-level privacy: expected floating-point tensors, found {whole[:1]}; keep them "
            "private",
        )
        found = f"client-level privacy: expected parameters alone, found the buffers {buffers[:1]}"
        refuse_if(
            buffers, f"{found}: noise can make a variance negative; set exchange.buffers: private"
        )
    if masked and rule.facts.by_mean and not few:
        try:
            layout_of(sharing, list(sharing.names), rule, masked.least)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


MASKED_NOT_COVERED = (
    "the sums themselves: a site whose part others can guess, or whose partners all conspire with "
    "the coordinator",
    "what changes from one round to the next where other sites take part",
    "the last model, and what can be learnt from it",
    "an update that is wrong on purpose: nobody can look at it",
)
"""What masks do not hide."""


def lines(privacy: Privacy, rule: Rule, rounds: int, sites: int, values: int) -> list[str]:
    """Return lines that describe the protection for the user; none without protection.

    Args:
        privacy: the privacy settings.
        rule: the rule of the exchange.
        rounds: the number of planned exchanges.
        sites: the number of sites that take part in each.
        values: the number of values in one site's update.

    Example:
        >>> from fedlit.exchange.rules.mean import Mean
        >>> from fedlit.privacy.settings import ClientLevel
        >>> print(lines(Privacy(client_level=ClientLevel(clip=1.0, noise=2.0)), Mean(), 30, 3, 2_500)[0])
        client-level privacy: ε = 39.8 at δ = 1e-05 after 30 rounds, for one site's whole table
        against all others
    """
    found = []
    if (masked := privacy.masked) is not None:
        found += [
            f"masked sums: the coordinator learns sums over at least {masked.least} sites, 8 bytes "
            "a value; a round waits for all of its sites",
            f"numbers are rounded to multiples of 2^-{masked.bits}: a mean is off by at most "
            f"{tolerance(masked.bits, sites):.1e} before it is rounded to its type; the largest "
            f"value (times rows, where these are weights) is {largest(masked.bits, sites):.3g}",
            "each site checks its own update: finite, "
            + (
                f"at most {masked.norm:g} long"
                if masked.norm is not None
                else "of any length (no bound is set)"
            ),
        ]
        if topics := sorted(rule.facts.adds_answers):
            found.append(f"answers told as sums alone: {', '.join(topics)}; others as they are")
        found.append("masks do not hide: " + "; ".join(MASKED_NOT_COVERED))
    if (level := privacy.client_level) is not None:
        bound = (
            "no bound is set on answers"
            if level.answers is None
            else f"at most {level.answers} answers"
        )
        found = [
            f"client-level privacy: ε = {epsilon([level.noise] * rounds, level.delta):.3g} at δ = "
            f"{level.delta:g} after {rounds} rounds, for one site's whole table against all others",
            f"each update is shortened to {level.clip:g} and gets noise of "
            f"{level.noise * level.clip:g} in each value, {bound}; in the mean the noise is "
            f"{noise_to_signal(values, sites, level.noise):.3g} times as long as the longest mean",
            "ε counts all answers of this site's folder; that others are drawn to take part makes "
            "it no smaller",
            "ε and δ do not cover: " + "; ".join(NOT_COVERED),
            *found,
        ]
    return found
