"""Person-periods: a case of yes or no for each row and each period in which it is at risk. It needs
NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fedlit.outcomes.censored import ENTRY, EVENT, TIME
from fedlit.outcomes.models import Fitted
from fedlit.types import Floats, PredictionArray

Bounds = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
"""The starts, middles and ends of periods."""


def bounds_of(ends: Sequence[float]) -> Bounds:
    """Return the bounds of periods, given their ends. The first one starts before all times.

    Example:
        >>> bounds_of([10.0, 20.0])
        ((-inf, 10.0), (5.0, 15.0), (10.0, 20.0))
    """
    middles = tuple((start + end) / 2 for start, end in pairwise((0.0, *ends)))
    return (-np.inf, *ends[:-1]), middles, tuple(ends)


def in_periods(y: Any, starts: Any, middles: Any, ends: Any) -> tuple[Any, Any]:
    """Return in which periods each row is at risk, and in which it has the event, (n, periods) bool.

    A period in which a row was observed in part only counts if its middle was observed. The period
    of an event always counts. Arrays and tensors are both allowed, if all are of one kind.

    Args:
        y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
        starts: (periods,) the starts of periods, see :func:`bounds_of`.
        middles: (periods,) their middles.
        ends: (periods,) their ends.
    """
    time = y[:, TIME, None]
    entry = y[:, ENTRY, None]
    has_event = y[:, EVENT, None] > 0
    happens = has_event & (time > starts) & (time <= ends)
    # An event in a later period shows that this one was survived.
    survived = (entry <= middles) & (time >= middles)
    before_event = has_event & (time <= ends) & ~happens
    return (survived & ~before_event) | happens, happens


class OnPeriods:
    """A model of yes and no that predicts the hazard of each period.

    Args:
        model: the fitted model, whose last inputs are the period.
        ends: (periods,) the ends of periods.
        indicators: whether the period is an indicator for each period but the first; otherwise it
            is one number, its position.
    """

    classes_: None = None

    def __init__(self, model: Fitted, ends: Floats, *, indicators: bool) -> None:
        self.model = model
        self.ends = ends
        self.indicators = indicators

    @staticmethod
    def inputs_of(periods: int, *, indicators: bool) -> Floats:
        """Return the inputs of each period, (periods, inputs)."""
        if indicators:
            return np.eye(periods)[:, 1:]
        return np.arange(float(periods))[:, None]

    def survival_at(self, x: PredictionArray, times: Floats) -> Floats:
        """Return the probability of no event up to each time, (n, times).

        Within a period the hazard is constant; beyond the last one no further event is predicted.
        """
        periods = len(self.ends)
        inputs = self.inputs_of(periods, indicators=self.indicators)
        cases = np.hstack([np.repeat(x, periods, 0), np.tile(inputs, (len(x), 1))])
        probabilities = self.model.predict_proba(cases.astype(x.dtype))
        hazard = (probabilities @ (np.asarray(self.model.classes_) == 1)).reshape(len(x), periods)
        tiny = np.finfo(np.float64).tiny
        logarithms = np.cumsum(np.log(np.maximum(1 - hazard, tiny)), 1)
        logarithms = np.hstack([np.zeros((len(x), 1)), logarithms])
        ends = np.concatenate([[0.0], self.ends])
        curves = [np.exp(np.interp(times, ends, row)) for row in logarithms]
        survival: Floats = np.asarray(curves).reshape(len(x), len(times))
        return survival

    def predict(self, x: PredictionArray, /) -> np.ndarray:
        """Refuse: a curve is no number."""
        raise TypeError("expected survival_at, found predict")

    def predict_proba(self, x: PredictionArray, /) -> np.ndarray:
        """Refuse: a curve is no probability of classes."""
        raise TypeError("expected survival_at, found predict_proba")
