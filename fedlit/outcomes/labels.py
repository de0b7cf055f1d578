"""The outcomes of tasks that predict labels: one of several, several of them, or one for each
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import ConfigError, RunError
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
from fedlit.types import Bools, Floats, Label, Numbers, PredictionArray, State

Precision = TypeVar("Precision", np.float32, np.float64)


@dataclass(frozen=True)
class OneLabel(Outcome):
    """One of several labels, which exclude each other.

    Attributes:
        classes: the labels.

    Example:
        >>> outcome = OneLabel(("ill", "unsure", "well"))
        >>> mine = outcome.narrow([0, 2], np.array([[0.2, 0.6, 0.2], [0.1, 0.5, 0.4]], np.float32))
        >>> mine.tolist()[0], outcome.at([0, 2]).columns(mine)["predicted"]
        ([0.5, 0.5], ['ill', 'well'])
    """

    classes: tuple[Label, ...] = ()

    one_label: ClassVar[bool] = True
    estimator: ClassVar[EstimatorKind | None] = "Classifier"
    family: ClassVar[Family | None] = "logistic"

    @classmethod
    def united(cls, states: Sequence[State]) -> State:
        """Return the task with the classes that any of the tasks has: those of the first with most
        classes in their order, or all of them sorted as text.

        Example:
            >>> OneLabel.united([{"name": "classification", "classes": [*own]} for own in ("ac", "abc")])["classes"]
            ['a', 'b', 'c']
        """
        longest = max(states, key=lambda state: len(state["classes"]))
        classes = list(longest["classes"])
        union = set().union(*(state["classes"] for state in states))
        if union > {*classes}:
            classes = sorted(union, key=str)
        return {"name": states[0]["name"], "classes": classes}

    @property
    def width(self) -> int:
        """A probability for each class."""
        return len(self.classes) or 1

    def at(self, classes: Sequence[int]) -> OneLabel:
        """Return the outcome with only some of the classes, chosen by their positions."""
        return OneLabel(tuple(self.classes[position] for position in classes))

    def narrow(self, classes: Sequence[int], predictions: PredictionArray) -> PredictionArray:
        """Return renormalised probabilities of some classes; they are equal if none of these
        classes has any.
        """
        return renormalised(predictions[:, list(classes)])

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return ``probability_<label>`` for each class, and ``predicted``, the first class of
        largest probability.
        """
        columns: Columns = {
            f"probability_{label}": predictions[:, c] for c, label in enumerate(self.classes)
        }
        columns["predicted"] = [
            self.classes[position] for position in predictions.argmax(1).tolist()
        ]
        return columns

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Return probabilities (n, classes) float32, 0 for a class that the model has not seen."""
        probabilities = np.zeros((len(x), self.width), np.float32)
        seen = getattr(model, "classes_", None)
        fitted = model.predict_proba(x)
        positions = range(fitted.shape[1]) if seen is None else np.asarray(seen, np.int64)
        probabilities[:, positions] = fitted
        return probabilities

    def row_loss(self, y: Numbers, log: Logarithm = np.log) -> RowLoss:
        """Return minus the logarithm of the probability of a row's class."""
        labelled = y >= 0
        rows = np.arange(len(y))
        position = np.maximum(y, 0).astype(np.int64)

        def losses_of(predictions: Floats) -> Floats:
            losses: Floats = minus_log(predictions[rows, position], log) * labelled
            return losses

        def slopes_of(predictions: Floats) -> Floats:
            slopes = np.zeros_like(predictions)
            slopes[rows, position] = slope_of_minus_log(
                predictions[rows, position], labelled.astype(float)
            )
            return slopes

        return RowLoss(losses_of, slopes_of, labelled)

    def link(self, predictions: Floats) -> Floats:
        """Return the log odds of the positive one of two classes, or of each of several."""
        return log_odds(predictions[:, 1:] if predictions.shape[1] == 2 else predictions)

    def unlink(self, eta: Floats) -> Floats:
        """Return probabilities (n, classes), of sum 1."""
        probabilities = from_log_odds(eta)
        if eta.shape[1] == 1:
            return np.hstack([1 - probabilities, probabilities])
        whole: Floats = probabilities / probabilities.sum(1, keepdims=True)
        return whole

    def observed(self, y: Numbers) -> Floats:
        """Return whether a row has the positive one of two classes, or each of several."""
        first = 1 if len(self.classes) == 2 else 0
        observed: Floats = (y[:, None] == np.arange(first, len(self.classes))).astype(np.float64)
        observed[y < 0] = np.nan
        return observed


@dataclass(frozen=True)
class SeveralLabels(Outcome):
    """Several yes/no labels, independent of each other.

    Attributes:
        classes: the names of the labels.
        negatives: the value of each label that means no.
        positives: the value of each label that means yes.
    """

    classes: tuple[Label, ...] = ()
    negatives: tuple[Label, ...] = ()
    positives: tuple[Label, ...] = ()

    several_columns: ClassVar[bool] = True
    partial: ClassVar[bool] = True
    estimator: ClassVar[EstimatorKind | None] = "Classifier"
    one_model_each: ClassVar[bool] = True
    family: ClassVar[Family | None] = "logistic"

    @classmethod
    def united(cls, states: Sequence[State]) -> State:
        """Return the first task with most labels.

        Raises:
            RunError: another task has a label that it does not have.
        """
        longest = max(states, key=lambda state: len(state["classes"]))
        union = set().union(*(state["classes"] for state in states))
        missing = union - {*longest["classes"]}
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            raise RunError(
                f"mixture: expected parts that predict the same labels, found {names} in one only; "
                "let all parts predict the same target"
            )
        return dict(longest)

    def check(self) -> None:
        """Refuse labels that are not distinct, or lack one of their two values."""
        super().check()
        if not len(self.negatives) == len(self.positives) == len(self.classes):
            raise ValueError("expected two values of each label")

    @property
    def width(self) -> int:
        """A probability for each label."""
        return len(self.classes)

    def at(self, classes: Sequence[int]) -> SeveralLabels:
        """Return the outcome with only some of the labels, chosen by their positions."""
        labels = tuple(self.classes[position] for position in classes)
        if not self.negatives:
            return SeveralLabels(labels)
        negatives = tuple(self.negatives[position] for position in classes)
        positives = tuple(self.positives[position] for position in classes)
        return SeveralLabels(labels, negatives, positives)

    def narrow(self, classes: Sequence[int], predictions: PredictionArray) -> PredictionArray:
        """Return the probabilities of some labels."""
        return predictions[:, list(classes)]

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return ``probability_<label>`` for each label, and ``predicted_<label>`` in that label's
        values.
        """
        columns: Columns = {
            f"probability_{label}": predictions[:, c] for c, label in enumerate(self.classes)
        }
        values = zip(self.classes, self.negatives, self.positives, strict=True)
        for c, (label, no, yes) in enumerate(values):
            positive = (predictions[:, c] > 0.5).tolist()
            columns[f"predicted_{label}"] = [yes if row else no for row in positive]
        return columns

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Return probabilities (n, labels) float32 of one model for all labels, or of one for
        each.
        """
        probabilities = np.zeros((len(x), self.width), np.float32)
        fitted = model.predict_proba(x)
        if isinstance(fitted, list):  # one (n, 2) for each label
            fitted = np.stack([label[:, 1] for label in fitted], 1)
        probabilities[:, range(fitted.shape[1])] = fitted
        return probabilities

    def row_loss(self, y: Numbers, log: Logarithm = np.log) -> RowLoss:
        """Return the mean over a row's known labels of minus the logarithm of the probability of
        what is true.
        """
        is_known: Bools = ~np.isnan(y)
        counts = np.maximum(is_known.sum(1, keepdims=True), 1)
        shares = (is_known / counts).astype(np.float32)  # in the precision of the target
        is_true = y == 1

        def probabilities_of_truth(predictions: Floats) -> Floats:
            return np.where(is_true, predictions, 1 - predictions)

        def losses_of(predictions: Floats) -> Floats:
            losses: Floats = minus_log(probabilities_of_truth(predictions), log) * shares
            row_losses: Floats = losses.sum(1)
            return row_losses

        def slopes_of(predictions: Floats) -> Floats:
            slopes = slope_of_minus_log(probabilities_of_truth(predictions), shares)
            return np.where(is_true, slopes, -slopes)

        return RowLoss(losses_of, slopes_of, is_known.sum(1) > 0)

    def link(self, predictions: Floats) -> Floats:
        """Return the log odds of each label."""
        return log_odds(predictions)

    def unlink(self, eta: Floats) -> Floats:
        """Return the probability of each label."""
        return from_log_odds(eta)

    def observed(self, y: Numbers) -> Floats:
        """Return 1 if a label is true and 0 if it is false."""
        return y.astype(np.float64)


@dataclass(frozen=True)
class LabelSequence(Outcome):
    """One of several labels for each position of a sequence.

    Attributes:
        classes: the labels, one character each.
        length: the number of positions.
    """

    classes: tuple[Label, ...] = ()
    length: int = 1

    sequence: ClassVar[bool] = True
    unit: ClassVar[str] = "position"

    def check(self) -> None:
        """Refuse labels that are not distinct, and an invalid number of positions."""
        super().check()
        if type(self.length) is not int or self.length < 1:
            raise ValueError("expected a number of positions")

    @property
    def width(self) -> int:
        """A probability for each label at each position; those of a position are adjacent."""
        return self.length * len(self.classes)

    def at(self, classes: Sequence[int]) -> LabelSequence:
        """Return the outcome with only some of the labels, chosen by their positions."""
        return LabelSequence(tuple(self.classes[position] for position in classes), self.length)

    def narrow(self, classes: Sequence[int], predictions: PredictionArray) -> PredictionArray:
        """Return renormalised probabilities of some labels; they are equal if none of these labels
        has any.
        """
        cells = predictions.reshape(len(predictions) * self.length, len(self.classes))
        return renormalised(cells[:, list(classes)]).reshape(
            len(predictions), self.length * len(classes)
        )

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return texts: a number for each position in ``probability_<label>``, a label for each in
        ``predicted``.
        """
        cells = predictions.reshape(len(predictions), self.length, len(self.classes))
        columns: Columns = {}
        for c, label in enumerate(self.classes):
            columns[f"probability_{label}"] = [" ".join(row) for row in cells[:, :, c].astype(str)]
        letters = np.array(self.classes)[cells.argmax(2)]
        columns["predicted"] = ["".join(row) for row in letters.tolist()]
        return columns

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Refuse the model.

        Raises:
            ConfigError: always, because no scikit-learn model labels positions.
        """
        raise ConfigError(
            f"task: sequence_labelling: expected a network, found {type(model).__name__}; local "
            "baselines of scikit-learn label no positions. Compare with the same network without "
            "exchange (exchange.federated: [])"
        )


def renormalised(probabilities: NDArray[Precision]) -> NDArray[Precision]:
    """Return probabilities (n, classes) scaled to sum to 1; they are equal in a row without any.

    Example:
        >>> renormalised(np.array([[0.2, 0.2], [0.0, 0.0]], np.float32)).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    total = probabilities.sum(1, keepdims=True)
    equal = np.asarray(1 / probabilities.shape[1], probabilities.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = probabilities / total
    return np.where(total < np.finfo(probabilities.dtype).tiny, equal, scaled)


def log_odds(probabilities: Floats) -> Floats:
    """Return the log odds of probabilities, within those of :data:`fedlit.outcomes.base.EDGE` and 1
    less it.
    """
    inside = np.clip(probabilities, EDGE, 1 - EDGE)
    return np.log(inside / (1 - inside))


def from_log_odds(eta: Floats) -> Floats:
    """Return the probabilities of log odds."""
    scaled: Floats = np.exp(np.clip(eta, -30, 30))
    return scaled / (1 + scaled)
