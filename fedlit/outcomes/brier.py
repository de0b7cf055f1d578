"""Brier scores of survival curves, with weights for rows that were censored (Graf et al. 1999). It
needs NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlit.outcomes.censored import ENTRY, EVENT, TIME, Steps
from fedlit.types import Floats, Numbers


@dataclass(frozen=True)
class BrierTerms:
    """What Brier scores of rows consist of: Σ weight (S − observed)² / counted at each time.

    The score at a time is the mean over rows that had entered by then. A row that was censored
    before has weight 0, and the others count for it: a row with an event at T as 1 / G(T), and a row
    that is still observed at t as 1 / G(t), where G is the share that is not censored.

    NOTE[DIFF]: Graf et al. weigh an event at T by 1 / G(T−), the share right before; here it is 1 /
    G(T), as in scikit-survival. They differ where rows are censored at the very time of an event,
    as with times in whole years: events then count somewhat too much.

    NOTE[DIFF]: the paper has no late entry. With it, G is the share that is observed (see
    :func:`fedlit.outcomes.censored.observed`), so that rows that had the event before they could
    enter are made up for; scores are then means over the weights. Otherwise curves with too low
    risks would have the best score.

    Attributes:
        times: (times,) the times.
        observed: (n, times) 1 as long as the row has no event.
        weight: (n, times) how much each row counts; 0 where its state is not known.
        counted: (n, times) how much each row counts in the mean at each time: 1 if it has entered
            or, where rows entered late, its weight.
        defined: (times,) bool, whether any training row was observed beyond each time.
        parts: (times,) by how much the score at each time counts in the integrated one, by the
            trapezoid rule over times where it is defined and a row has entered; they sum to 1, or 0
            if there is no such time.
    """

    times: Floats
    observed: Floats
    weight: Floats
    counted: Floats
    defined: np.ndarray
    parts: Floats

    @classmethod
    def of(cls, y: Numbers, times: Floats, uncensored: Steps) -> BrierTerms:
        """Return the terms of rows.

        Args:
            y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
            times: (times,) ascending.
            uncensored: the share G that is not censored.
        """
        ends = np.asarray(y[:, TIME], np.float64)[:, None]
        has_event = np.asarray(y[:, EVENT] == 1)[:, None] & (ends <= times)
        is_observed = ends > times
        entered = np.asarray(y[:, ENTRY], np.float64)[:, None] < times
        weight = np.where(has_event, _inverse(uncensored.at(ends)), 0.0)
        weight = np.where(is_observed, _inverse(uncensored.at(times)), weight) * entered
        counted = weight if uncensored.late else entered.astype(np.float64)
        defined = uncensored.at(times) > 0
        observed = is_observed.astype(np.float64)
        parts = trapezoid(times, defined & (counted > 0).any(0))
        return cls(times, observed, weight, counted, defined, parts)

    @property
    def shares(self) -> Floats:
        """(times,) by how much a row counts at each time in a mean over all rows that is the
        integrated score.
        """
        counted = self.counted.sum(0)
        there = counted > 0
        shares: Floats = np.where(there, self.parts * len(self.counted), 0.0)
        shares /= np.where(there, counted, 1.0)
        return shares

    def squares(self, survival: Floats) -> Floats:
        """Return the weighted squared error of each row at each time, (n, times)."""
        squares: Floats = self.weight * (survival - self.observed) ** 2
        return squares


def trapezoid(times: Floats, defined: np.ndarray) -> Floats:
    """Return the weights by which values at times are integrated and divided by the length, over the
    times where they are defined.

    Example:
        >>> trapezoid(np.array([1.0, 2.0, 4.0]), np.array([True, True, True])).round(3)
        array([0.167, 0.5  , 0.333])
    """
    parts = np.zeros(len(times))
    there = np.flatnonzero(defined)
    if len(there) == 1:
        parts[there] = 1.0
    elif len(there):
        half = np.diff(times[there]) / 2
        parts[there[:-1]] += half
        parts[there[1:]] += half
        parts /= times[there[-1]] - times[there[0]]
    return parts


def _inverse(shares: Floats) -> Floats:
    """Return 1 / shares, and 0 for a share of 0, as nothing is known of such rows."""
    inverse: Floats = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
    return inverse
