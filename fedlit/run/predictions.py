"""Writes predictions to files, one for each client, in the source's labels and units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.errors import expect
from fedlit.files import write_frames
from fedlit.show.shown import Shown
from fedlit.show.text import Verbatim
from fedlit.tasks import Task
from fedlit.train.loop import FederatedLoop


class Predictions(Shown, dict[str, pd.DataFrame]):
    """Maps each client to its predictions: one row for each row of the split, with the columns
    ``row`` (its number in the source), for a classifier ``probability_<label>`` for each of the
    client's classes, and ``predicted``, in the source's labels or units; with several labels
    ``predicted_<label>`` for each. Its text lists the files.

    Args:
        frames: maps each client to its predictions.
        files: maps each client to the file of its predictions.

    Example:
        >>> made = Predictions({"ash": pd.DataFrame({"row": [3], "predicted": ["ill"]})}, {"ash": Path("ash.csv")})
        >>> made["ash"]["predicted"].tolist(), made.files["ash"].name
        (['ill'], 'ash.csv')
        >>> print(made)
        ash: ash.csv
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame], files: Mapping[str, Path]) -> None:
        super().__init__(frames)
        self.files = dict(files)

    @classmethod
    def written(cls, frames: Mapping[str, pd.DataFrame], folder: Path, format: str) -> Predictions:
        """Write ``<folder>/<client>.<format>``. Existing files of these names are replaced after
        all new ones are complete.

        Args:
            frames: maps each client to its predictions.
            folder: the folder, which is created if it does not exist.
            format: ``csv`` or ``parquet``.

        Raises:
            ConfigError: the format is neither csv nor parquet.
            OSError: the files cannot be written; earlier files are kept.
        """
        expect(format in ("csv", "parquet"), "--format", "csv or parquet", format)
        files = {name: folder / f"{name}.{format}" for name in frames}
        write_frames({files[name]: frame for name, frame in frames.items()})
        return cls(frames, files)

    def parts(self) -> list[str]:
        """Return a line for each client, with its name and its file."""
        return [Verbatim(f"{name}: {path}") for name, path in self.files.items()]


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a site from which scores were computed.

    Attributes:
        task: the task, with the site's classes only.
        row: (n,) the numbers of the rows in the source.
        y: the target, encoded by the task.
        predictions: (n, width), at least float32.
        weight: (n,) float32, how much each row counts; None if all count alike.
    """

    task: Task
    row: np.ndarray
    y: Tensor
    predictions: Tensor
    weight: Tensor | None = None

    @property
    def known(self) -> np.ndarray:
        """Which rows have a label that some training row has, (n,) bool."""
        return self.y.numpy() >= 0

    @property
    def weights(self) -> np.ndarray | None:
        """How much each known row counts, (known,) float64; None if all count alike."""
        return (
            None
            if self.weight is None
            else self.weight.cpu().numpy().astype(np.float64)[self.known]
        )

    def some(self, place: np.ndarray) -> ScoredRows:
        """Return the rows at some positions."""
        at = torch.from_numpy(place)
        weight = None if self.weight is None else self.weight[at]
        return ScoredRows(self.task, self.row[place], self.y[at], self.predictions[at], weight)


def scored_rows(loop: FederatedLoop, data: FederatedData, split: Split) -> dict[str, ScoredRows]:
    """Return the rows of each site from which the scores of a split were computed."""
    outputs = loop.federation.evaluations.scoring[split].predictions
    scored = {}
    for owner, name, rows in data.sites(split):
        spec = loop.federation[owner].spec
        classes = next(site.classes for site in spec.sites if site.name == name)
        # at least float32: numbers beside a large mean come in float64 and need it
        parts = [
            part.cpu().to(torch.promote_types(part.dtype, torch.float32)) for part in outputs[name]
        ]
        predictions = torch.cat(parts)
        predictions, y, _ = spec.task.narrow(
            classes, predictions, rows.y.cpu(), predictions.new_tensor(math.nan)
        )
        scored[name] = ScoredRows(spec.task.at(classes), rows.row, y, predictions, rows.weight)
    return scored


def scored_predictions(
    loop: FederatedLoop, data: FederatedData, split: Split
) -> dict[str, pd.DataFrame]:
    """Return the predictions from which the scores of a split were computed.

    Returns:
        Maps each site to a frame with one row for each row of data, and the columns ``row``,
        ``target`` (missing if no training row of the site has the label), for a classifier
        ``probability_<label>`` for each of the site's classes, ``predicted`` and ``task``; with
        several labels, ``target_<label>`` and ``predicted_<label>`` for each.
    """
    return {
        name: rows.task.frame(rows.row, rows.y, rows.predictions, rows.weight).assign(
            task=rows.task.name
        )
        for name, rows in scored_rows(loop, data, split).items()
    }
