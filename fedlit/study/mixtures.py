"""Rows of a study that are mixed from predictions: mixtures of several parts, which are trained
once; other mixtures of the same parts, and means of models, which need no training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, RunError
from fedlit.jobs.job import Combine, Job, Train
from fedlit.jobs.record import read_record
from fedlit.mixture.combine import Combined, combine
from fedlit.mixture.folders import newest
from fedlit.mixture.mixture import Mixture
from fedlit.mixture.parts import Part
from fedlit.mixture.predicted import predicted
from fedlit.mixture.settings import Mixing, MixtureSettings
from fedlit.mixture.written import settings_of
from fedlit.run.config import typed_value
from fedlit.study.job import OUT_OF_FOLD, PREDICTIONS, JobResults
from fedlit.tasks.predictions import Predictions, PredictionTable
from fedlit.weights import Stack

PARTS = "parts.parquet"
"""What each part of a mixture predicts of rows that it has not seen; rows as predictions have them,
and its name."""

Computed = tuple[JobResults, dict[str, Any]]


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
    results = JobResults()
    every_part = PredictionTable()
    train_rows = {}
    for client, of_folds in mixture.held.items():
        unseen = replace(of_folds, fold=None)  # a study's files have no folds
        splits = {"test": test[client], OUT_OF_FOLD if folds else "validation": unseen}
        if folds and (chosen := np.isin(unseen.row, dealt[client]["validation"])).any():
            # These out-of-fold rows are the validation rows that it would have without folds.
            splits["validation"] = unseen.some(chosen)
        _add(results, client, splits, weights[client], stacks[client])
        train_rows[client] = len(unseen.row if folds else dealt[client]["train"])
        for split, rows in splits.items():
            for part in rows.each_part():
                every_part.add(client, part, split)
    every_part.write(folder / PARTS)
    names = {"own": list(mixture.plan.local), "networks": list(mixture.plan.networks)}
    return results, {"train_rows": train_rows, **names, "weights": weights}


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
    clients, without = _shared_by_all(job, work)
    weights = {client: dict.fromkeys(work.parts, 1.0) for client in clients}
    stacks = dict[str, Stack]()
    if work.mixing is not None:
        (record,) = records.values()
        mixed = _mixed(job, work.mixing, clients, record)
        weights = {client: dict(mixture.weights) for client, mixture in mixed.items()}
        stacks = {client: mixture.stack for client, mixture in mixed.items()}
    results = JobResults()
    for client, shared in clients.items():
        _add(results, client, shared, weights[client], stacks.get(client, ()))
    train_rows = dict[str, int]()
    for record in records.values():
        train_rows = {**record["train_rows"], **train_rows}
    details: dict[str, Any] = {"train_rows": train_rows, "weights": weights}
    if without:
        details["without"] = without
    return results, details


def _shared_by_all(job: Job, work: Combine) -> tuple[dict[str, dict[str, Predictions]], list[str]]:
    """Map each client that all parts have to their predictions by split, and return the clients
    that a part lacks.

    Raises:
        RunError: there is no client that all parts have, or they predicted other test rows.
    """
    by_part = _parts(work)
    clients = dict[str, dict[str, Predictions]]()
    without = list[str]()
    for client in sorted(set().union(*by_part.values())):
        splits_by_part = {name: part.get(client, {}) for name, part in by_part.items()}
        shared = _shared(job, client, splits_by_part)
        if shared:
            clients[client] = shared
        else:
            without.append(client)
    if not clients:
        raise RunError(
            f"{job.name}: expected clients that have all of {', '.join(work.parts)}, found none; "
            "name fewer"
        )
    return clients, without


def _mixed(
    job: Job,
    mixing: Mapping[str, Any],
    clients: Mapping[str, Mapping[str, Predictions]],
    record: Mapping[str, Any],
) -> dict[str, Combined]:
    """Return each client's mixture of the parts of a mixture, by rows that no part has seen."""
    unseen = {
        client: splits.get(OUT_OF_FOLD) or splits["validation"]
        for client, splits in clients.items()
    }
    settings = Mixing(**mixing, by=job.choose)
    return combine(unseen, record["own"], settings, record["networks"])


def _add(
    results: JobResults,
    client: str,
    splits: Mapping[str, Predictions],
    weights: Mapping[str, float],
    stack: Stack,
) -> None:
    for split, rows in splits.items():
        results.add(client, split, rows.mixture(weights, stack))


def _record(job: Job, folder: Path) -> dict[str, Any]:
    record = read_record(folder)
    if record is None:
        raise RunError(
            f"{job.name}: expected the run of {folder.parent.name}, found none: it failed"
        )
    return record


def _parts(work: Combine) -> dict[str, dict[str, dict[str, Predictions]]]:
    """Map each part → client → split to the part's predictions. Each client's predictions come from
    the first of the part's folders that has the client.
    """
    if work.mixing is not None:
        (folder,) = {folders[0] for folders in work.parts.values()}
        stored = PredictionTable.read(Path(folder) / PARTS).read_back()
        return {name: _of_part(stored, name) for name in work.parts}
    by_part = {}
    for name, folders in work.parts.items():
        clients = dict[str, dict[str, Predictions]]()
        for folder in folders:
            stored = PredictionTable.read(Path(folder) / PREDICTIONS).read_back()
            clients = {**stored, **clients}
        by_part[name] = clients
    return by_part


def _of_part(
    stored: Mapping[str, Mapping[str, Predictions]], name: str
) -> dict[str, dict[str, Predictions]]:
    """Return the predictions of one part of a mixture, of the clients that have it."""
    clients: dict[str, dict[str, Predictions]] = {}
    for client, splits in stored.items():
        for split, rows in splits.items():
            if name in rows.parts:
                clients.setdefault(client, {})[split] = rows.only([name])
    return clients


def _shared(
    job: Job, client: str, by_part: Mapping[str, Mapping[str, Predictions]]
) -> dict[str, Predictions]:
    """Map each split of which all parts predicted rows to the parts' predictions for these rows.

    Args:
        job: the job, for messages.
        client: the client whose rows they are.
        by_part: maps each part → split to its predictions.
    """
    shared = {}
    for split in sorted(set.intersection(*map(set, by_part.values()))):
        of_split = {name: splits[split] for name, splits in by_part.items()}
        together = _together(job, client, split, of_split)
        if together is not None:
            shared[split] = together
    return shared


def _together(
    job: Job, client: str, split: str, by_part: Mapping[str, Predictions]
) -> Predictions | None:
    """Return the parts' predictions for the rows that all of them predicted, in the order of the
    first part; None if there are none.
    """
    first = next(iter(by_part.values()))
    shared = set.intersection(*(set(rows.row.tolist()) for rows in by_part.values()))
    if split == "test" and any(len(rows.row) != len(shared) for rows in by_part.values()):
        counts = ", ".join(f"{len(rows.row)} of {name}" for name, rows in by_part.items())
        raise RunError(
            f"{job.name}, client {client!r}: expected predictions of the same test rows, found "
            f"{counts}, of which {len(shared)} are the same; run the parts again"
        )
    if not shared:
        return None
    first = first.some(np.isin(first.row, list(shared)))
    parts = {}
    for name, rows in by_part.items():
        position = pd.Index(rows.row).get_indexer(first.row)
        predictions = rows.some(position).predictions.numpy()
        parts[name] = first.task.outcome.aligned(predictions, rows.task.outcome)
    return replace(first, parts=parts)


def _dealt_rows(parts: Mapping[str, Part]) -> dict[str, dict[str, np.ndarray]]:
    """Map each client and split to the source's row numbers, independent of the folds."""
    data = FederatedData(**{**next(iter(parts.values())).load(0).data.arguments, "folds": 0})
    dealt = dict[str, dict[str, np.ndarray]]()
    for table in data.tables():
        numbers = table.features.index.to_numpy()
        dealt[table.name] = {split: numbers[rows] for split, rows in table.splits.items()}
    return dealt
