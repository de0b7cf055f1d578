"""Several fitted models that predict as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedlit.types import PredictionArray


class Fitted(Protocol):
    """A fitted model with scikit-learn's interface, which may lack the method for the other kind of
    target: ``predict`` is for numbers, ``predict_proba`` for labels.
    """

    @property
    def classes_(self) -> np.ndarray | None:
        """The positions of the classes to which the columns of probabilities belong."""

    def predict(self, x: PredictionArray, /) -> np.ndarray:
        """Return the predicted numbers (n,) of rows (n, d)."""

    def predict_proba(self, x: PredictionArray, /) -> np.ndarray:
        """Return the probabilities of the classes (n, classes) for rows (n, d)."""


class OneEach:
    """One model for each label, or a single model for a number.

    Args:
        fitted: the fitted models, by label; each has ``predict``, or ``predict_proba`` and
            ``classes_``.
    """

    classes_: None = None

    def __init__(self, fitted: Sequence[Fitted]) -> None:
        self.fitted = fitted

    def predict(self, x: PredictionArray) -> np.ndarray:
        """Return the numbers (n,) that the single model predicts."""
        return np.asarray(self.fitted[0].predict(x))

    def predict_proba(self, x: PredictionArray) -> np.ndarray:
        """Return the probability of 1 for each label, (n, labels)."""
        return np.stack(
            [model.predict_proba(x) @ (model.classes_ == 1) for model in self.fitted], 1
        )
