"""Go-alone rows that are computed from predictions: means of models, and what other programs predicted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import ConfigError, RunError
from fedlit.study.job import DONE, PREDICTIONS, Job, score_rows, tidy
from fedlit.study.out_of_fold import OUT_OF_FOLD
from fedlit.tasks import read_predictions
from fedlit.tasks.base import is_target

__all__ = ["external_files", "mean_of_models", "of_another_program"]

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
    groups = [[(Path(folder).parent.name, _read(job, folder)) for folder in group] for group in job.parts or ()]
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


def of_another_program(job: Job) -> Computed:
    """Predictions that another program made of the study's test rows, scored as all others are.

    Args:
        job: with the file; its part is the reference, which has the rows.

    Raises:
        RunError: a client that the study does not have, or other rows or targets than the study's.
    """
    ((reference,),) = job.parts or [[""]]
    expected = _read(job, reference)
    expected = expected[(expected["split"] == "test") & (expected["client"] != UNION_SITE)]
    found = pd.read_parquet(str(job.external))
    lost = [name for name in ("client", "row", "target", "predicted") if name not in found]
    if lost:
        raise RunError(f"{job.name}: expected columns client, row, target, predicted in {job.external}, found no "
                       f"{', '.join(lost)}")  # fmt: skip
    found = found[found["split"] == "test"] if "split" in found else found
    clients = expected["client"].unique().tolist()
    if strangers := sorted(set(found["client"]) - set(clients)):
        raise RunError(
            f"{job.name}: expected the study's clients, {', '.join(clients)}, in {job.external}, found "
            f"{', '.join(map(str, strangers))}"
        )
    predictions, scores = [], []
    for client in (name for name in clients if (found["client"] == name).any()):
        own = found[found["client"] == client].drop(columns=["client", "split"], errors="ignore")
        _same_rows(job, client, own, expected[expected["client"] == client])
        task, predicted, y = read_predictions(own)
        scored = {name: float(value) for name, value in task.evaluate(predicted, y).items()}
        scored |= task.evaluate_once(predicted, y)
        frame = task.frame(own["row"].to_numpy(), y, predicted).assign(task=task.name)
        predictions.append(tidy(frame, client, "test"))
        scores += score_rows(scored, client, "test")
    without = [name for name in clients if not (found["client"] == name).any()]
    details = {"train_rows": _train_rows(job), **({"without": without} if without else {})}
    return pd.concat(predictions, ignore_index=True), pd.DataFrame(scores), details


def _same_rows(job: Job, client: str, found: pd.DataFrame, expected: pd.DataFrame) -> None:
    first, second = found.set_index("row"), expected.set_index("row")
    shared = first.index.intersection(second.index)
    what = ""
    if len(first) != len(second) or len(shared) != len(second):
        what = f"{len(first)} rows, of which {len(shared)} are the same"
    else:
        told = [name for name in second if is_target(name) and name in first]
        ours, theirs = (
            frame.loc[shared, told].astype("string").fillna("").to_numpy(str).ravel() for frame in (second, first)
        )
        mine, found_there = (pd.to_numeric(pd.Series(own), errors="coerce").to_numpy(float) for own in (ours, theirs))
        if others := int((~(np.isclose(mine, found_there, rtol=1e-5, atol=1e-8) | (ours == theirs))).sum()):
            what = f"another target for {others} of them"
    if what:
        raise RunError(
            f"{job.name}, client {client!r}: expected predictions of the study's {len(second)} test rows in "
            f"{job.external}, found {what}; write the rows again (benchmarks/autogluon/write_rows.py), and "
            "predict these"
        )


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


def external_files(name: str, folder: str, seeds: Sequence[int], also: str = "") -> dict[int, Path]:
    """Seed → the file of predictions that another program made.

    Args:
        name: as the study calls it.
        folder: as the study names it.
        seeds: of the study.
        also: where the folder is looked for if it is not found from here.

    Raises:
        ConfigError: there is no folder, or no file for any of these seeds.
    """
    root = next((path for path in (Path(folder), Path(also, folder)) if path.is_dir()), None)
    if root is None:
        raise ConfigError(
            f"external.{name}: expected a folder with seed_N/{PREDICTIONS}, found no folder {folder}; make it as "
            "benchmarks/autogluon/README.md says, or leave the key out"
        )
    files = {seed: root.absolute() / f"seed_{seed}" / PREDICTIONS for seed in seeds}
    there = {seed: path for seed, path in files.items() if path.is_file()}
    if not there:
        raise ConfigError(
            f"external.{name}: expected seed_N/{PREDICTIONS} of some of the study's seeds in {folder}, found none"
        )
    return there
