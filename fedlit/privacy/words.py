"""What the terms say about privacy: what is promised, at what price, and what is not."""

from fedlit.exchange.rule import Rule
from fedlit.privacy.client_level import NOT_COVERED, epsilon, noise_to_signal
from fedlit.privacy.masking import largest, tolerance
from fedlit.privacy.settings import Privacy

MASKED_NOT_COVERED = (
    "the sums themselves: a site whose part others can guess, or whose partners all conspire with the coordinator",
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
        client-level privacy: ε = 39.8 at δ = 1e-05 after 30 rounds, for one site's whole table against all others
    """
    found = []
    if (masked := privacy.masked) is not None:
        found += [
            f"masked sums: the coordinator learns sums over at least {masked.least} sites, 8 bytes a value; a round "
            "waits for all of its sites",
            f"numbers are rounded to multiples of 2^-{masked.bits}: a mean is off by at most "
            f"{tolerance(masked.bits, sites):.1e} before it is rounded to its type; the largest value (times rows, "
            f"where these are weights) is {largest(masked.bits, sites):.3g}",
            "each site checks its own update: finite, "
            + (f"at most {masked.norm:g} long" if masked.norm is not None else "of any length (no bound is set)"),
        ]
        if topics := sorted(rule.facts.adds_answers):
            found.append(f"answers told as sums alone: {', '.join(topics)}; others as they are")
        found.append("masks do not hide: " + "; ".join(MASKED_NOT_COVERED))
    if (level := privacy.client_level) is not None:
        bound = "no bound is set on answers" if level.answers is None else f"at most {level.answers} answers"
        found = [
            f"client-level privacy: ε = {epsilon([level.noise] * rounds, level.delta):.3g} at δ = {level.delta:g} "
            f"after {rounds} rounds, for one site's whole table against all others",
            f"each update is shortened to {level.clip:g} and gets noise of {level.noise * level.clip:g} in each value, "
            f"{bound}; in the mean the noise is {noise_to_signal(values, sites, level.noise):.3g} times as long as the "
            "longest mean",
            "ε counts all answers of this site's folder; that others are drawn to take part makes it no smaller",
            "ε and δ do not cover: " + "; ".join(NOT_COVERED),
            *found,
        ]
    return found
