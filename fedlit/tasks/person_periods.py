"""Local baselines of the time to an event: classifiers that are fitted to person-periods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedlit.outcomes.periods import OnPeriods, bounds_of, in_periods
from fedlit.types import Floats, Numbers

if TYPE_CHECKING:
    from fedlit.tasks.go_alone import Estimator


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
        array([[1.  , 0.31]])
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

        from fedlit.tasks.go_alone import fit_weighted

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
