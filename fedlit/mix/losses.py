"""The loss of each row as a function of what is predicted, with its slope; and scores of predictions by their name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedlit.errors import ConfigError, DataError
from fedlit.mix.simplex import Array, Terms, checked

if TYPE_CHECKING:
    import torch

    from fedlit.tasks import Score, Task

__all__ = ["FLOOR", "Judge", "RowLoss", "label_loss", "log_loss", "poisson_loss", "row_loss", "squared_loss"]

FLOOR = 1e-6
"""Below this probability the log loss goes on as a straight line: it stays convex, and one row costs at most 14.8."""


@dataclass(frozen=True)
class RowLoss:
    """A loss of each row: a sum over columns of convex functions of the predictions.

    Attributes:
        terms: predictions (n, width) → losses and slopes, each (n, width); 0 of a row whose target is not
            known.
        known: (n,) bool, of which rows the target is known.
        nats: whether it is a negative log-likelihood; else it is a squared error in some unit.
    """

    terms: Terms
    known: np.ndarray
    nats: bool = True

    def __call__(self, predictions: np.ndarray) -> Array:
        """(n,) float64.

        Args:
            predictions: (n, width).
        """
        losses: Array = self.terms(np.asarray(predictions, float))[0].sum(axis=1)
        return losses

    def mean(self, predictions: np.ndarray) -> float:
        """Over the rows whose target is known; NaN without any."""
        count = int(self.known.sum())
        return float(self(predictions).sum() / count) if count else float("nan")


def _minus_log(probability: Array) -> tuple[Array, Array]:
    inside = np.maximum(probability, FLOOR)
    return -np.log(inside) + np.where(probability < FLOOR, 1 - probability / FLOOR, 0.0), -1 / inside


def _yes_no(truth: Array) -> Terms:
    """Of columns that each are the probability of yes; ``truth`` is 1, 0, or NaN where it is not known."""
    known = ~np.isnan(truth)
    sign = np.where(truth == 1, 1.0, -1.0)
    share = known / np.maximum(known.sum(axis=1, keepdims=True), 1)

    def terms(predictions: Array) -> tuple[Array, Array]:
        value, slope = _minus_log(np.where(truth == 1, predictions, 1 - predictions))
        return value * share, slope * sign * share

    return terms


def log_loss(y: np.ndarray, width: int) -> RowLoss:
    """Minus the logarithm of the probability of a row's class.

    Args:
        y: (n,) whole numbers, positions of classes; −1 where the class is none of them.
        width: of the predictions: a column for each class, or 1: the probability of the second of two.

    Example:
        >>> log_loss(np.array([0, 1, -1]), 2)(np.array([[0.5, 0.5], [0.9, 0.1], [0.9, 0.1]])).round(3)
        array([0.693, 2.303, 0.   ])
        >>> log_loss(np.array([0, 1]), 1)(np.array([[0.5], [0.1]])).round(3)
        array([0.693, 2.303])
    """
    y = np.asarray(y)
    known = y >= 0
    if y.max(initial=-1) >= max(width, 2):
        raise DataError(f"classes: expected positions below {max(width, 2)}, found {y.max()}; give the task's classes")
    if width == 1:
        return RowLoss(_yes_no(np.where(known, y, np.nan)[:, None]), known)
    own = np.eye(width)[np.where(known, y, 0)] * known[:, None]

    def terms(predictions: Array) -> tuple[Array, Array]:
        value, slope = _minus_log(predictions)
        return value * own, slope * own

    return RowLoss(terms, known)


def label_loss(y: np.ndarray) -> RowLoss:
    """Mean log loss over a row's known labels, of which each has a probability of its own.

    Args:
        y: (n, labels) float: 1, 0, or NaN where a label is not known.
    """
    truth = np.asarray(y, float)
    return RowLoss(_yes_no(truth), (~np.isnan(truth)).any(axis=1))


def squared_loss(y: np.ndarray) -> RowLoss:
    """Squared error.

    Args:
        y: (n,) float, in the unit of the predictions.
    """
    true = np.asarray(y, float)[:, None]
    return RowLoss(
        lambda found: ((found - true) ** 2, 2 * (found - true)),
        np.ones(len(true), bool),
        nats=False,
    )


def poisson_loss(y: np.ndarray) -> RowLoss:
    """Half of the Poisson deviance: rate − y + y log(y / rate). Rates below 1e-6 count as ``FLOOR`` says.

    Args:
        y: (n,) counts.
    """
    true = np.asarray(y, float)[:, None]
    least = np.where(true > 0, true * np.log(np.maximum(true, 1e-300)) - true, 0.0)

    def terms(rates: Array) -> tuple[Array, Array]:
        value, slope = _minus_log(rates)
        return rates + true * value + least, 1 + true * slope

    return RowLoss(terms, np.ones(len(true), bool))


def row_loss(task: Task, y: torch.Tensor) -> RowLoss:
    """The loss by which a task's predictions are mixed.

    Args:
        task: the client's.
        y: the target, as the task's ``encode`` gives it.

    Raises:
        ConfigError: a task of a kind that is not known here.

    Example:
        >>> import torch
        >>> from fedlit.tasks import Regression
        >>> row_loss(Regression(mean=10.0, scale=2.0), torch.tensor([0.0, 1.0]))(np.array([[10.0], [10.0]]))
        array([0., 4.])
    """
    if task.name == "classification":
        return log_loss(y.cpu().numpy(), len(task.classes))
    if task.name == "multi_label":
        return label_loss(y.cpu().numpy())
    makers = {"regression": squared_loss, "counts": poisson_loss}
    true = getattr(task, "true", None)
    if task.name not in makers or true is None:
        raise ConfigError(
            f"mixture: expected one of the tasks classification, multi_label, regression, counts, found {task.name!r}; "
            "take weights: equal"
        )
    return makers[task.name](true(y).numpy())


@dataclass(frozen=True)
class Judge:
    """One score of predictions, for numpy arrays.

    Attributes:
        task: the client's.
        y: the target, as the task's ``encode`` gives it.
        metric: the name of one of the task's scores, ``loss`` included.

    Example:
        >>> import torch
        >>> from fedlit.tasks import Classification
        >>> judge = Judge(Classification((0, 1)), torch.tensor([0, 1, 1]), "auroc")
        >>> judge(np.array([[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]])), judge.higher_is_better
        (0.5, True)
    """

    task: Task
    y: torch.Tensor
    metric: str

    @property
    def higher_is_better(self) -> bool:
        """Whether more is better."""
        return self._score.higher_is_better

    @property
    def _score(self) -> Score:
        known = {own.name: own for own in self.task.scores if not own.context}
        if self.metric not in known:
            raise ConfigError(f"expected a score of {self.task.name} ({', '.join(known)}), found {self.metric!r}")
        return known[self.metric]

    def __call__(self, predictions: np.ndarray) -> float:
        """The score of all rows; NaN where it is not defined.

        Args:
            predictions: (n, width), as the task's ``predict`` gives them.
        """
        return self.by_counts(predictions)(None)

    def by_counts(self, predictions: np.ndarray) -> Callable[[np.ndarray | None], float]:
        """The score as a function of how often each row counts: (n,) whole numbers, or None for once."""
        own = checked("predictions", predictions)
        if self._score.name == "loss":
            loss = row_loss(self.task, self.y)
            each, known = loss(own), loss.known

            def mean(counts: np.ndarray | None) -> float:
                times = known if counts is None else known * counts
                return float(times @ each / times.sum()) if times.sum() else float("nan")

            return mean
        if self._score.test_only:
            raise ConfigError(f"{self.metric}: it is computed of test rows only; choose by another score")
        import torch  # not needed to mix

        scorer = self.task.scorer(torch.from_numpy(own), self.y)
        return lambda counts: float(scorer(None if counts is None else torch.from_numpy(counts))[self.metric])
