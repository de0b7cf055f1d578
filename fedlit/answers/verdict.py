"""The verdict on a lift: whether a client should join a federation."""

from __future__ import annotations

import math
from enum import StrEnum

from fedlit.statistics import Estimate

MIN_SEEDS = 3
"""With fewer seeds there is no verdict."""
MATTERS = 0.5
"""The smallest difference that matters where nothing else is said: percentage points, or percent of
a score that has another unit."""


class Verdict(StrEnum):
    """What a client should do. Files and tables have its value, sentences its :attr:`words`.

    Example:
        >>> print(Verdict.ALONE, "|", Verdict.ALONE.words)
        stay alone | Stay alone
    """

    JOIN = "join"
    ALONE = "stay alone"
    SAME = "no difference"
    FEW = "not enough data"
    BLOCKED = "blocked"
    """A finding about the tables has to be settled first."""

    @property
    def words(self) -> str:
        """The verdict as a sentence begins with it."""
        return _WORDS[self]


_WORDS = {
    Verdict.JOIN: "Join",
    Verdict.ALONE: "Stay alone",
    Verdict.SAME: "No difference that matters",
    Verdict.FEW: "Not enough data",
    Verdict.BLOCKED: "No verdict",
}

VERDICTS = (Verdict.JOIN, Verdict.ALONE, Verdict.SAME, Verdict.FEW)
"""The verdicts on a lift, in the order in which tables show them."""


def verdict_on(lift: Estimate, least: float) -> Verdict:
    """Return the verdict on a lift.

    To join and to stay alone require an interval that excludes zero and a lift that matters. No
    difference means that no lift in the interval matters, that the interval excludes zero for a
    lift too small to matter, or that no seed shows any. Otherwise, and with fewer than
    :data:`MIN_SEEDS` seeds, there is not enough data to decide.

    Args:
        lift: by how much one method is better than another.
        least: the smallest lift that matters, in the same unit.

    Example:
        >>> from fedlit.statistics import over_seeds
        >>> clear, small, none = [2.0, 2.1, 2.2], [0.2, 0.21, 0.22], [-1.0, 3.0, 2.0]
        >>> [str(verdict_on(over_seeds(lifts), 0.5)) for lifts in (clear, small, none, clear[:2])]
        ['join', 'no difference', 'not enough data', 'not enough data']
    """
    if lift.over == "seeds" and lift.n < MIN_SEEDS:
        return Verdict.FEW
    if lift.mean == 0.0 == lift.sd:
        return Verdict.SAME
    low, high = lift.interval
    if not math.isfinite(low + high):
        return Verdict.FEW
    excludes_zero = low > 0 or high < 0
    if abs(lift.mean) < least and (excludes_zero or max(-low, high) <= least):
        return Verdict.SAME
    if low > 0:
        return Verdict.JOIN
    return Verdict.ALONE if high < 0 else Verdict.FEW
