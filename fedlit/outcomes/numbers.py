"""The outcomes of tasks that predict a number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

import numpy as np

from fedlit.outcomes.base import (
    EDGE,
    Columns,
    EstimatorKind,
    Family,
    Logarithm,
    Outcome,
    RowLoss,
    minus_log,
    slope_of_minus_log,
)
from fedlit.outcomes.models import Fitted
from fedlit.types import Floats, Numbers, PredictionArray


def check_standard(mean: object, scale: object) -> None:
    """Refuse values with which a number could not be standardised.

    Raises:
        ValueError: one is no number, or the scale is not positive and finite.
    """
    if not is_number(mean) or not is_number(scale) or not 0 < scale < math.inf:
        raise ValueError("expected numbers as mean and scale")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number; True and False are none."""
    return type(value) in (int, float)


@dataclass(frozen=True)
class Quantity(Outcome):
    """A number.

    Attributes:
        mean: the mean of the target, by which targets were standardised for networks and
            scikit-learn models.
        scale: the scale of the target, likewise.

    Example:
        >>> Quantity(scale=2.0).columns(np.array([[12.3456789012345]]))["predicted"].tolist()
        [12.3456789]
    """

    mean: float = 0.0
    scale: float = 1.0

    number: ClassVar[bool] = True
    estimator: ClassVar[EstimatorKind | None] = "Regressor"
    family: ClassVar[Family | None] = "gaussian"

    def check(self) -> None:
        """Refuse an invalid mean or scale."""
        check_standard(self.mean, self.scale)

    @property
    def width(self) -> int:
        """One number."""
        return 1

    @property
    def magnitude(self) -> float:
        """The scale."""
        return self.scale

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return ``predicted``, rounded to a billionth of the scale."""
        digits = 9 - math.ceil(math.log10(self.scale))
        return {"predicted": np.round(predictions[:, 0].astype(np.float64), digits) + 0.0}

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Return the numbers (n, 1) float64 of a model of the standardised target."""
        return np.asarray(model.predict(x), np.float64)[:, None] * self.scale + self.mean

    def row_loss(self, y: Numbers, log: Logarithm = np.log) -> RowLoss:
        """Return the squared error in the user's unit."""
        true = self.observed(y)
        return RowLoss(
            lambda predictions: ((predictions - true) ** 2)[:, 0],
            lambda predictions: 2 * (predictions - true),
            y == y,
            nats=False,
        )

    def link(self, predictions: Floats) -> Floats:
        """Return the numbers unchanged."""
        return predictions

    def unlink(self, eta: Floats) -> Floats:
        """Return the numbers unchanged."""
        return eta

    def observed(self, y: Numbers) -> Floats:
        """Return the target (n, 1) in the user's units."""
        return (y.astype(np.float64) * self.scale + self.mean)[:, None]


@dataclass(frozen=True)
class Rate(Outcome):
    """How often something happens: the expected count.

    Attributes:
        mean: the mean count.

    Example:
        >>> rate = Rate(2.0)
        >>> rate.unlink(rate.link(np.array([[3.0]]))).round(6), rate.row_loss(np.array([3.0])).mean([[3.0]])
        (array([[3.]]), 0.0)
    """

    mean: float = 0.0

    number: ClassVar[bool] = True
    estimator: ClassVar[EstimatorKind | None] = "Regressor"
    one_model_each: ClassVar[bool] = True
    family: ClassVar[Family | None] = "poisson"
    noun: ClassVar[str] = "count"

    def check(self) -> None:
        """Refuse an invalid mean."""
        check_standard(self.mean, 1.0)

    @property
    def width(self) -> int:
        """One number."""
        return 1

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return ``predicted``, the rate."""
        return {"predicted": predictions[:, 0].astype(np.float64)}

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Return rates (n, 1) float64. A rate is at least a thousandth of the mean, because trees
        predict 0 for a leaf whose rows have no count, and a count there would have an infinite
        deviance.
        """
        return np.maximum(np.asarray(model.predict(x), np.float64)[:, None], self.mean / 1000)

    def row_loss(self, y: Numbers, log: Logarithm = np.log) -> RowLoss:
        """Return half the Poisson deviance."""
        true = self.observed(y)
        least = np.where(true > 0, true * log(np.maximum(true, 1e-300)) - true, 0.0)
        return RowLoss(
            lambda predictions: (predictions + true * minus_log(predictions, log) + least)[:, 0],
            lambda predictions: 1 + slope_of_minus_log(predictions, true),
            y == y,
        )

    def link(self, predictions: Floats) -> Floats:
        """Return the logarithms of the rates."""
        return np.log(np.maximum(predictions, EDGE))

    def unlink(self, eta: Floats) -> Floats:
        """Return the rates of these logarithms."""
        return np.exp(np.clip(eta, -30, 30))

    def observed(self, y: Numbers) -> Floats:
        """Return the counts (n, 1)."""
        return y.astype(np.float64)[:, None]
