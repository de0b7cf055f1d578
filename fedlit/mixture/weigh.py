"""The parts' predictions for a client's rows, their losses and scores, and the weights of parts:
equal, half own, or fitted to rows and shrunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.errors import ConfigError, DataError, Told, expect
from fedlit.outcomes import RowLoss
from fedlit.outcomes.base import Array
from fedlit.tasks import Score, Task
from fedlit.tasks.frames import of_people
from fedlit.weights import Stack, checked, fitted, mixed, on_stack, stacked


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


def _log(numbers: Array) -> Array:
    logarithms: Array = torch.from_numpy(numbers).log().numpy()
    return logarithms


def _total(losses: Array) -> float:
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
        if self.score.name == "loss":
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
            return float(
                scorer(None if counted is None else torch.from_numpy(counted))[self.metric]
            )

        return score

    def _counted(self, counts: np.ndarray | None) -> np.ndarray | None:
        if self.weight is None:
            return counts
        weight = self.weight.numpy()
        return weight if counts is None else weight * counts


HOW = ("equal", "half_own", "fitted")


@dataclass(frozen=True)
class Predicted:
    """The predictions of each part for a client's rows.

    Attributes:
        task: the task, with the classes of all parts.
        row: (n,) the numbers of the rows in the source.
        y: the target, encoded by the task.
        parts: maps each part to (n, width) float64: probabilities, or numbers in the user's units.
        fold: (n,) the fold whose models predicted each row; None if the mean of all folds' models
            did.
        weight: (n,) float64, how much each row counts in losses and scores; None if all count
            alike.
    """

    task: Task
    row: np.ndarray
    y: Tensor
    parts: Mapping[str, np.ndarray]
    fold: np.ndarray | None = None
    weight: Tensor | None = None

    def array(self, weights: Mapping[str, float], stack: Stack = ()) -> Array:
        """Return the mixture's predictions (n, width) float64."""
        mixture = mixed(self.parts, weights)
        return on_stack(self.task.outcome, mixture, stack) if stack else mixture

    def mixed(self, weights: Mapping[str, float], stack: Stack = ()) -> Tensor:
        """Return the mixture's predictions (n, width): float32 probabilities, or float64
        numbers.
        """
        mixture = torch.from_numpy(np.ascontiguousarray(self.array(weights, stack)))
        return mixture.float() if self.task.classes else mixture

    def some(self, rows: np.ndarray) -> Predicted:
        """Return the predictions for some of the rows, given by positions or by a mask."""
        positions = np.flatnonzero(rows) if rows.dtype == bool else rows
        parts = {name: predictions[positions] for name, predictions in self.parts.items()}
        fold = None if self.fold is None else self.fold[positions]
        index = torch.from_numpy(positions)
        weight = None if self.weight is None else self.weight[index]
        return Predicted(self.task, self.row[positions], self.y[index], parts, fold, weight)

    def only(self, parts: Sequence[str]) -> Predicted:
        """Return the predictions of some of the parts."""
        return replace(self, parts={name: self.parts[name] for name in parts})

    def frame(self, client: str, part: str, predictions: Tensor) -> pd.DataFrame:
        """Return predictions (n, width) as a frame for the user. Labels become text, because
        clients' labels differ in type.
        """
        frame = self.task.frame(self.row, self.y, predictions, self.weight)
        frame = frame.assign(task=self.task.name, part=part, fold=self.fold)
        frame.insert(0, "client", client)
        return frame.astype({column: "string" for column in frame if of_people(column)})

    @property
    def loss(self) -> RowLoss:
        """The loss of each row."""
        weight = None if self.weight is None else self.weight.numpy()
        return replace(row_loss(self.task, self.y), weight=weight)

    def judge(self, metric: str) -> Judge:
        """Return one of the task's scores, as a function of predictions for these rows."""
        return Judge(self.task, self.y, metric, self.weight)


def weights_of(
    how: str, rows: Predicted, local: Collection[str], shrink: float = 100
) -> dict[str, float]:
    """Return a weight for each part.

    - ``equal``: the same for all.
    - ``half_own``: own parts share one half, the others the other half; where there are only own
      ones, or only others, the same for all.
    - ``fitted``: those of the least Σ loss(mixture) − shrink · Σ log(weight), the first sum over
      rows, the second over parts. Each part counts as if it had, beside its share of the rows,
      explained ``shrink`` rows more: for the log loss each weight is (rows that it explains +
      shrink) / (rows + shrink · parts). With 0 it is the least loss itself; from many more rows
      than shrink · parts the weights are free, with many fewer they stay equal. A squared error is
      divided by twice the mean squared error of the equal mixture, to be of the size of a
      log-likelihood. A row of weight 2 counts as two rows. The problem is convex and solved to its
      optimum; nothing is drawn. Rows that parts were trained on must not be among
      these: a part that knows them takes all weight.

    Args:
        how: one of these three words.
        rows: the parts' predictions for rows that they have not seen.
        local: the names of the client's local parts; names that are no parts are ignored.
        shrink: the number of pseudo-rows of each part.

    Returns:
        Part → weight in the order of the parts: at least 0, of sum 1.

    Raises:
        DataError: the parts' predictions do not fit together, or no row has a known target.

    Example:
        The first part is sure and right in three rows of four, the second undecided:

        >>> from fedlit.tasks import Classification
        >>> sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
        >>> parts, y = {"trees": sure, "joint": np.full((4, 2), 0.5)}, torch.tensor([0, 0, 1, 1])
        >>> rows = Predicted(Classification((0, 1)), np.arange(4), y, parts)
        >>> weights_of("half_own", rows, local=["trees"])
        {'trees': 0.5, 'joint': 0.5}
        >>> for shrink in (0, 1, 100):
        ...     print({name: round(weight, 3) for name, weight in weights_of("fitted", rows, [], shrink).items()})
        {'trees': 0.625, 'joint': 0.375}
        {'trees': 0.535, 'joint': 0.465}
        {'trees': 0.5, 'joint': 0.5}
    """
    names = sorted(rows.parts)  # sums in one order: the same bits in whatever order parts come
    local_names = [name for name in names if name in local]
    if how == "fitted" and not np.isinf(shrink):
        by_name = dict(zip(names, _fitted(rows, names, shrink).tolist(), strict=True))
        return {name: by_name[name] for name in rows.parts}
    if how != "half_own" or not 0 < len(local_names) < len(names):
        return {name: 1 / len(names) for name in rows.parts}
    local_weight = 0.5 / len(local_names)
    federated_weight = 0.5 / (len(names) - len(local_names))
    return {name: local_weight if name in local else federated_weight for name in rows.parts}


def _fitted(rows: Predicted, names: Sequence[str], shrink: float) -> Array:
    loss = rows.loss
    stack = stacked({name: rows.parts[name] for name in names})
    same_length = len(loss.labelled) == stack.shape[1]
    expected = f"predictions of {len(loss.labelled):,} rows, as the target has"
    do = "predict the rows that the weights are fitted to"
    expect(same_length, f"part {names[0]!r}", expected, Told(f"{stack.shape[1]:,}"), do, DataError)
    labelled = bool(loss.labelled.any())
    expected = "rows whose target is known"
    expect(labelled, "weights", expected, Told("none"), "take equal weights", DataError)
    # A mixture without any error is as good as can be: no unit is then too small.
    unit = 1.0 if loss.nats else 2 * loss.mean(stack.mean(axis=0)) or 1.0

    def terms(predictions: Array) -> tuple[float, Array]:
        value, slopes = loss.terms(predictions)
        return value / unit, slopes / unit

    return fitted(stack, terms, shrink)
