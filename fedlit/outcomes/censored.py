"""Times that are observed in part: how long each row was observed, and whether the event ended it. It
needs NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlit.types import Bools, Floats, Numbers

TIME, EVENT, ENTRY = range(3)
"""The columns of an encoded target (n, 3): the time at which observation ended, 1 if the event ended
it and 0 if it was censored, and the time from which the row was observed (−∞: from the beginning)."""

_ROUNDING = 1e-9
"""Weights of rows that differ by less than this share of them are equal."""


@dataclass(frozen=True)
class Steps:
    """A function of time that begins at 1 and steps down: the share that is left.

    Attributes:
        times: (steps,) the times of steps, ascending.
        shares: (steps,) the value from each of these times on.
        late: whether rows entered late. The function is then the share that is observed, up to a
            factor, and steps up where rows enter (see :func:`observed`).

    Example:
        >>> Steps(np.array([2.0, 5.0]), np.array([0.75, 0.5])).at(np.array([1.9, 2.0, 9.0]))
        array([1.  , 0.75, 0.5 ])
    """

    times: Floats
    shares: Floats
    late: bool = False

    def at(self, times: Floats | float) -> Floats:
        """Return the values at these times, of the same shape."""
        values = np.concatenate([[1.0], self.shares])
        positions = np.searchsorted(self.times, times, side="right")
        at_times: Floats = np.asarray(values[positions])
        return at_times

    def thinned(self, most: int) -> Steps:
        """Return the function with at most so many steps, which are evenly spread over it. Where rows
        entered late, each is the mean of those that it takes the place of, because the first ones
        rise steeply.
        """
        if len(self.times) <= most:
            return self
        if self.late:
            groups = np.array_split(np.arange(len(self.times)), most)
            means = np.array([self.shares[group].mean() for group in groups])
            return Steps(self.times[[group[0] for group in groups]], means, late=True)
        chosen = np.unique(np.linspace(0, len(self.times) - 1, most).round().astype(np.int64))
        return Steps(self.times[chosen], self.shares[chosen])


def kaplan_meier(y: Numbers, weight: Floats | None = None) -> Steps:
    """Return the share of rows without the event, as Kaplan and Meier (1958) estimate it.

    A row is at risk at a time if it entered before and was observed up to it.

    Args:
        y: (n, 3) the target, see :data:`TIME`.
        weight: (n,) how much each row counts; once if None.

    Example:
        >>> y = np.array([[1.0, 1.0, -np.inf], [2.0, 0.0, -np.inf], [3.0, 1.0, -np.inf]])
        >>> curve = kaplan_meier(y)
        >>> curve.times, curve.shares.round(3)
        (array([1., 3.]), array([0.667, 0.   ]))
    """
    return _steps(y, y[:, EVENT] == 1, weight)


def censoring(y: Numbers) -> Steps:
    """Return the share of rows that are not censored. At one time, events come before
    censorings.

    If the only rows at risk are censored before others enter, that says nothing about the others:
    the share stays as it is. Otherwise one row that entered early would leave none to be scored.

    Args:
        y: (n, 3) the target, see :data:`TIME`.
    """
    return _steps(y, y[:, EVENT] == 0, None, first=y[:, EVENT] == 1)


def observed(y: Numbers) -> Steps:
    """Return the share of rows whose state is observed, by which scores are weighted: of those that
    are not censored or, where rows entered late, of those that have entered, too.

    With late entry it is the number of rows at risk after each time, divided by Kaplan and Meier's
    share without the event: what that number would be if nobody had an event. Its largest value is
    1, because only ratios count.

    Args:
        y: (n, 3) the target, see :data:`TIME`.
    """
    if not np.isfinite(y[:, ENTRY]).any():
        return censoring(y)
    numbers = y.astype(np.float64)
    times = np.unique(numbers[:, [TIME, ENTRY]])
    times = times[np.isfinite(times)]
    entered = np.searchsorted(np.sort(numbers[:, ENTRY]), times, side="right")
    ended = np.searchsorted(np.sort(numbers[:, TIME]), times, side="right")
    surviving = kaplan_meier(y).at(times)
    there = surviving > 0
    shares = np.zeros(len(times))
    shares[there] = (entered - ended)[there] / surviving[there]
    nobody_left = np.flatnonzero(~there)
    if (
        len(nobody_left) and nobody_left[0] > 0
    ):  # The last event counts as the rows right before it.
        shares[nobody_left[0]] = shares[nobody_left[0] - 1]
    return Steps(times, shares / max(shares.max(), 1e-300), late=True)


def at_risk(y: Numbers, times: Floats, weight: Floats | None = None) -> Floats:
    """Return the weight of rows that are at risk at each of these times."""
    leaving = _total_from(y[:, TIME], times, weight)
    not_yet = _total_from(y[:, ENTRY], times, weight)
    return leaving - not_yet


def _total_from(values: Numbers, times: Floats, weight: Floats | None) -> Floats:
    """Return the weight of the rows whose value is at least each of these times."""
    order = np.argsort(values, kind="stable")
    weights = np.ones(len(values)) if weight is None else weight[order]
    below = np.concatenate([[0.0], np.cumsum(weights)])
    totals: Floats = below[-1] - below[np.searchsorted(values[order], times, side="left")]
    return totals


def _steps(y: Numbers, ending: Bools, weight: Floats | None, first: Bools | None = None) -> Steps:
    """Return the product-limit estimate for rows that end in some way, of which those that end in
    another way come first.
    """
    weights = np.ones(len(y)) if weight is None else weight
    rows = ending & (weights > 0)
    times, position = np.unique(y[rows, TIME].astype(np.float64), return_inverse=True)
    ended = np.bincount(position.reshape(-1), weights[rows], len(times))
    risk = at_risk(y, times, weight)
    if first is not None:
        before = first & np.isin(y[:, TIME], times)
        position = np.searchsorted(times, y[before, TIME])
        risk = risk - np.bincount(position, weights[before], len(times))
    # Sums of weights are rounded: of rows that all end, nothing is left.
    staying = np.where(ended < risk * (1 - _ROUNDING), 1 - ended / risk, 0.0)
    if first is not None:
        last_entry = y[:, ENTRY].max(initial=-np.inf)
        staying[(staying == 0) & (times <= last_entry)] = 1.0
    shares: Floats = np.cumprod(staying, dtype=np.float64)
    return Steps(times, shares)
