"""Go-alone rows that are computed from predictions: means of models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import RunError
from fedlit.study.job import DONE, PREDICTIONS, Average, Job, score_rows, tidy
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
    predictions, scores, without, parts = [], [], [], {}
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
            frames = [own[(own["client"] == client) & (own["split"] == split)] for _, own in found]
            if not all(map(len, frames)):
                continue
            mean, scored = _mean(job, client, split, frames, parts[client])
            predictions.append(mean)
            scores += score_rows(scored, client, split)
    if not predictions:
        raise RunError(f"{job.name}: expected a client that has all of its parts, found none")
    details = {"mean_of": parts, "train_rows": _train_rows(job), **({"without": without} if without else {})}
    return pd.concat(predictions, ignore_index=True), pd.DataFrame(scores), details


def _mean(
    job: Job, client: str, split: str, frames: Sequence[pd.DataFrame], names: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Of one split: mean predictions and their scores."""
    shared = set.intersection(*(set(own["row"]) for own in frames))
    if split == "test" and any(len(own) != len(shared) for own in frames):
        counts = ", ".join(f"{len(own)} of {name}" for name, own in zip(names, frames, strict=True))
        raise RunError(
            f"{job.name}, client {client!r}: expected predictions of the same test rows, found {counts}, of which "
            f"{len(shared)} are the same; run the parts again"
        )
    order = frames[0].loc[frames[0]["row"].isin(shared), "row"]
    read = [read_predictions(own.set_index("row", drop=False).loc[order]) for own in frames]
    task, first, y = read[0]
    made = [first]
    for other, predicted, _ in read[1:]:
        if other.classes != task.classes:  # the same labels in another order
            predicted = predicted[:, [other.classes.index(label) for label in task.classes]]
        made.append(predicted)
    mean = torch.stack([own.double() for own in made]).mean(0).to(first.dtype)
    scored = {name: float(value) for name, value in task.evaluate(mean, y).items()}
    scored |= task.evaluate_once(mean, y) if split == "test" else {}
    frame = task.frame(order.to_numpy(), y, mean).assign(task=task.name)
    return tidy(frame, client, split), scored


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
