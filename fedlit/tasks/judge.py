"""The loss of each row of predictions, and scores of predictions on plain arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.outcomes import RowLoss
from fedlit.tasks.base import Task
from fedlit.tasks.scores import LOSS, Score
from fedlit.types import Floats
from fedlit.weights import checked


def row_loss(task: Task, y: Tensor) -> RowLoss:
    """Return the loss by which a task's predictions are mixed, see
    :meth:`fedlit.outcomes.base.Outcome.row_loss`.

    Logarithms and sums are those of PyTorch.

    Args:
        task: the task of the client.
        y: the target in the format of the task's ``encode``.

    Raises:
        ConfigError: the task has no loss that is convex in predictions.

    Example:
        >>> from fedlit.tasks import Regression
        >>> row_loss(Regression(mean=10.0, scale=2.0), torch.tensor([0.0, 1.0]))(np.array([[10.0], [10.0]]))
        array([0., 4.])
    """
    loss = task.outcome.row_loss(y.cpu().numpy(), _log)
    if loss is None:
        raise ConfigError(
            "mixture: expected a task whose predictions have a loss for each row, found "
            f"{task.name}; take weights: equal"
        )
    return replace(loss, total=_total)


def _log(numbers: Floats) -> Floats:
    logarithms: Floats = torch.from_numpy(numbers).log().numpy()
    return logarithms


def _total(losses: Floats) -> float:
    return float(torch.from_numpy(losses).sum())


@dataclass(frozen=True)
class Judge:
    """A score of predictions, for numpy arrays.

    Attributes:
        task: the task of the client.
        y: the target in the format of the task's ``encode``.
        metric: the name of one of the task's scores, ``loss`` included.
        weight: (n,) float64, how much each row counts; None if all count alike.

    Example:
        >>> from fedlit.tasks import Classification
        >>> judge = Judge(Classification((0, 1)), torch.tensor([0, 1, 1]), "auroc")
        >>> judge(np.array([[0.9, 0.1], [0.2, 0.8], [0.95, 0.05]])), judge.score.higher_is_better
        (0.5, True)
    """

    task: Task
    y: Tensor
    metric: str
    weight: Tensor | None = None

    @property
    def score(self) -> Score:
        """The score that it computes."""
        return next(score for score in self.task.scores if score.name == self.metric)

    def __call__(self, predictions: np.ndarray) -> float:
        """Return the score of all rows' predictions (n, width), in the format of the task; NaN if
        it is undefined.
        """
        return self.by_counts(predictions)(None)

    def by_counts(self, predictions: np.ndarray) -> Callable[[np.ndarray | None], float]:
        """Return the score as a function of how often each row counts: (n,) whole numbers, or None
        for once. Weights of rows multiply them.
        """
        array = checked("predictions", predictions)
        if self.metric == LOSS.name:
            loss = row_loss(self.task, self.y)
            losses = loss(array)
            labelled = loss.labelled

            def mean(counts: np.ndarray | None) -> float:
                counted = self._counted(counts)
                times = labelled if counted is None else labelled * counted
                return float(times @ losses / times.sum()) if times.sum() else math.nan

            return mean
        scorer = self.task.scorer(torch.tensor(array), self.y)

        def score(counts: np.ndarray | None) -> float:
            counted = self._counted(counts)
            scores = scorer(None if counted is None else torch.from_numpy(counted))
            return float(scores[self.metric])

        return score

    def _counted(self, counts: np.ndarray | None) -> np.ndarray | None:
        if self.weight is None:
            return counts
        weight = self.weight.numpy()
        return weight if counts is None else weight * counts
