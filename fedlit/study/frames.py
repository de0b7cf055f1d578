"""The predictions and scores of a job, as they are stored in its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor

from fedlit.files import read_named
from fedlit.tasks import Task
from fedlit.tasks.base import of_people

PREDICTIONS, SCORE_FILE = "predictions.parquet", "scores.csv"
OUT_OF_FOLD = "out_of_fold"
"""A split: rows that the models of a fold were not trained on."""


class Frames:
    """Predictions and scores for each client and split.

    Args:
        predictions: tables with the rows of :data:`PREDICTIONS`.
        scores: tables with the rows of :data:`SCORE_FILE`: split, client, metric, value.
    """

    def __init__(self, predictions: Iterable[pd.DataFrame] = (), scores: Iterable[pd.DataFrame] = ()) -> None:
        self._predictions, self._scores = list(predictions), list(scores)

    def add(self, client: str, split: str, frame: pd.DataFrame, scores: Mapping[str, float]) -> None:
        """Add a client's predictions for a split, and the scores that are known. Labels become text, because clients'
        types differ.
        """
        frame.insert(0, "client", client)
        frame.insert(1, "split", split)
        self._predictions.append(frame.astype({column: "string" for column in frame if of_people(column)}))
        rows = pd.DataFrame({"metric": list(scores), "value": list(scores.values())})
        rows.insert(0, "split", split)
        rows.insert(1, "client", client)
        self._scores.append(rows)

    def score(self, client: str, split: str, task: Task, row: np.ndarray, y: Tensor, predictions: Tensor) -> None:
        """Add predictions, and compute their scores.

        Args:
            client: the client whose rows they are.
            split: the split of the rows.
            task: the task of the predictions.
            row: (n,) the numbers of the rows in the source.
            y: (n, …) the target, encoded by the task.
            predictions: (n, …) the predictions for the rows.
        """
        scores = {name: float(value) for name, value in task.evaluate(predictions, y).items()}
        scores |= task.evaluate_once(predictions, y) if split == "test" else {}
        self.add(client, split, task.frame(row, y, predictions).assign(task=task.name), scores)

    def extend(self, other: Frames) -> None:
        """Add all predictions and scores of another object."""
        self._predictions += other._predictions
        self._scores += other._scores

    @property
    def predictions(self) -> pd.DataFrame:
        """All predictions."""
        return pd.concat(self._predictions, ignore_index=True)

    @property
    def scores(self) -> pd.DataFrame:
        """All scores."""
        return pd.concat(self._scores, ignore_index=True)

    def write(self, folder: Path) -> None:
        """Write predictions and scores to a folder."""
        self.predictions.to_parquet(folder / PREDICTIONS, index=False)
        self.scores.to_csv(folder / SCORE_FILE, index=False)

    @classmethod
    def read(cls, folder: Path) -> Frames:
        """Read what :meth:`write` wrote.

        Raises:
            OSError, ValueError: a file is missing or damaged.
        """
        return cls([pd.read_parquet(folder / PREDICTIONS)], [read_named(folder / SCORE_FILE)])
