"""What a plan has to say about privacy: settings that are impossible with it, and what is promised
at what price.
"""

from collections.abc import Mapping
from importlib.util import find_spec

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Rule
from fedlit.extras import needs
from fedlit.privacy.client_level import NOT_COVERED, epsilon, noise_to_signal
from fedlit.privacy.masking import dtype_of, largest, layout_of, tolerance
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.sharing import Sharing


def refuse(
    privacy: Privacy,
    rule: Rule,
    sharing: Sharing,
    taking_part: int,
    published: Mapping[str, object] | None = None,
) -> None:
    """Refuse settings that are impossible with privacy.

    Args:
        privacy: the protection that is asked for.
        rule: the rule of the exchange.
        sharing: which tensors of each site's client are federated.
        taking_part: the number of sites in a round.
        published: what the client of this process publishes beside its federated tensors.

    Raises:
        ConfigError: something is impossible; the message has a line for each problem.
    """
    if not privacy.on:
        return
    protection = "masked sums" if privacy.masked else "client-level privacy"
    needed = ["cryptography"]
    if privacy.client_level:
        needed.append("dp_accounting")
    problems = []
    missing = [module for module in needed if find_spec(module) is None]
    if missing:
        problems.append(f"{protection}: {needs(missing[0], 'privacy')}")
    if published:
        problems.append(
            f"{protection}: expected federated tensors alone, found that "
            f"{', '.join(sorted(published))} would travel too (publish)"
        )
    if privacy.masked:
        problems += _against_masks(privacy.masked, rule, sharing, taking_part)
    if privacy.client_level:
        problems += _against_noise(rule, sharing)
    if problems:
        raise ConfigError("\n".join(problems))


def _against_masks(masked: Masked, rule: Rule, sharing: Sharing, taking_part: int) -> list[str]:
    """Return what makes masked sums impossible."""
    problems = []
    if not (rule.facts.by_mean or rule.facts.adds_answers):
        single = next((need for need in ("states", "answers") if need in rule.needs), "updates")
        problems.append(
            f"masked sums: expected a rule that works with sums, found {type(rule).__name__}, "
            f"which needs each site's single {single}; take Mean, an optimizer at the server "
            "(FedAvgM, FedAdam, …), Newton with of: all or GrowForest with summed: true, or go "
            "without masks"
        )
    if taking_part < masked.least:
        problems.append(
            f"masked sums: expected at least {masked.least} sites in a round, found {taking_part}; "
            "raise exchange.participation, or wait for more sites"
        )
    elif rule.facts.by_mean:
        try:
            layout_of(sharing, list(sharing.names), rule, masked.least)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _against_noise(rule: Rule, sharing: Sharing) -> list[str]:
    """Return what makes noised updates impossible."""
    integers = [
        tensor
        for tensor, (dtype, _) in sharing.forms.items()
        if not dtype_of(dtype).is_floating_point
    ]
    tensors = set().union(*sharing.names.values())
    buffers = sorted(tensors.difference(*sharing.parameters.values()))
    problems = []
    if "answers" in rule.needs:
        problems.append(
            "client-level privacy: expected a rule that asks nothing, found "
            f"{type(rule).__name__}: answers would be sent as they are"
        )
    if integers:
        problems.append(
            "client-level privacy: expected floating-point tensors, found "
            f"{integers[:1]}; keep them private"
        )
    if buffers:
        problems.append(
            f"client-level privacy: expected parameters alone, found the buffers {buffers[:1]}: "
            "noise can make a variance negative; set exchange.buffers: private"
        )
    return problems


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
    statements = []
    if privacy.client_level is not None:
        statements += _of_noise(privacy.client_level, rounds, sites, values)
    if privacy.masked is not None:
        statements += _of_masks(privacy.masked, rule, sites)
    return statements


def _of_noise(level: ClientLevel, rounds: int, sites: int, values: int) -> list[str]:
    bound = "no bound is set on answers"
    if level.answers is not None:
        bound = f"at most {level.answers} answers"
    return [
        f"client-level privacy: ε = {epsilon([level.noise] * rounds, level.delta):.3g} at δ = "
        f"{level.delta:g} after {rounds} rounds, for one site's whole table against all others",
        f"each update is shortened to {level.clip:g} and gets noise of "
        f"{level.noise * level.clip:g} in each value, {bound}; in the mean the noise is "
        f"{noise_to_signal(values, sites, level.noise):.3g} times as long as the longest mean",
        "ε counts all answers of this site's folder; that others are drawn to take part makes "
        "it no smaller",
        "ε and δ do not cover: " + "; ".join(NOT_COVERED),
    ]


def _of_masks(masked: Masked, rule: Rule, sites: int) -> list[str]:
    bound = "of any length (no bound is set)"
    if masked.norm is not None:
        bound = f"at most {masked.norm:g} long"
    statements = [
        f"masked sums: the coordinator learns sums over at least {masked.least} sites, 8 bytes "
        "a value; a round waits for all of its sites",
        f"numbers are rounded to multiples of 2^-{masked.bits}: a mean is off by at most "
        f"{tolerance(masked.bits, sites):.1e} before it is rounded to its type; the largest "
        f"value (times rows, where these are weights) is {largest(masked.bits, sites):.3g}",
        f"each site checks its own update: finite, {bound}",
    ]
    if topics := sorted(rule.facts.adds_answers):
        statements.append(f"answers sent as sums alone: {', '.join(topics)}; others as they are")
    statements.append("masks do not hide: " + "; ".join(MASKED_NOT_COVERED))
    return statements
