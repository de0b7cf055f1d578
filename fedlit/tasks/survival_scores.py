"""Scores of survival curves, in NumPy: how well they order rows, and how far they are from what was
observed. Rows that were censored are made up for by weights (inverse probability of censoring).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedlit.outcomes.brier import BrierTerms, trapezoid
from fedlit.outcomes.censored import ENTRY, EVENT, TIME, Steps, at_risk, kaplan_meier
from fedlit.outcomes.survival import SurvivalCurve
from fedlit.tasks.scores import Score
from fedlit.types import Bools, Floats, Numbers

SCORES = (
    Score(
        "integrated_brier", "Integrated Brier score", higher_is_better=False, percent=False, low=0.0
    ),
    Score("uno_c", "Uno's C", low=0.0, high=1.0),
    Score("horizon_auroc", "AUROC at the horizons", low=0.0, high=1.0),
    Score(
        "horizon_brier",
        "Brier score at the horizons",
        higher_is_better=False,
        percent=False,
        low=0.0,
    ),
    Score(
        "horizon_calibration",
        "Calibration error at the last horizon",
        higher_is_better=False,
        low=0.0,
        high=1.0,
    ),
)
_BLOCK = 2**21
"""How many pairs of rows are compared at a time."""


class SurvivalScorer:
    """Scores of the same curves for any counts of rows.

    Integer counts give the bits of rows that are repeated as often; floats are weights of rows.
    Scores at several horizons are means over those at which they are defined.

    Args:
        outcome: the intervals, the horizons and the share that is not censored.
        curves: (n, intervals) the predicted probabilities of no event.
        y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
    """

    def __init__(self, outcome: SurvivalCurve, curves: Floats, y: Numbers) -> None:
        self._y = y.astype(np.float64)
        self._late = outcome.late
        self._horizons = np.asarray(outcome.horizons, np.float64)
        self._risks = outcome.risks(curves)
        terms = outcome.brier(self._y)
        self._brier = (terms, terms.squares(curves[:, : len(terms.times)]))
        terms = BrierTerms.of(self._y, self._horizons, outcome.censored)
        self._at_horizons = (terms, terms.squares(1 - self._risks))
        self._pairs = Pairs(self._y, self._risks[:, -1], outcome.censored, self._horizons[-1])
        self._orders = [
            Order(self._y, risk, outcome.censored, horizon)
            for horizon, risk in zip(self._horizons, self._risks.T, strict=True)
        ]

    def __call__(self, counts: Numbers | None = None) -> dict[str, float]:
        """Return the scores by name; NaN if one is undefined.

        Args:
            counts: (n,) how much each row counts; once if None.
        """
        if counts is None:
            counts = np.ones(len(self._y), np.int64)
        terms, squares = self._at_horizons
        by_horizon = _means(squares, terms, counts)
        return {
            "integrated_brier": self._integrated(counts),
            "uno_c": self._pairs(counts),
            "horizon_auroc": _mean([order(counts) for order in self._orders]),
            "horizon_brier": _mean(by_horizon[terms.defined].tolist()),
            "horizon_calibration": self._calibration(counts),
        }

    def _integrated(self, counts: Numbers) -> float:
        """Return the Brier score, integrated over the times at which it is defined and a row has
        entered.
        """
        terms, squares = self._brier
        has_entered = counts.astype(np.float64) @ terms.counted > 0
        parts = trapezoid(terms.times, terms.defined & has_entered)
        there = parts > 0
        if not there.any():
            return math.nan
        by_time = _means(squares, terms, counts)
        return float((by_time[there] * parts[there]).sum())

    def _calibration(self, counts: Numbers) -> float:
        """Return by how much the mean predicted risk at the last horizon differs from the share that
        had the event by then, as Kaplan and Meier estimate it. Where rows entered late, the mean makes
        up for those that had the event before.
        """
        y = self._y
        horizon = self._horizons[-1]
        weight = counts.astype(np.float64)
        curve = kaplan_meier(y, weight)
        without_event = float(curve.at(horizon))
        last = np.asarray([horizon])
        if without_event > 0 and not float(at_risk(y, last, weight)[0]) > 0:
            return math.nan  # Nobody was observed up to the horizon.
        share = np.ones(len(y))
        if self._late:
            share = self._at_horizons[0].counted[:, -1]
        counted = float(_total(share, counts))
        if not counted > 0:
            return math.nan
        expected = _total(self._risks[:, -1] * share, counts) / counted
        return abs(float(expected) - (1 - without_event))


class Pairs:
    """The concordance of Uno et al. (2011): how often the row with the earlier event has the higher
    risk, among pairs whose order is known before a time τ. A pair counts as 1 / G(T)², and equal
    risks as one half.

    Args:
        y: (n, 3) the target.
        risk: (n,) the predicted risks.
        uncensored: the share G that is not censored.
        before: the time τ.
    """

    def __init__(self, y: Numbers, risk: Floats, uncensored: Steps, before: float) -> None:
        self._y = y
        self._risk = risk
        share = uncensored.at(y[:, TIME].astype(np.float64))
        usable = (y[:, EVENT] == 1) & (y[:, TIME] < before) & (share > 0)
        self._events = np.flatnonzero(usable)
        self._weight = share[self._events] ** -2
        self._kept: list[tuple[Bools, Floats]] | None = None
        if len(self._events) * len(y) <= _BLOCK:
            self._kept = list(self._blocks())

    def __call__(self, counts: Numbers) -> float:
        """Return the concordance; NaN if no pair is comparable."""
        if not len(self._events):
            return math.nan
        weight = counts.astype(np.float64)
        blocks = self._blocks() if self._kept is None else iter(self._kept)
        comparable, concordant = zip(
            *((pairs @ weight, right @ weight) for pairs, right in blocks), strict=True
        )
        of_events = counts[self._events]
        compared = _total(self._weight * np.concatenate(comparable), of_events)
        ordered = _total(self._weight * np.concatenate(concordant), of_events)
        if not compared > 0:
            return math.nan
        return float(ordered / compared)

    def _blocks(self) -> Iterator[tuple[Bools, Floats]]:
        """Yield which rows each event is compared with, and how right the order of risks is."""
        size = max(1, _BLOCK // len(self._y))
        time = self._y[:, TIME]
        for start in range(0, len(self._events), size):
            events = self._events[start : start + size]
            ends = time[events, None]
            later = (time > ends) | ((time == ends) & (self._y[:, EVENT] == 0))
            comparable = later & (self._y[:, ENTRY] < ends)
            risk = self._risk[events, None]
            right = (risk > self._risk) + 0.5 * (risk == self._risk)
            yield comparable, comparable * right


class Order:
    """The area under the ROC curve at a time (cumulative cases, dynamic controls): how often a row
    with an event up to it has a higher risk than one without. Cases count as 1 / G(T).

    Args:
        y: (n, 3) the target.
        risk: (n,) the predicted risks up to the time.
        uncensored: the share G that is not censored.
        time: the time.
    """

    def __init__(self, y: Numbers, risk: Floats, uncensored: Steps, time: float) -> None:
        share = uncensored.at(y[:, TIME].astype(np.float64))
        entered = y[:, ENTRY] < time
        is_case = (y[:, EVENT] == 1) & (y[:, TIME] <= time) & (share > 0)
        self._cases = np.flatnonzero(is_case & entered)
        self._weight = 1 / share[self._cases]
        controls = np.flatnonzero((y[:, TIME] > time) & entered)
        self._controls = controls[np.argsort(risk[controls], kind="stable")]
        risks = risk[self._controls]
        self._below = np.searchsorted(risks, risk[self._cases], side="left")
        self._up_to = np.searchsorted(risks, risk[self._cases], side="right")

    def __call__(self, counts: Numbers) -> float:
        """Return the area; NaN if there are no cases or no controls."""
        sums = np.concatenate([[0.0], np.cumsum(counts[self._controls].astype(np.float64))])
        right = (sums[self._below] + sums[self._up_to]) / 2
        of_cases = counts[self._cases]
        pairs = _total(self._weight, of_cases) * sums[-1]
        if not pairs > 0:
            return math.nan
        return float(_total(self._weight * right, of_cases) / pairs)


def _means(squares: Floats, terms: BrierTerms, counts: Numbers) -> Floats:
    """Return the Brier score at each time; NaN where no row has entered."""
    entered = _total(terms.counted, counts)
    totals = _total(squares, counts)
    means: Floats = np.divide(totals, entered, out=np.full(len(entered), np.nan), where=entered > 0)
    return means


def _mean(values: list[float]) -> float:
    """Return the mean of the values that are numbers; NaN if none is."""
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else math.nan


def _total(values: Floats, counts: Numbers) -> Floats:
    """Return the sum over rows. Whole counts repeat rows, because only a sum of repeated numbers has
    the bits of one of repeated rows.
    """
    if counts.dtype.kind == "f":
        return np.asarray((values.T * counts).T.sum(0))
    return np.asarray(np.repeat(values, counts.astype(np.int64), 0).sum(0))
