"""The loss of each row as a function of its predictions, and scores of predictions by their names."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.weights import Array, checked

if TYPE_CHECKING:
    from fedlit.tasks import Score, Task

FLOOR = 1e-6
"""Below this probability the log loss goes on as a straight line: it stays convex, and one row costs at most 14.8."""


@dataclass(frozen=True)
class RowLoss:
    """The loss of each row, which is convex in its predictions.

    Attributes:
        each: maps predictions (n, width) float64 to losses (n,), which are 0 for a row with an unknown target.
        known: (n,) bool, which rows have a known target.
        nats: whether the loss is a negative log-likelihood; otherwise it is a squared error in some unit.
    """

    each: Callable[[Tensor], Tensor]
    known: np.ndarray
    nats: bool = True

    def __call__(self, predictions: np.ndarray) -> Array:
        """Return the losses (n,) float64 of predictions (n, width)."""
        losses: Array = self.each(torch.tensor(np.asarray(predictions, float))).numpy()
        return losses

    def terms(self, predictions: Array) -> tuple[float, Array]:
        """Return the sum over rows, and its gradient (n, width)."""
        at = torch.from_numpy(predictions).requires_grad_()
        total = self.each(at).sum()
        (slopes,) = torch.autograd.grad(total, at)
        return float(total.detach()), slopes.numpy()

    def mean(self, predictions: np.ndarray) -> float:
        """Return the mean over the rows with a known target; NaN if there are none."""
        count = int(self.known.sum())
        return float(self(predictions).sum() / count) if count else math.nan


def _minus_log(probability: Tensor) -> Tensor:
    inside = probability.clamp_min(FLOOR)
    return torch.where(probability < FLOOR, 1 - probability / FLOOR - math.log(FLOOR), -inside.log())


def row_loss(task: Task, y: Tensor) -> RowLoss:
    """Return the loss by which a task's predictions are mixed: minus the logarithm of the probability of a row's class,
    or the mean of this over its known labels; the squared error in the user's unit; half the Poisson deviance of a
    count.

    Args:
        task: the task of the client.
        y: the target in the format of the task's ``encode``.

    Raises:
        ConfigError: the task is of another kind.

    Example:
        >>> from fedlit.tasks import Regression
        >>> row_loss(Regression(mean=10.0, scale=2.0), torch.tensor([0.0, 1.0]))(np.array([[10.0], [10.0]]))
        array([0., 4.])
    """
    y = y.cpu()
    known = task.known(y).numpy()
    if task.name == "classification":
        place, counts = y.clamp_min(0).long()[:, None], torch.from_numpy(known)
        return RowLoss(lambda found: _minus_log(found.gather(1, place))[:, 0] * counts, known)
    if task.name == "multi_label":
        cells = y == y
        share = cells / cells.sum(1, keepdim=True).clamp_min(1)
        return RowLoss(lambda found: (_minus_log(torch.where(y == 1, found, 1 - found)) * share).sum(1), known)
    if task.name not in ("regression", "counts"):
        raise ConfigError(
            f"mixture: expected one of the tasks classification, multi_label, regression, counts, found {task.name!r}; "
            "take weights: equal"
        )
    true = task.true(y)[:, None]  # type: ignore[attr-defined]  # tasks of a number have it
    if task.name == "regression":
        return RowLoss(lambda found: ((found - true) ** 2)[:, 0], known, nats=False)
    least = torch.where(true > 0, true * true.clamp_min(1e-300).log() - true, 0.0)
    return RowLoss(lambda found: (found + true * _minus_log(found) + least)[:, 0], known)


@dataclass(frozen=True)
class Judge:
    """A score of predictions, for numpy arrays.

    Attributes:
        task: the task of the client.
        y: the target in the format of the task's ``encode``.
        metric: the name of one of the task's scores, ``loss`` included.

    Example:
        >>> from fedlit.tasks import Classification
        >>> judge = Judge(Classification((0, 1)), torch.tensor([0, 1, 1]), "auroc")
        >>> judge(np.array([[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]])), judge.score.higher_is_better
        (0.5, True)
    """

    task: Task
    y: Tensor
    metric: str

    @property
    def score(self) -> Score:
        """The score that it computes.

        Raises:
            ConfigError: the task has no such score, or computes it on test rows only.
        """
        known = {own.name: own for own in self.task.scores if not (own.context or own.test_only)}
        if self.metric not in known:
            raise ConfigError(f"expected a score of {self.task.name} ({', '.join(known)}), found {self.metric!r}")
        return known[self.metric]

    def __call__(self, predictions: np.ndarray) -> float:
        """Return the score of all rows' predictions (n, width), in the format of the task; NaN if it is undefined."""
        return self.by_counts(predictions)(None)

    def by_counts(self, predictions: np.ndarray) -> Callable[[np.ndarray | None], float]:
        """Return the score as a function of how often each row counts: (n,) whole numbers, or None for once."""
        own = checked("predictions", predictions)
        if self.score.name == "loss":
            loss = row_loss(self.task, self.y)
            each, known = loss(own), loss.known

            def mean(counts: np.ndarray | None) -> float:
                times = known if counts is None else known * counts
                return float(times @ each / times.sum()) if times.sum() else math.nan

            return mean
        scorer = self.task.scorer(torch.tensor(own), self.y)
        return lambda counts: float(scorer(None if counts is None else torch.from_numpy(counts))[self.metric])
