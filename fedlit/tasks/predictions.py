"""What models predict for a client's rows, and tables of such predictions in Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlit.files import write_frames
from fedlit.outcomes import RowLoss
from fedlit.tasks import task_from, task_state
from fedlit.tasks.base import Task
from fedlit.tasks.frames import WEIGHT, of_people
from fedlit.tasks.judge import Judge, row_loss
from fedlit.types import Floats
from fedlit.weights import Stack, mixed, on_stack

MODEL = "model"
"""The name of the part if a single model predicts."""
MIXTURE = "mixture"
"""The name of the part if several were mixed."""
_TASKS = "tasks"


@dataclass(frozen=True)
class Predictions:
    """What one or several models predict for a client's rows.

    Attributes:
        task: the task, with the classes of all models.
        row: (n,) the numbers of the rows in the source.
        y: the target, encoded by the task.
        parts: maps each model, such as a part of a mixture, to (n, width) float: probabilities, or
            numbers in the user's units. Models to be mixed have float64.
        fold: (n,) the fold whose models predicted each row; None if there are no folds, or if the
            mean of all folds' models predicted.
        weight: (n,) how much each row counts in losses and scores; None if all count alike.

    Example:
        >>> from fedlit.tasks import Classification
        >>> sure = np.array([[0.75, 0.25], [0.25, 0.75]])
        >>> parts = {"trees": sure, "joint": np.full((2, 2), 0.5)}
        >>> rows = Predictions(Classification(("ill", "well")), np.arange(2), torch.tensor([0, 1]), parts)
        >>> rows.array({"trees": 3.0, "joint": 1.0}).tolist()
        [[0.6875, 0.3125], [0.3125, 0.6875]]
        >>> rows.mixture({"trees": 1.0}).scores()["auroc"]
        1.0
    """

    task: Task
    row: np.ndarray
    y: Tensor
    parts: Mapping[str, NDArray[Any]]
    fold: np.ndarray | None = None
    weight: Tensor | None = None

    @classmethod
    def of_model(
        cls,
        task: Task,
        row: np.ndarray,
        y: Tensor,
        predictions: Tensor,
        weight: Tensor | None = None,
    ) -> Predictions:
        """Return the predictions (n, width) of a single model, with their dtype."""
        return cls(task, row, y, {MODEL: predictions.numpy()}, weight=weight)

    # ------------------------------------------------------------------ rows and parts

    def some(self, rows: np.ndarray) -> Predictions:
        """Return the predictions for some of the rows, given by positions or by a mask."""
        positions = np.flatnonzero(rows) if rows.dtype == bool else rows
        parts = {name: predictions[positions] for name, predictions in self.parts.items()}
        fold = None if self.fold is None else self.fold[positions]
        index = torch.from_numpy(positions)
        weight = None if self.weight is None else self.weight[index]
        return Predictions(self.task, self.row[positions], self.y[index], parts, fold, weight)

    def in_order(self) -> Predictions:
        """Return the predictions in ascending order of the rows' numbers."""
        return self.some(np.argsort(self.row, kind="stable"))

    def only(self, parts: Sequence[str]) -> Predictions:
        """Return the predictions of some of the parts."""
        return replace(self, parts={name: self.parts[name] for name in parts})

    # ------------------------------------------------------------------ mixing

    def array(self, weights: Mapping[str, float], stack: Stack = ()) -> Floats:
        """Return the mixture's predictions (n, width) float64."""
        mixture = mixed(self.parts, weights)
        return on_stack(self.task.outcome, mixture, stack) if stack else mixture

    def mixture(
        self, weights: Mapping[str, float], stack: Stack = (), name: str = MIXTURE
    ) -> Predictions:
        """Return a mixture as a single model: float32 probabilities, or float64 numbers.

        Args:
            weights: maps parts to their weights.
            stack: the intercept and slope for each output that correct the weighted mean.
            name: the name of the mixture among the parts.
        """
        array = np.ascontiguousarray(self.array(weights, stack))
        predictions = array.astype(np.float32) if self.task.classes else array
        return replace(self, parts={name: predictions})

    def each_part(self) -> list[Predictions]:
        """Return the predictions of each part as a single model, see :meth:`mixture`."""
        return [self.mixture({part: 1.0}, name=part) for part in self.parts]

    @property
    def loss(self) -> RowLoss:
        """The loss of each row."""
        weight = None if self.weight is None else self.weight.numpy()
        return replace(row_loss(self.task, self.y), weight=weight)

    def judge(self, metric: str) -> Judge:
        """Return one of the task's scores, as a function of predictions for these rows."""
        return Judge(self.task, self.y, metric, self.weight)

    # ------------------------------------------------------------------ of a single model

    @property
    def predictions(self) -> Tensor:
        """The predictions (n, width) of the only part, with their dtype."""
        (predictions,) = self.parts.values()
        return torch.from_numpy(predictions)

    def scores(self, *, once: bool = False) -> dict[str, float]:
        """Return the task's scores of the only part's predictions, without the loss; NaN if
        undefined.

        Args:
            once: whether to compute those that take too long for every epoch, too.
        """
        predictions = self.predictions
        evaluated = self.task.evaluate(predictions, self.y, self.weight)
        scores = {name: float(value) for name, value in evaluated.items()}
        if once:
            scores |= self.task.evaluate_once(predictions, self.y, self.weight)
        return scores

    @property
    def known(self) -> np.ndarray:
        """Which rows have a target that can be predicted, (n,) bool."""
        return self.task.known(self.y).numpy()

    @property
    def known_weight(self) -> Floats | None:
        """How much each known row counts, (known,) float64; None if all count alike."""
        if self.weight is None:
            return None
        weight: Floats = self.weight.cpu().numpy().astype(np.float64)
        known_weight: Floats = weight[self.known]
        return known_weight

    def frame(self) -> pd.DataFrame:
        """Return the only part's predictions for the user, see
        :meth:`fedlit.tasks.base.Task.frame`, with the name of the task.
        """
        frame = self.task.frame(self.row, self.y, self.predictions, self.weight)
        return frame.assign(task=self.task.name)


class PredictionTable:
    """Predictions of several clients as one table, with the state of each client's task, from which
    they can be read back.

    Labels are text in the table, because clients' labels differ in type. Its columns are
    ``client``, ``split`` if there are several, those of :meth:`fedlit.tasks.base.Task.frame`,
    ``task``, ``part``, and ``fold`` if there are folds. pandas shows the states of tasks in
    ``frame.attrs``.

    Args:
        tables: tables with these columns.
        tasks: maps each client to the state of its task (:func:`fedlit.tasks.task_state`).

    Example:
        >>> from fedlit.tasks import Classification
        >>> rows = Predictions.of_model(Classification((3, 7)), np.arange(2), torch.tensor([1, 0]), torch.eye(2))
        >>> table = PredictionTable()
        >>> table.add("north", rows, "test")
        >>> table.frame["target"].tolist(), table.read_back()["north"]["test"].task.classes
        (['7', '3'], (3, 7))
    """

    def __init__(
        self,
        tables: Iterable[pd.DataFrame] = (),
        tasks: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._tables = list(tables)
        self._tasks = dict(tasks or {})

    def add(self, client: str, predictions: Predictions, split: str = "") -> None:
        """Add what a single model predicts for a client's rows.

        Args:
            client: the name of the client.
            predictions: the predictions, of one part.
            split: the split of the rows; empty if all rows of the table are of one split.
        """
        (part,) = predictions.parts
        frame = predictions.frame().assign(part=part)
        if predictions.fold is not None:
            frame = frame.assign(fold=predictions.fold)
        if split:
            frame.insert(0, "split", split)
        frame.insert(0, "client", client)
        texts = {column: "string" for column in frame if of_people(column)}
        self._tables.append(frame.astype(texts))
        self._tasks[client] = task_state(predictions.task)

    def extend(self, other: PredictionTable) -> None:
        """Add all rows of another table."""
        self._tables += other._tables
        self._tasks |= other._tasks

    @property
    def frame(self) -> pd.DataFrame:
        """All rows."""
        frame = pd.concat(self._tables, ignore_index=True)
        # A label of any type is found again by its text.
        frame.attrs = {_TASKS: json.dumps(self._tasks, default=str)}
        return frame

    @classmethod
    def of(cls, frame: pd.DataFrame) -> PredictionTable:
        """Return the table of a frame that :attr:`frame` returned."""
        rows = frame.copy(deep=False)
        rows.attrs = {}  # pandas would compare them with each step
        return cls([rows], json.loads(frame.attrs[_TASKS]))

    def write(self, path: Path) -> None:
        """Write the table as Parquet."""
        write_frames({path: self.frame})

    @classmethod
    def read(cls, path: Path) -> PredictionTable:
        """Read what :meth:`write` wrote.

        Raises:
            OSError, ValueError, LookupError: the file is missing or damaged, or is no such table.
        """
        return cls.of(pd.read_parquet(path))

    def read_back(self) -> dict[str, dict[str, Predictions]]:
        """Map each client → split to its predictions; the split is empty if the table has none.
        Numbers are in the user's units, with a task of this unit.
        """
        frame = pd.concat(self._tables, ignore_index=True)
        if "split" not in frame:
            frame = frame.assign(split="")
        clients: dict[str, dict[str, Predictions]] = {}
        for (client, split), rows in frame.groupby(["client", "split"], observed=True):
            clients.setdefault(str(client), {})[str(split)] = self._read(str(client), rows)
        return clients

    def _read(self, client: str, rows: pd.DataFrame) -> Predictions:
        task = task_from(self._tasks[client])
        by_part = {str(part): of_part for part, of_part in rows.groupby("part", sort=False)}
        parts = {}
        for part, of_part in by_part.items():
            read_task, predictions, y = task.read(of_part)
            parts[part] = predictions.numpy()
        row = of_part["row"].to_numpy()
        fold = None
        if "fold" in of_part and of_part["fold"].notna().all():
            fold = of_part["fold"].to_numpy()
        return Predictions(read_task, row, y, parts, fold, _weight_of(of_part))


def _weight_of(frame: pd.DataFrame) -> Tensor | None:
    if WEIGHT not in frame or frame[WEIGHT].isna().all():
        return None
    return torch.tensor(frame[WEIGHT].to_numpy("float64"))
