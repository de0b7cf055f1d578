"""Writes predictions to files, one for each client, in the source's labels and units; and the
predictions from which a run's scores were computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch

from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.errors import expect
from fedlit.files import write_frames
from fedlit.show.shown import Shown
from fedlit.show.text import Verbatim
from fedlit.tasks.predictions import Predictions
from fedlit.train.loop import FederatedLoop


class PredictionFiles(Shown, dict[str, pd.DataFrame]):
    """Maps each client to its predictions: one row for each row of the split, with the columns
    ``row`` (its number in the source), for a classifier ``probability_<label>`` for each of the
    client's classes, and ``predicted``, in the source's labels or units; with several labels
    ``predicted_<label>`` for each. Its text lists the files.

    Args:
        frames: maps each client to its predictions.
        files: maps each client to the file of its predictions.

    Example:
        >>> made = PredictionFiles({"ash": pd.DataFrame({"row": [3], "predicted": ["ill"]})}, {"ash": Path("ash.csv")})
        >>> made["ash"]["predicted"].tolist(), made.files["ash"].name
        (['ill'], 'ash.csv')
        >>> print(made)
        ash: ash.csv
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame], files: Mapping[str, Path]) -> None:
        super().__init__(frames)
        self.files = dict(files)

    @classmethod
    def written(
        cls, frames: Mapping[str, pd.DataFrame], folder: Path, format: str
    ) -> PredictionFiles:
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


def scored_rows(loop: FederatedLoop, data: FederatedData, split: Split) -> dict[str, Predictions]:
    """Return the predictions of each site from which the scores of a split were computed."""
    outputs = loop.federation.evaluations.scoring[split].predictions
    scored = {}
    for owner, name, rows in data.sites(split):
        spec = loop.federation[owner].spec
        classes = next(site.classes for site in spec.sites if site.name == name)
        # Numbers far from zero come in float64, which is kept; all others are at least float32.
        parts = [
            part.cpu().to(torch.promote_types(part.dtype, torch.float32)) for part in outputs[name]
        ]
        predictions = torch.cat(parts)
        predictions, y, _ = spec.task.narrow(
            classes, predictions, rows.y.cpu(), predictions.new_tensor(math.nan)
        )
        scored[name] = Predictions.of_model(
            spec.task.at(classes), rows.row, y, predictions, rows.weight
        )
    return scored
