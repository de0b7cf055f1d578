"""A trained client as an estimator of scikit-learn, which its displays and inspection tools
take.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags

from fedlit.errors import ConfigError
from fedlit.score.scorer import Scorer
from fedlit.types import Floats, Objects, SingleFloats

Rows = pd.DataFrame | np.ndarray


class Trained(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A trained client. It is fitted already, and stays so.

    Args:
        scorer: the scorer of the client.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    @property
    def feature_names_in_(self) -> Objects:
        """The names of the columns that rows must have."""
        return self.scorer.feature_names_in_

    @property
    def n_features_in_(self) -> int:
        """The number of columns that rows must have."""
        return self.scorer.n_features_in_

    def fit(self, X: object, y: object = None) -> NoReturn:
        """Refuse to train.

        Raises:
            ConfigError: always, because one client's rows cannot repeat the training of a
                federation.
        """
        raise ConfigError(
            f"client {self.scorer.client!r}: expected a tool that takes an estimator as it is, "
            "found one that fits it again, which needs the whole federation; give it "
            "sklearn.frozen.FrozenEstimator(estimator)"
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _frame(self, rows: Any) -> Any:
        """Return rows as a frame. An array has the columns :attr:`feature_names_in_`, in their
        order.
        """
        if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == self.n_features_in_:
            return pd.DataFrame(rows, columns=self.feature_names_in_)
        return rows


class TrainedClassifier(ClassifierMixin, Trained):  # type: ignore[misc]
    """A client that predicts one of several labels.

    As scikit-learn requires, classes are sorted. The positive one of two may therefore come first,
    so name it where that matters: ``pos_label``.

    Example:
        >>> from fedlit.data.encoder import TableEncoder
        >>> from fedlit.data.sources import Bundled
        >>> from fedlit.tasks import task_state
        >>> (table,) = Bundled(clients=["wine"]).tables(seed=0)
        >>> encoder = TableEncoder("wine").fit(table)
        >>> scorer = Scorer("wine", encoder, lambda x: np.full((len(x), 3), 1 / 3), task_state(encoder.task))
        >>> estimator_of(scorer).predict(table.features.head(2)).tolist()
        ['class_0', 'class_0']
    """

    @property
    def classes_(self) -> np.ndarray:
        """The labels, sorted."""
        return np.sort(self.scorer.classes_)

    def predict(self, X: Rows) -> np.ndarray:
        """Return the most probable label of each row (n,), as :meth:`Scorer.predict` does."""
        probabilities = self.scorer.predict_proba(self._frame(X))
        labels: np.ndarray = self.scorer.classes_[probabilities.argmax(1)]
        return labels

    def predict_proba(self, X: Rows) -> SingleFloats:
        """Return the probabilities (n, classes), in the order of :attr:`classes_`."""
        order = np.argsort(self.scorer.classes_)
        return self.scorer.predict_proba(self._frame(X))[:, order]


class TrainedRegressor(RegressorMixin, Trained):  # type: ignore[misc]
    """A client that predicts a number, or the mean of a count."""

    def predict(self, X: Rows) -> Floats:
        """Return the predicted number of each row (n,), in the user's unit."""
        predicted = self.scorer.predict(self._frame(X), keys=[])["predicted"]
        return predicted.to_numpy(np.float64)


def estimator_of(scorer: Scorer) -> Trained:
    """Return a scorer as an estimator.

    Raises:
        ConfigError: the client predicts several labels for each row, which scikit-learn's displays
            do not show.
    """
    outcome = scorer.outcome
    if outcome.one_label:
        return TrainedClassifier(scorer)
    if outcome.number and not outcome.several_columns:
        return TrainedRegressor(scorer)
    raise ConfigError(
        f"client {scorer.client!r}: expected a client that predicts one label or one number, as "
        f"scikit-learn's displays show, found the task {scorer.state['name']!r}; use predict_proba"
    )
