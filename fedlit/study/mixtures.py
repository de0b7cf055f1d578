"""Rows of a study that are mixed from predictions: mixtures of several parts, which are trained
once; other mixtures of the same parts, and means of models, which need no training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, RunError
from fedlit.mixture.combine import combine
from fedlit.mixture.mixture import Mixture
from fedlit.mixture.parts import Part, predicted
from fedlit.mixture.settings import Mixing, MixtureSettings, newest, settings_of
from fedlit.mixture.weigh import Predicted
from fedlit.run.config import typed_value
from fedlit.score.scorer import aligned
from fedlit.study.job import DONE, OUT_OF_FOLD, PREDICTIONS, Combine, Frames, Job, Train
from fedlit.tasks import read_predictions, read_weights
from fedlit.weights import Stack

PARTS = "parts.parquet"
"""What each part of a mixture predicts of rows that it has not seen; rows as predictions have them,
and its name."""

Computed = tuple[Frames, dict[str, Any]]


def mixture_settings(config: str | Path, overrides: Mapping[str, Any]) -> MixtureSettings:
    """Return the settings of a configuration of several parts, with changed keys."""
    return settings_of(Path(config), {key: typed_value(value) for key, value in overrides.items()})


def train_mixture(job: Job) -> Computed:
    """Train a mixture to the end, and predict with it.

    Returns:
        The predictions for test rows, for all held-out rows (``out_of_fold``; there are none
        without folds) and for validation rows; and for the record each client's local parts, and
        the weights.
    """
    assert isinstance(job.work, Train)
    folder = Path(job.folder)
    of_run = {"seed": job.seed, "name": folder.name, "trainer.default_root_dir": str(folder.parent)}
    mixture = Mixture(mixture_settings(job.work.config, {**job.work.overrides, **of_run}))
    try:
        fitted = mixture.fit("last" if newest(mixture.runs) is not None else None, quiet=True)
    # It was begun with other settings; what was trained with them stays in a folder beside it.
    except ConfigError:
        fitted = mixture.fit(quiet=True)
    folds = mixture.settings.folds
    parts = mixture.built()
    weights = {client: result["weights"] for client, result in fitted.clients.items()}
    stacks = {client: result["stack"] for client, result in fitted.clients.items()}
    dealt = _dealt_rows(parts)
    test = predicted(parts, "test")
    frames = Frames()
    tables = list[pd.DataFrame]()
    train_rows = {}
    for client, unseen in mixture.held.items():
        splits = {"test": test[client], OUT_OF_FOLD if folds else "validation": unseen}
        if folds and (chosen := np.isin(unseen.row, dealt[client]["validation"])).any():
            # These out-of-fold rows are the validation rows that it would have without folds.
            splits["validation"] = unseen.some(chosen)
        _add(frames, client, splits, weights[client], stacks[client])
        train_rows[client] = len(unseen.row if folds else dealt[client]["train"])
        for split, rows in splits.items():
            tables += [
                rows.frame(client, part, rows.mixed({part: 1.0})).assign(split=split)
                for part in rows.parts
            ]
    every_part = pd.concat([table.drop(columns="fold") for table in tables], ignore_index=True)
    every_part.to_parquet(folder / PARTS, index=False)
    names = {"own": list(mixture.plan.local), "networks": list(mixture.plan.networks)}
    return frames, {"train_rows": train_rows, **names, "weights": weights}


def combined(job: Job) -> Computed:
    """Mix stored predictions for the rows that all parts predicted: the parts of a mixture in
    another way, or models with equal weights.

    Returns:
        Predictions, and for the record the weights, and which clients lack a part.

    Raises:
        RunError: a part has no predictions, for its run failed, or parts predicted other test rows.
    """
    work = job.work
    assert isinstance(work, Combine)
    records = {folder: _record(job, Path(folder)) for folder in job.after}
    predictions = pd.concat(
        [_part(name, folders, work.mixing is not None) for name, folders in work.parts.items()]
    )
    clients = dict[str, dict[str, Predicted]]()
    without = list[str]()
    for client, rows_of_client in predictions.groupby("client"):
        shared = dict[str, Predicted]()
        for split, rows in rows_of_client.groupby("split"):
            together = _together(job, rows, list(work.parts))
            if together is not None:
                shared[str(split)] = together
        if shared:
            clients[str(client)] = shared
        else:
            without.append(str(client))
    if not clients:
        raise RunError(
            f"{job.name}: expected clients that have all of {', '.join(work.parts)}, found none; "
            "name fewer"
        )
    how: dict[str, tuple[Mapping[str, float], Stack]] = {
        client: (dict.fromkeys(work.parts, 1.0), ()) for client in clients
    }
    if work.mixing is not None:
        (record,) = records.values()
        unseen = {
            client: splits.get(OUT_OF_FOLD) or splits["validation"]
            for client, splits in clients.items()
        }
        mixed = combine(
            unseen, record["own"], Mixing(**work.mixing, by=job.choose), record["networks"]
        )
        how = {client: (mixture.weights, mixture.stack) for client, mixture in mixed.items()}
    frames = Frames()
    train_rows = dict[str, int]()
    for client, shared in clients.items():
        _add(frames, client, shared, *how[client])
    for record in records.values():
        train_rows = {**record["train_rows"], **train_rows}
    weights = {client: client_weights for client, (client_weights, _) in how.items()}
    details: dict[str, Any] = {"train_rows": train_rows, "weights": weights}
    if without:
        details["without"] = without
    return frames, details


def _add(
    frames: Frames,
    client: str,
    splits: Mapping[str, Predicted],
    weights: Mapping[str, float],
    stack: Stack,
) -> None:
    for split, rows in splits.items():
        frames.score(
            client, split, rows.task, rows.row, rows.y, rows.mixed(weights, stack), rows.weight
        )


def _record(job: Job, folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / DONE).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(
            f"{job.name}: expected the run of {folder.parent.name}, found none: it failed"
        ) from error
    return record


def _part(name: str, folders: list[str], of_mixture: bool) -> pd.DataFrame:
    """Return a part's predictions for all clients. Each client's predictions come from the first of
    these folders that has the client.
    """
    frames = [
        pd.read_parquet(Path(folder) / (PARTS if of_mixture else PREDICTIONS)) for folder in folders
    ]
    if of_mixture:
        return frames[0][frames[0]["part"] == name]
    first = dict[str, int]()
    for position, frame in enumerate(frames):
        for client in frame["client"].unique():
            first.setdefault(client, position)
    chosen = [
        frame[frame["client"].map(first) == position] for position, frame in enumerate(frames)
    ]
    return pd.concat(chosen, ignore_index=True).assign(part=name)


def _together(job: Job, predictions: pd.DataFrame, names: list[str]) -> Predicted | None:
    """Return the parts' predictions for the rows of a client's split that all of them predicted;
    None if a part has no row.
    """
    frames = {name: predictions[predictions["part"] == name] for name in names}
    if any(frame.empty for frame in frames.values()):
        return None
    first = frames[names[0]]
    shared = set.intersection(*(set(frame["row"]) for frame in frames.values()))
    if first["split"].iloc[0] == "test" and any(
        len(frame) != len(shared) for frame in frames.values()
    ):
        counts = ", ".join(f"{len(frame)} of {name}" for name, frame in frames.items())
        raise RunError(
            f"{job.name}, client {first['client'].iloc[0]!r}: expected predictions of the same "
            f"test rows, found {counts}, of which {len(shared)} are the same; run the parts again"
        )
    if not shared:
        return None
    order = first.loc[first["row"].isin(shared), "row"]
    read = {
        name: read_predictions(frame.set_index("row", drop=False).loc[order])
        for name, frame in frames.items()
    }
    task, _, y = read[names[0]]
    parts = {
        name: aligned(part_predictions.numpy(), frame.classes, task.classes)
        for name, (frame, part_predictions, _) in read.items()
    }
    weight = read_weights(first.set_index("row", drop=False).loc[order])
    return Predicted(task, order.to_numpy(), y, parts, weight=weight)


def _dealt_rows(parts: Mapping[str, Part]) -> dict[str, dict[str, np.ndarray]]:
    """Map each client and split to the source's row numbers, independent of the folds."""
    data = FederatedData(**{**next(iter(parts.values())).load(0).data.arguments, "folds": 0})
    dealt = dict[str, dict[str, np.ndarray]]()
    for table in data.tables():
        numbers = table.features.index.to_numpy()
        dealt[table.name] = {split: numbers[rows] for split, rows in table.splits.items()}
    return dealt
