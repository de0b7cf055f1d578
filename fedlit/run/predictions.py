"""Writes predictions to files, one for each client, in the source's labels and units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from torch import Tensor

from fedlit.data.encoding import Rows
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.errors import expect
from fedlit.files import write_frames
from fedlit.show.shown import Shown
from fedlit.show.text import Verbatim
from fedlit.spec import ClientSpec
from fedlit.tasks.base import is_target
from fedlit.train.loop import FederatedLoop


class Predictions(Shown, dict[str, pd.DataFrame]):
    """Maps each client to its predictions: one row for each row of the split, with the columns ``row`` (its number in
    the source), for a classifier ``probability_<label>`` for each of the client's classes, and ``predicted``, in the
    source's labels or units; with several labels ``predicted_<label>`` for each. Its text lists the files.

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

    def parts(self) -> list[str]:
        """Return a line for each client, with its name and its file."""
        return [Verbatim(f"{name}: {path}") for name, path in self.files.items()]


def write_predictions(
    loop: FederatedLoop,
    data: FederatedData,
    batches: Sequence[Sequence[Tensor]] | Sequence[Tensor],
    folder: Path,
    format: str,
) -> Predictions:
    """Write ``<folder>/<split>/<client>.<format>`` with the columns ``row``, ``probability_<label>`` for each of a
    classifier's classes, and ``predicted``; with several labels ``predicted_<label>`` for each.

    If a client has outputs for classes that it never saw in training (FedAvg), predictions are restricted to its
    classes and renormalised, as in the metrics.

    Args:
        loop: the loop whose clients predicted.
        data: the data with the predicted rows.
        batches: the batches of predictions for each site, in the order of ``data.sites``.
        folder: the folder, which is created if it does not exist. Existing files of these names are replaced after all
            new ones are complete.
        format: the file format.

    Raises:
        ConfigError: the format is neither csv nor parquet.
        OSError: the files cannot be written; earlier files are kept.
    """
    expect(format in ("csv", "parquet"), "--format", "csv or parquet", format)
    folder = folder / data.predict
    # Lightning unpacks a list of one
    sites = data.sites(data.predict)
    per_site = cast(Sequence[Sequence[Tensor]], [batches] if len(sites) == 1 else batches)
    files, frames = dict[str, Path](), dict[str, pd.DataFrame]()
    for (owner, name, rows), parts in zip(sites, per_site, strict=True):
        files[name] = folder / f"{name}.{format}"
        frame = _frame(loop.federation[owner].spec, name, rows, parts)
        frames[name] = frame = frame[[column for column in frame if not is_target(column)]]
    write_frames({files[name]: frame for name, frame in frames.items()})
    return Predictions(frames, files)


def scored_predictions(loop: FederatedLoop, data: FederatedData, split: Split) -> dict[str, pd.DataFrame]:
    """Return the predictions from which the scores of a split were computed.

    Returns:
        Maps each site to a frame with one row for each row of data, and the columns ``row``, ``target`` (missing if no
        training row of the site has the label), for a classifier ``probability_<label>`` for each of the site's
        classes, ``predicted`` and ``task``; with several labels, ``target_<label>`` and ``predicted_<label>`` for each.
    """
    outputs = loop.federation.evaluations.scoring[split].predictions
    return {
        name: _frame(spec, name, rows, outputs[name]).assign(task=spec.task.name)
        for owner, name, rows in data.sites(split)
        for spec in [loop.federation[owner].spec]
    }


def _frame(spec: ClientSpec, name: str, rows: Rows, batches: Sequence[Tensor]) -> pd.DataFrame:
    classes = next(site.classes for site in spec.sites if site.name == name)
    # at least float32: numbers beside a large mean come in float64 and need it
    predictions = torch.cat([part.cpu().to(torch.promote_types(part.dtype, torch.float32)) for part in batches])
    predictions, y, _ = spec.task.narrow(classes, predictions, rows.y.cpu(), predictions.new_tensor(math.nan))
    return spec.task.at(classes).frame(rows.row, y, predictions)
