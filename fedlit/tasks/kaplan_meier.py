"""Kaplan–Meier's estimate as a local baseline: one curve for all rows of a client."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from fedlit.outcomes.censored import kaplan_meier
from fedlit.types import Floats, Numbers


class KaplanMeier(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The share of a client's training rows without the event, whatever their columns are.

    Example:
        >>> y = np.array([[1.0, 1.0, -np.inf], [2.0, 0.0, -np.inf], [3.0, 1.0, -np.inf]])
        >>> KaplanMeier().fit(np.zeros((3, 1)), y).survival_at(np.zeros((2, 1)), np.array([2.5])).round(3)
        array([[0.667],
               [0.667]])
    """

    def fit(self, x: Floats, y: Numbers, sample_weight: Floats | None = None) -> KaplanMeier:
        """Estimate the curve.

        Args:
            x: (n, d), which are not used.
            y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
            sample_weight: (n,) how much each row counts; once if None.
        """
        self.curve_ = kaplan_meier(y, sample_weight)
        return self

    def survival_at(self, x: Floats, times: Floats) -> Floats:
        """Return the probability of no event up to each time, (n, times)."""
        return np.tile(self.curve_.at(times), (len(x), 1))
