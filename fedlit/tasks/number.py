"""Prediction of a number: a measurement, which is standardised for the network, or a count, for
which a rate is predicted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedlit.errors import DataError
from fedlit.precision import double_on_cpu
from fedlit.show.text import in_rows
from fedlit.tasks.base import Facts, Scorer, Task
from fedlit.tasks.scores import LOSS, Score
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import weighted_mean
from fedlit.types import Label

if TYPE_CHECKING:
    import pandas as pd

RMSE = Score(
    "rmse", "RMSE", higher_is_better=False, percent=False, low=0.0, always=True, in_units=True
)
MAE = Score("mae", "MAE", higher_is_better=False, percent=False, low=0.0, in_units=True)

_FURTHEST = 1e15
"""How many scales a target may be from the mean: sums of its squares are still within float32."""


class Number(Task):
    """A task with a single output of order of magnitude 1, which is 0 at the mean of the target.

    Attributes:
        mean: the mean of the target over the training rows of the client, or of all clients
            (``targets: pooled``).
        target: the name of the number.
    """

    mean: float
    target: str

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Label | None = None
    ) -> Facts:
        """Return the number of rows, and the mean of their target."""
        values = cls._values(target)
        return {
            "task": cls.name,
            "target": target.name,
            "count": len(values),
            "mean": float(values.mean()),
        }

    @classmethod
    def _values(cls, target: pd.Series, mean: float = 0.0, scale: float = 1e100) -> np.ndarray:
        """Return a target as float64.

        Raises:
            DataError: values are not numbers, or not finite; the message shows one of them.
        """
        import pandas as pd

        do = "mend or drop those rows, name another target, or task: classification"
        if target.dtype.kind not in "iuf":
            numbers = pd.to_numeric(target.astype(str), errors="coerce")
            no_number = numbers.isna()
            if not no_number.any():  # all cells are numbers, but written as text
                no_number = target == target
            cells = target.to_numpy()
            refuse_cells(target, cells, no_number.to_numpy(), f"numbers for task: {cls.name}", do)
            return cells
        values = target.to_numpy(np.float64)
        wrong = ~(np.abs(values - mean) <= _FURTHEST * scale)
        expected = f"finite numbers within {_FURTHEST * scale:g} of {mean:g}"
        refuse_cells(target, values, wrong, expected, do)
        return values

    @property
    def outputs(self) -> int:
        """One output."""
        return 1

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the number."""
        return (self.target,)

    def as_input(self, outputs: Tensor) -> Tensor:
        """Return the output unchanged."""
        return outputs

    @abstractmethod
    def true(self, y: Tensor) -> Tensor:
        """Return an encoded target (n,) in the user's units, as float64 on the CPU."""

    @abstractmethod
    def more_scores(
        self, true: Tensor, predicted: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the scores other than RMSE and MAE; NaN if one is undefined.

        Args:
            true: (n,) float64.
            predicted: (n,) float64, finite predictions.
            weight: (n,) float64, how much each row counts; once if None.
        """

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Compute RMSE, MAE and the scores of :meth:`more_scores`, in float64."""
        true = self.true(y)
        predicted = double_on_cpu(predictions[:, 0])
        names = [score.name for score in self.scores if score is not LOSS]

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            if counts is not None and counts.dtype.is_floating_point:
                scores = self._weighted(true, predicted, double_on_cpu(counts))
                return {name: scores[name] for name in names}
            # Rows are repeated, not weighted: only a sum of repeated numbers is bit-for-bit
            # identical to that of repeated rows.
            rows = true
            numbers = predicted
            if counts is not None:
                rows = true.repeat_interleave(counts.cpu())
                numbers = predicted.repeat_interleave(counts.cpu())
            rmse = (numbers - rows).square().mean().sqrt()
            mae = (numbers - rows).abs().mean()
            scores = {"rmse": rmse, "mae": mae, **self.more_scores(rows, numbers)}
            return {name: scores[name] for name in names}

        return score

    @classmethod
    def _evaluate_many(
        cls, tasks: Sequence[Number], predictions: Tensor, y: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """Return RMSE, MAE and the scores of :meth:`scores_of_many` for :meth:`evaluate_many`, in
        the order of ``scores``.
        """
        parts = zip(tasks, y.split(clients.lengths), strict=True)
        true = torch.cat([task.true(target) for task, target in parts])
        predicted = double_on_cpu(predictions[:, 0])
        scores = {
            "rmse": clients.mean((predicted - true).square()).sqrt(),
            "mae": clients.mean((predicted - true).abs()),
            **cls.scores_of_many(true, predicted, clients),
        }
        return {score.name: scores[score.name] for score in cls.scores if score is not LOSS}

    @classmethod
    def scores_of_many(
        cls, true: Tensor, predicted: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """Return what :meth:`more_scores` returns for each of many clients whose rows count alike,
        each (clients,).
        """
        raise NotImplementedError

    def _weighted(self, true: Tensor, predicted: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Return the scores of rows that count as much as their weights, (n,) float64."""
        counted = weight > 0
        true = true[counted]
        predicted = predicted[counted]
        weight = weight[counted]
        error = predicted - true
        return {
            "rmse": weighted_mean(error.square(), weight).sqrt(),
            "mae": weighted_mean(error.abs(), weight),
            **self.more_scores(true, predicted, weight),
        }

    def read(self, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return the task, predictions and target in the user's units."""
        target = frame["target"].astype("float64").to_numpy()
        predicted = frame["predicted"].astype("float64").to_numpy()
        return type(self)(), torch.tensor(predicted)[:, None], torch.tensor(target)


def refuse_cells(
    target: pd.Series, values: np.ndarray, wrong: np.ndarray, expected: str, do: str
) -> None:
    """Refuse a target with wrong cells.

    Args:
        target: the target, with the numbers of its rows as index.
        values: (n,) its cells.
        wrong: (n,) bool, which cells are wrong.
        expected: what the cells may be.
        do: what the user can do.

    Raises:
        DataError: a cell is wrong; the message shows some of them.
    """
    if wrong.any():
        raise DataError(
            f"target {target.name!r}: expected {expected}, found {int(wrong.sum())} others of "
            f"{len(values)}: {in_rows(target.index[wrong], values[wrong])}; {do}"
        )


def facts_of(facts: Sequence[Facts], key: str) -> np.ndarray:
    """Return one of the facts of each client, as an array."""
    return np.array([client_facts[key] for client_facts in facts])
