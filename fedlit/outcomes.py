"""What predictions mean. It needs numpy only, because a client can score rows without PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import ConfigError

SEQUENCE = "sequence_labelling"
_LABELS = "multi_label"
_NAMES = ("classification", "regression", "counts", _LABELS, SEQUENCE)
_PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Outcome:
    """The part of a task that is needed to interpret predictions, which are arrays (rows,
    :attr:`width`).

    Attributes:
        name: the name of the task.
        classes: the labels; empty if a number is predicted.
        negatives: with several labels, the value of each that means no.
        positives: with several labels, the value of each that means yes.
        length: the number of positions of a sequence; 1 for any other task.
        mean: the mean of the number to predict, by which targets were standardised for networks and
            scikit-learn models.
        scale: the scale of the number to predict, likewise.

    Example:
        >>> outcome = Outcome("classification", ("ill", "unsure", "well"))
        >>> own = outcome.narrow([0, 2], np.array([[0.2, 0.6, 0.2], [0.1, 0.5, 0.4]], np.float32))
        >>> own.tolist()[0], outcome.at([0, 2]).columns(own)["predicted"]
        ([0.5, 0.5], ['ill', 'well'])
    """

    name: str
    classes: tuple[Any, ...] = ()
    negatives: tuple[Any, ...] = ()
    positives: tuple[Any, ...] = ()
    length: int = 1
    mean: float = 0.0
    scale: float = 1.0

    def check(self) -> None:
        """Refuse invalid values, which a file from an unknown source may contain.

        Raises:
            ValueError: labels are not distinct, or numbers are invalid.
        """
        if self.name not in _NAMES:
            raise ValueError(f"expected one of the tasks {', '.join(_NAMES)}, found {self.name!r}")
        texts = {str(label) for label in self.classes if type(label) in _PLAIN}
        if len(texts) < len(self.classes):
            raise ValueError("expected labels that differ as text")
        if self.name == _LABELS and not len(self.negatives) == len(self.positives) == len(
            self.classes
        ):
            raise ValueError("expected two values of each label")
        if type(self.length) is not int or self.length < 1:
            raise ValueError("expected a number of positions")
        if (
            not all(type(own) in (int, float) for own in (self.mean, self.scale))
            or not 0 < self.scale < math.inf
        ):
            raise ValueError("expected numbers as mean and scale")

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Outcome:
        """Build an outcome from a task's state (see :func:`fedlit.tasks.task_state`)."""
        own: dict[str, Any] = {}
        for key in (field.name for field in fields(cls) if field.name in state):
            own[key] = tuple(state[key]) if isinstance(state[key], list) else state[key]
        return cls(**own)

    @property
    def width(self) -> int:
        """The number of columns of predictions: a probability for each class (at each position), or
        one number.
        """
        return self.length * len(self.classes) or 1

    @property
    def one_label(self) -> bool:
        """Whether one of several labels is predicted for each row."""
        return self.name == "classification"

    def at(self, classes: Sequence[int]) -> Outcome:
        """Return the outcome with only some of the classes, chosen by their positions."""
        parts: dict[str, Any] = {
            key: tuple(getattr(self, key)[place] for place in classes)
            for key in ("classes", "negatives", "positives")
            if getattr(self, key)
        }
        return replace(self, **parts) if self.classes else self

    def narrow(self, classes: Sequence[int], predictions: NDArray[Any]) -> NDArray[Any]:
        """Return predictions for only some of the classes. If they exclude each other, their
        probabilities are renormalised, and are equal if none of these classes has any.
        """
        if not self.classes:
            return predictions
        own = predictions.reshape(len(predictions) * self.length, len(self.classes))[
            :, list(classes)
        ]
        if self.name != _LABELS:
            total = own.sum(1, keepdims=True)
            equal = np.asarray(1 / len(classes), own.dtype)
            with np.errstate(divide="ignore", invalid="ignore"):
                own = np.where(total < np.finfo(own.dtype).tiny, equal, own / total)
        return own.reshape(len(predictions), self.length * len(classes))

    def of_model(self, model: Any, x: NDArray[Any]) -> NDArray[Any]:
        """Return the predictions of a fitted scikit-learn model for rows (n, d): float32
        probabilities (0 for a class that it has not seen), or a float64 number in the user's units.
        A rate is at least a thousandth of the mean, because trees predict 0 for a leaf whose rows
        have no count, and a count there would have an infinite deviance.

        Raises:
            ConfigError: the task is a sequence, which no scikit-learn model labels.
        """
        if self.name == SEQUENCE:
            raise ConfigError(
                f"task: {self.name}: expected a network, found {type(model).__name__}; local "
                "baselines of scikit-learn label no positions. Compare with the same network "
                "without exchange (exchange.federated: [])"
            )
        if not self.classes:
            number = np.asarray(model.predict(x), np.float64)[:, None]
            return (
                np.maximum(number, self.mean / 1000)
                if self.name == "counts"
                else number * self.scale + self.mean
            )
        given = model.predict_proba(x)
        if isinstance(given, list):  # of several labels, one (n, 2) each
            given = np.stack([own[:, 1] for own in given], 1)
        seen = getattr(model, "classes_", None) if self.name == "classification" else None
        made = np.zeros((len(x), self.width), np.float32)
        made[:, range(given.shape[1]) if seen is None else np.asarray(seen, np.int64)] = given
        return made

    def columns(self, predictions: NDArray[Any]) -> dict[str, Any]:
        """Return predictions as columns for the user: ``probability_<label>`` for each class and
        ``predicted``; with several labels, ``predicted_<label>`` for each, in that label's values;
        for a sequence, texts with a number or a label for each position; a number is rounded to a
        billionth of its scale.
        """
        if not self.classes:
            number = predictions[:, 0].astype(np.float64)
            digits = 9 - math.ceil(math.log10(self.scale))
            return {
                "predicted": np.round(number, digits) + 0.0 if self.name == "regression" else number
            }
        if self.name == SEQUENCE:
            each = predictions.reshape(len(predictions), self.length, len(self.classes))
            texts = {
                f"probability_{label}": [" ".join(own) for own in each[:, :, place].astype(str)]
                for place, label in enumerate(self.classes)
            }
            letters = np.array(self.classes)[each.argmax(2)]
            return {**texts, "predicted": ["".join(own) for own in letters.tolist()]}
        made: dict[str, Any] = {
            f"probability_{label}": predictions[:, c] for c, label in enumerate(self.classes)
        }
        if self.name != _LABELS:
            return {
                **made,
                "predicted": [self.classes[place] for place in predictions.argmax(1).tolist()],
            }
        pairs = zip(self.classes, self.negatives, self.positives, strict=True)
        for c, (label, no, yes) in enumerate(pairs):
            made[f"predicted_{label}"] = [
                yes if own else no for own in (predictions[:, c] > 0.5).tolist()
            ]
        return made


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
