"""LightGBM as a local baseline: categories as such, split points drawn as extremely randomised trees draw them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fedlit.errors import ConfigError

__all__ = ["Boosted", "boosted"]


class Boosted(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A model of LightGBM that is told at its fitting which columns are categories.

    Args:
        model: untrained.
        categorical: positions of the columns that hold category codes; −1, missing or unseen, is a missing value.
    """

    def __init__(self, model: Any, categorical: list[int]) -> None:
        self.model, self.categorical = model, categorical

    def fit(self, x: np.ndarray, y: np.ndarray) -> Boosted:
        """Fit to rows (n, d) and targets (n,)."""
        self.model.fit(self._known(x), y, categorical_feature=self.categorical or "auto")
        return self

    @property
    def classes_(self) -> np.ndarray:
        """Of a fitted classifier."""
        return np.asarray(self.model.classes_)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,) float."""
        return np.asarray(self.model.predict(self._known(x)))

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, classes) float."""
        return np.asarray(self.model.predict_proba(self._known(x)))

    def score(self, x: np.ndarray, y: np.ndarray) -> float:
        """Accuracy of a classifier, R² of a regressor."""
        return float(self.model.score(self._known(x), y))

    def _known(self, x: np.ndarray) -> np.ndarray:
        if not self.categorical:
            return x
        x = np.array(x, np.float64)
        codes = x[:, self.categorical]
        x[:, self.categorical] = np.where(codes < 0, np.nan, codes)
        return x


def boosted(kind: str, settings: dict[str, Any], categorical: list[int], seed: int, threads: int) -> Boosted:
    """An untrained model.

    Args:
        kind: ``Classifier`` or ``Regressor``.
        settings: keyword arguments of LightGBM's class.
        categorical: see :class:`Boosted`.
        seed: of its draws.
        threads: how many it may use.

    Raises:
        ConfigError: LightGBM is not installed.
    """
    try:
        import lightgbm
    except ImportError as error:
        raise ConfigError(
            "lightgbm: expected LightGBM to be installed, found it missing; pip install 'fedlit[lightgbm]', or leave "
            "the model out of baselines"
        ) from error
    # LightGBM splits no categories of fewer than a hundred rows unless it is told so
    fixed = {"extra_trees": True, "verbosity": -1, "deterministic": True, "force_row_wise": True,
             "min_data_per_group": 10}  # fmt: skip
    model = getattr(lightgbm, f"LGBM{kind}")(**{**fixed, **settings}, random_state=seed, n_jobs=threads)
    return Boosted(model, categorical)
