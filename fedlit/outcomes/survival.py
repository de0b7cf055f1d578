"""What predicted survival curves mean. It needs NumPy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedlit.errors import RunError
from fedlit.outcomes.base import Columns, EstimatorKind, Logarithm, Outcome, RowLoss
from fedlit.outcomes.brier import BrierTerms
from fedlit.outcomes.censored import Steps
from fedlit.outcomes.models import Fitted
from fedlit.types import Floats, Numbers, PredictionArray, State

DAYS = {"day": 1.0, "week": 7.0, "month": 30.4375, "year": 365.25}
"""The days of each unit of time."""
SHORT = {"d": "day", "w": "week", "mo": "month", "y": "year"}
"""Units behind the number of a horizon, as in ``5y``."""


@dataclass(frozen=True)
class SurvivalCurve(Outcome):
    """The probability of no event up to the end of each interval: predictions (n, intervals).

    Attributes:
        edges: the ends of the intervals, ascending; the first interval begins at time 0.
        horizons: the times at which risks are shown; each is the end of an interval.
        time_unit: the unit of times; "" if it is not known.
        censor_times: the times at which the share of the client's training rows that are not
            censored decreases.
        censor_left: that share from each of these times on.
        late: whether rows entered late, see :class:`fedlit.outcomes.censored.Steps`.

    Example:
        >>> curve = SurvivalCurve((1.0, 2.0), (2.0,), "year")
        >>> {name: column.tolist() for name, column in curve.columns(np.array([[0.75, 0.25]])).items()}
        {'risk_2y': [0.75], 'median': [1.3691], 'survival_1': [0.75], 'survival_2': [0.25]}
    """

    edges: tuple[float, ...] = (1.0,)
    horizons: tuple[float, ...] = (1.0,)
    time_unit: str = ""
    censor_times: tuple[float, ...] = field(default=(), repr=False)
    censor_left: tuple[float, ...] = field(default=(), repr=False)
    late: bool = False

    number: ClassVar[bool] = True
    several_columns: ClassVar[bool] = True
    roles: ClassVar[Mapping[str, bool]] = {"time": True, "event": True, "entry": False}
    label_cells: ClassVar[tuple[int, ...]] = (1,)
    stratum: ClassVar[int | None] = 1
    of_rows: ClassVar[tuple[str, ...]] = ("censor_times", "censor_left", "late")
    estimator: ClassVar[EstimatorKind | None] = "Curves"
    noun: ClassVar[str] = "survival curve"

    def check(self) -> None:
        """Refuse times that do not ascend, horizons that end no interval, and shares outside of 0
        to 1.
        """
        edges = np.asarray(self.edges, np.float64)
        shares = np.asarray(self.censor_left, np.float64)
        is_valid = len(edges) > 0 and bool((np.diff(edges) > 0).all()) and edges[0] > 0
        is_valid &= len(self.horizons) > 0 and {*self.horizons} <= {*self.edges}
        is_valid &= len(shares) == len(self.censor_times)
        is_valid &= bool(((shares >= 0) & (shares <= 1)).all())
        if not is_valid or not np.isfinite(edges).all():
            raise ValueError("expected ascending times above 0, with the horizons among them")

    @classmethod
    def united(cls, states: Sequence[State]) -> State:
        """Return the state of the first task, with its intervals as far as those of all tasks reach.

        Raises:
            RunError: the tasks count times in different units.
        """
        first = states[0]
        units = sorted({state["time_unit"] or "no unit" for state in states})
        if len(units) > 1:
            raise RunError(
                f"mixture: expected parts that count times in one unit, found {' and '.join(units)}"
            )
        reach = min(state["edges"][-1] for state in states)
        edges = [edge for edge in first["edges"] if edge < reach] + [reach]
        horizons = [horizon for horizon in first["horizons"] if horizon in edges]
        return {**first, "edges": edges, "horizons": horizons or [reach]}

    def aligned(self, predictions: PredictionArray, part: Outcome) -> Floats:
        """Return the curves (n, width) of a part that may have other intervals."""
        if not isinstance(part, SurvivalCurve) or part.edges == self.edges:
            return predictions.astype(np.float64)
        return part.curve(predictions, np.asarray(self.edges))

    @property
    def width(self) -> int:
        """A probability for each interval."""
        return len(self.edges)

    @property
    def times(self) -> tuple[float, ...]:
        """The ends of the intervals."""
        return self.edges

    @property
    def censored(self) -> Steps:
        """The share of the client's training rows that are not censored, over time."""
        times = np.asarray(self.censor_times, np.float64)
        return Steps(times, np.asarray(self.censor_left), self.late)

    @property
    def columns_of_horizons(self) -> list[int]:
        """The column of predictions that belongs to each horizon."""
        return [self.edges.index(horizon) for horizon in self.horizons]

    def risks(self, predictions: PredictionArray) -> Floats:
        """Return the probability of an event up to each horizon, (n, horizons)."""
        survival = np.asarray(predictions, np.float64)[:, self.columns_of_horizons]
        risks: Floats = 1 - survival
        return risks

    def at(self, classes: object) -> SurvivalCurve:
        """Return the outcome unchanged: it has no classes."""
        return self

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Return the curves of a model with ``survival_at(x, times)`` at the ends of intervals."""
        predict = getattr(model, "survival_at", None)
        if predict is None:
            return super().of_model(model, x)
        curves: Floats = predict(x, np.asarray(self.edges, np.float64))
        return curves

    def curve(self, predictions: PredictionArray, times: Floats) -> Floats:
        """Return the probability of no event up to any times, (n, times).

        Within an interval the hazard is constant; beyond the last one nothing is known, NaN.
        """
        edges = np.asarray((0.0, *self.edges))
        survival = np.asarray(predictions, np.float64)
        logarithms = np.log(np.maximum(survival, np.finfo(np.float64).tiny))
        logarithms = np.hstack([np.zeros((len(survival), 1)), logarithms])
        interval = np.clip(np.searchsorted(edges, times), 1, len(self.edges))
        start = edges[interval - 1]
        share = (times - start) / (edges[interval] - start)
        before = logarithms[:, interval - 1]
        after = logarithms[:, interval]
        curve: Floats = np.exp(before + share * (after - before))
        curve[:, times > edges[-1]] = np.nan
        return curve

    def medians(self, predictions: PredictionArray) -> Floats:
        """Return the time by which half of such rows have the event, (n,); infinite if it is beyond
        the last interval.
        """
        edges = np.asarray((0.0, *self.edges))
        survival = np.asarray(predictions, np.float64)
        survival = np.hstack([np.ones((len(survival), 1)), survival])
        position = (survival > 0.5).sum(1)
        reached = position < len(edges)
        last = np.where(reached, position, 1)
        row = np.arange(len(survival))
        before = np.log(survival[row, last - 1])
        after = np.log(np.maximum(survival[row, last], np.finfo(np.float64).tiny))
        fall = np.where(reached, before - after, 1.0)
        part = (before + np.log(2.0)) / fall
        time = edges[last - 1] + part * (edges[last] - edges[last - 1])
        return np.where(reached, time, np.inf)

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return ``risk_<horizon>``, ``median`` and ``survival_<time>`` for each interval."""
        columns: Columns = {}
        for horizon, risk in zip(self.horizons, self.risks(predictions).T, strict=True):
            columns[f"risk_{self.text(horizon)}"] = risk
        digits = 4 - int(np.floor(np.log10(self.edges[-1])))
        columns["median"] = np.round(self.medians(predictions), digits)
        columns |= zip(self.curve_columns, np.asarray(predictions).T, strict=True)
        return columns

    @property
    def curve_columns(self) -> tuple[str, ...]:
        """``survival_<time>`` for each interval."""
        return tuple(f"survival_{edge:.7g}" for edge in self.edges)

    def text(self, horizon: float) -> str:
        """Return a horizon as a person writes it: in years if the unit is known and it is a simple
        number of them.

        Example:
            >>> days = SurvivalCurve(time_unit="day")
            >>> days.text(730.5), days.text(90.0), SurvivalCurve().text(2.5)
            ('2y', '90d', '2.5')
        """
        if not self.time_unit:
            return f"{horizon:.7g}"
        years = horizon * DAYS[self.time_unit] / DAYS["year"]
        if abs(years - round(years, 1)) < 1e-6 * years:
            return f"{round(years, 1):g}y"
        short = {unit: letters for letters, unit in SHORT.items()}
        return f"{horizon:.7g}{short[self.time_unit]}"

    def brier(self, y: Numbers) -> BrierTerms:
        """Return the terms of Brier scores of rows, at the ends of intervals up to the last
        horizon.

        Args:
            y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
        """
        times = np.asarray([edge for edge in self.edges if edge <= max(self.horizons)])
        return BrierTerms.of(y, times, self.censored)

    def row_loss(self, y: Numbers, log: Logarithm = np.log) -> RowLoss:
        """Return the integrated Brier score of each row, which is convex in the curve."""
        terms = self.brier(y)
        labelled = np.asarray(~np.isnan(np.asarray(y, np.float64)).any(1))
        weight = terms.weight * terms.shares
        width = len(terms.times)

        def losses(predictions: Floats) -> Floats:
            squares: Floats = weight * (predictions[:, :width] - terms.observed) ** 2
            losses_of_rows: Floats = squares.sum(1)
            return losses_of_rows

        def slopes(predictions: Floats) -> Floats:
            slope = np.zeros(predictions.shape)
            slope[:, :width] = 2 * weight * (predictions[:, :width] - terms.observed)
            return slope

        return RowLoss(losses, slopes, labelled, nats=False)
