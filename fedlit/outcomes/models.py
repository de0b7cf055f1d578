"""Several fitted models that predict as one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class OneEach:
    """One model for each label, or a single model for a number.

    Args:
        fitted: the fitted models, by label; each has ``predict``, or ``predict_proba`` and
            ``classes_``.
    """

    classes_: None = None

    def __init__(self, fitted: list[Any]) -> None:
        self.fitted = fitted

    def predict(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers (n,) that the single model predicts."""
        return np.asarray(self.fitted[0].predict(x))

    def predict_proba(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the probability of 1 for each label, (n, labels)."""
        return np.stack(
            [model.predict_proba(x) @ (model.classes_ == 1) for model in self.fitted], 1
        )
