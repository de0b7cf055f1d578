"""Go-alone rows that are computed from predictions: means of models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import RunError
from fedlit.mixture.weigh import Predicted
from fedlit.score.mixed import aligned
from fedlit.study.job import DONE, PREDICTIONS, Average, Job
from fedlit.study.mixtures import Frames
from fedlit.study.out_of_fold import OUT_OF_FOLD
from fedlit.tasks import read_predictions

__all__ = ["mean_of_models"]

Computed = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]


def mean_of_models(job: Job) -> Computed:
    """The mean of what models predicted, with equal weights: of the rows that all of them predicted.

    Args:
        job: whose parts are done.

    Returns:
        Predictions, scores, and for the record whose mean it is, and which clients go without.

    Raises:
        RunError: a part has no predictions, for its run failed, or parts predicted other test rows.
    """
    assert isinstance(job.work, Average)
    groups = [[(Path(folder).parent.name, _read(job, folder)) for folder in group] for group in job.work.parts]
    names = dict.fromkeys(client for group in groups for _, own in group for client in own["client"].unique())
    seen, without, parts = Frames(), list[str](), dict[str, list[str]]()
    for client in (str(name) for name in names if name != UNION_SITE):
        chosen = [
            next(((name, own) for name, own in group if (own["client"] == client).any()), None) for group in groups
        ]
        found = [own for own in chosen if own is not None]
        if len(found) < len(groups):
            without.append(client)
            continue
        parts[client] = [name for name, _ in found]
        for split in (OUT_OF_FOLD, "validation", "test"):
            frames = {name: own[(own["client"] == client) & (own["split"] == split)] for name, own in found}
            if all(map(len, frames.values())):
                rows = _together(job, client, split, frames)
                seen.add(client, split, rows, rows.mixed(dict.fromkeys(frames, 1.0)))
    if not parts:
        raise RunError(f"{job.name}: expected a client that has all of its parts, found none")
    details = {"mean_of": parts, "train_rows": _train_rows(job), **({"without": without} if without else {})}
    return seen.predictions, seen.scores, details


def _together(job: Job, client: str, split: str, frames: Mapping[str, pd.DataFrame]) -> Predicted:
    """What models predict of the rows of a split that all of them predicted."""
    shared = set.intersection(*(set(own["row"]) for own in frames.values()))
    if split == "test" and any(len(own) != len(shared) for own in frames.values()):
        counts = ", ".join(f"{len(own)} of {name}" for name, own in frames.items())
        raise RunError(
            f"{job.name}, client {client!r}: expected predictions of the same test rows, found {counts}, of which "
            f"{len(shared)} are the same; run the parts again"
        )
    first = next(iter(frames.values()))
    order = first.loc[first["row"].isin(shared), "row"]
    read = {name: read_predictions(own.set_index("row", drop=False).loc[order]) for name, own in frames.items()}
    task, _, y = next(iter(read.values()))
    parts = {name: aligned(own.numpy(), other.classes, task.classes) for name, (other, own, _) in read.items()}
    return Predicted(task, order.to_numpy(), y, parts)


def _read(job: Job, folder: str) -> pd.DataFrame:
    path = Path(folder)
    if not (path / DONE).is_file():
        raise RunError(f"{job.name}: expected the predictions of {path.parent.name}, found none: its run failed")
    return pd.read_parquet(path / PREDICTIONS)


def _train_rows(job: Job) -> dict[str, int]:
    """Client → its training rows, as the parts have recorded them."""
    found: dict[str, int] = {}
    for folder in job.after:
        record: Mapping[str, Any] = json.loads((Path(folder) / DONE).read_text(encoding="utf-8"))
        found = {**record["train_rows"], **found}
    return found
