"""How local baselines are fitted: the interface of their models, one model for each column of a
target, a classifier on person-periods, and weights of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from fedlit.errors import expect
from fedlit.outcomes import OneEach
from fedlit.outcomes.models import Fitted
from fedlit.outcomes.periods import OnPeriods, bounds_of, in_periods
from fedlit.types import Floats, Numbers


class Estimator(Fitted, Protocol):
    """A model with scikit-learn's interface, which can be fitted."""

    @property
    def fit(self) -> Callable[..., Estimator]:
        """Fits the model to rows (n, d) and their targets, and returns it."""


class ScikitModel(Estimator, Protocol):
    """A model of a scikit-learn class, or of one with the same interface."""

    def set_params(self, **settings: object) -> ScikitModel:
        """Set keyword arguments, and return the model."""


class FitEach(OneEach):
    """One model for each column of a target, fitted to the rows that have a value in that column.

    Scikit-learn models raise an error for a column with only one value, or none. In this case that
    value is predicted, or 0 and 1 with equal probability if there is none.

    Args:
        model: the untrained model; each column gets a copy.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([[0, 0], [1, 0], [np.nan, 0]])
        >>> FitEach(LogisticRegression()).fit(x, y).predict_proba(x).round(1)
        array([[0.4, 0. ],
               [0.6, 0. ],
               [0.7, 0. ]])
    """

    def __init__(self, model: Estimator) -> None:
        super().__init__([])
        self.model = model

    def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> FitEach:
        """Fit to rows.

        Args:
            x: (n, d) float.
            y: (n,) or (n, columns) float, NaN if the value is unknown.
            sample_weight: (n,) how much each row counts; None if all count alike.
        """
        self.fitted = [self._fit(x, column, sample_weight) for column in y.reshape(len(y), -1).T]
        return self

    def _fit(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None) -> Estimator:
        from sklearn.base import clone, is_regressor
        from sklearn.dummy import DummyClassifier, DummyRegressor

        observed = ~np.isnan(y)
        if observed.any():
            rows = x[observed]
            target = y[observed]
        else:
            rows = x[:2]
            target = np.array([0.0, 1.0])[: len(x)]
        model: Estimator
        if observed.any() and target.min() < target.max():
            model = clone(self.model)
        elif is_regressor(self.model):
            model = DummyRegressor()
        else:
            model = DummyClassifier()
        if weight is None:
            return model.fit(rows, target)
        return fit_weighted(model, rows, target, weight[observed])


class FitPeriods(OnPeriods):
    """A classifier of the cases "does the event happen in this period?" of a client's rows (Craig,
    Zhong and Tibshirani 2021).

    Args:
        model: the untrained classifier.
        ends: (periods,) the ends of periods.
        indicators: see :class:`fedlit.outcomes.periods.OnPeriods`.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> y = np.array([[1.0, 1.0, -np.inf], [2.0, 0.0, -np.inf], [3.0, 1.0, -np.inf]])
        >>> model = FitPeriods(LogisticRegression(), [1.0, 3.0], indicators=True).fit(np.zeros((3, 1)), y)
        >>> model.survival_at(np.zeros((1, 1)), np.array([0.0, 3.0])).round(2)
        array([[1.  , 0.36]])
    """

    def __init__(self, model: Estimator, ends: Sequence[float], *, indicators: bool) -> None:
        super().__init__(model, np.asarray(ends, np.float64), indicators=indicators)
        self._untrained = model

    def fit(self, x: Floats, y: Numbers, sample_weight: Floats | None = None) -> FitPeriods:
        """Fit to rows.

        Args:
            x: (n, d) float.
            y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
            sample_weight: (n,) how much each row counts; None if all count alike.
        """
        from sklearn.dummy import DummyClassifier

        at_risk, happens = in_periods(y, *map(np.asarray, bounds_of(self.ends.tolist())))
        row, period = np.nonzero(at_risk)
        inputs = self.inputs_of(len(self.ends), indicators=self.indicators)
        cases = np.hstack([x[row], inputs[period]]).astype(x.dtype)
        label = happens[row, period].astype(np.int64)
        if not len(label):  # Nobody was observed for half a period.
            cases = np.zeros((1, cases.shape[1]), x.dtype)
            label = np.zeros(1, np.int64)
            sample_weight = None
        model = self._untrained
        if label.all() or not label.any():
            model = DummyClassifier(strategy="prior")
        if sample_weight is None:
            self.model = model.fit(cases, label)
        else:
            self.model = fit_weighted(model, cases, label, sample_weight[row])
        return self


def fit_weighted(model: Estimator, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Estimator:
    """Fit a model, and each step before it that takes weights of rows, to weighted rows.

    Args:
        model: an untrained model, or a pipeline.
        x: (n, d) float.
        y: (n,) or wider.
        weight: (n,) how much each row counts.

    Raises:
        ConfigError: the model does not take weights of rows.
    """
    from sklearn.utils.validation import has_fit_parameter

    steps = getattr(model, "steps", None)
    if steps is None:
        weighing = has_fit_parameter(model, "sample_weight")
        last = model
        weights = {"sample_weight": weight}
    else:
        names = [name for name, step in steps if has_fit_parameter(step, "sample_weight")]
        last_name, last = steps[-1]
        weighing = last_name in names
        weights = {f"{name}__sample_weight": weight for name in names}
    expect(weighing, "data.source.weight", "models that weigh rows", type(last).__name__)
    return model.fit(x, y, **weights)
