"""Fits local baselines, which show what a client reaches on its rows alone if its user works with
care.

Settings are chosen on rows that a model has not seen: validation rows, or those of the fold that
was left out.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from filelock import FileLock

from fedlit.data.encoding import EncodedClient
from fedlit.data.folds import fold_of
from fedlit.data.module import FederatedData
from fedlit.jobs.alone import Fold, fit_alone, fit_rows, maker, threads_for
from fedlit.jobs.job import FitAlone, Job, digest_of
from fedlit.jobs.record import FORMAT
from fedlit.run.load import load
from fedlit.study.alone import model_for
from fedlit.study.job import OUT_OF_FOLD, JobResults
from fedlit.tasks import COMPARED
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.predictions import Predictions

FEW_FOLDS = 5
"""Of the training rows of clients with few validation rows."""


def fit_baseline(job: Job) -> tuple[JobResults, dict[str, Any]]:
    """Fit a local baseline for every client of a job's data whose task has it, choose its settings
    on rows that it has not seen, and score it on the test split.

    Returns:
        The predictions of the chosen models, and for the record the chosen settings, the clients
        without this model, and the seconds for those that were fitted before.
    """
    work = job.work
    assert isinstance(work, FitAlone)
    data = _data_of(job)
    results = JobResults()
    chosen = dict[str, Any]()
    seconds = 0.0
    for client, model in _models(job, data):
        client_results, about = _cached(job, work, client, model)
        chosen[client.spec.name] = about["settings"]
        seconds += about["seconds"]
        results.extend(client_results)
    without = [client.spec.name for client in data.clients if client.spec.name not in chosen]
    splits = ("train", "validation") if work.folds else ("train",)
    train_rows = dict[str, int]()
    for client in data.clients:
        train_rows[client.spec.name] = sum(client.spec.rows[split] for split in splits)
    details: dict[str, Any] = {"settings": chosen, "train_rows": train_rows, "seconds": seconds}
    if without:
        details["without"] = without
    return results, details


def fit_client(job: Job, name: str) -> None:
    """Fit a local baseline for one client, so that :func:`fit_baseline` finds it."""
    assert isinstance(job.work, FitAlone)
    for client, model in _models(job, _data_of(job)):
        if client.spec.name == name:
            _cached(job, job.work, client, model)


def data_key(job: Job) -> str:
    """Return what determines the data to which a local baseline is fitted; empty for other jobs."""
    if not isinstance(job.work, FitAlone):
        return ""
    # These are not needed to read the data: they tell it from what the files contained before.
    contents = {key: value for key, value in job.made_of.items() if key.startswith("data")}
    return json.dumps([job.work.config, job.work.overrides, job.seed, contents], default=str)


def _data_of(job: Job) -> FederatedData:
    return _read(data_key(job))


@lru_cache(maxsize=1)
def _read(key: str) -> FederatedData:
    """Read and encode the data of a :func:`data_key`, once for all clients and baselines."""
    config, overrides, seed, _ = json.loads(key)
    data = load(config, overrides={**overrides, "seed": seed}).data
    if data.categories in (None, "auto"):
        # Trees take categories as such, and linear models get a column for each.
        data.categories = "codes"
    data.setup()
    return data


def _models(job: Job, data: FederatedData) -> Iterator[tuple[EncodedClient, GoAlone]]:
    """Yield the clients that have a job's local baseline, each with the model to fit."""
    work = job.work
    assert isinstance(work, FitAlone)
    for client in data.clients:
        task = client.spec.task
        model = model_for(job.method, work.model, task)
        if model is not None and task.name in work.grid:
            yield client, replace(model, grid=work.grid[task.name])


def _cached(
    job: Job, work: FitAlone, client: EncodedClient, model: GoAlone
) -> tuple[JobResults, dict[str, Any]]:
    """Fit a model only once for the same rows, even if it occurs again with other seeds or in other
    studies of this folder.

    Returns:
        The results, and the chosen ``settings`` with the ``seconds`` that it took before to fit
        the model.
    """
    cache = Path(job.folder).parents[2] / "baselines"
    few = 0 if work.folds else _few(client, work.small)
    made_of = {
        "format": FORMAT,
        "rows": client.fingerprint(),
        "categorical": client.categorical,
        "method": job.method,
        "model": work.model,
        "grid": model.grid,
        "choose": job.choose[client.spec.name],
        "folds": work.folds,
        "few": few,
        "scikit-learn": sklearn.__version__,
    }
    # The seed deals the folds, also for models that have no seed.
    if not model.seedless or work.folds:
        made_of["seed"] = job.seed
    # Rows of a group stay in one fold, and the fingerprint of rows does not contain groups.
    if client.groups is not None:
        made_of["groups"] = [*client.groups.items()]
    folder = cache / f"{job.method}-{client.spec.name}-{digest_of(made_of)}"
    locks = cache.with_name(".locks")
    locks.mkdir(parents=True, exist_ok=True)
    # If two workers want the same model, one fits it and the other reads it.
    with FileLock(locks / folder.name):
        # The files may be missing, or cut short by more than a killed process, say a full disk.
        with suppress(OSError, ValueError, LookupError):
            about = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
            fitted = {"settings": about["settings"], "seconds": about["seconds"]}
            return JobResults.read(folder), fitted
        begun = time.perf_counter()
        with threads_for(len(client.train)):
            results, settings = _fit(job, client, model, work.folds, few)
        about = {"settings": settings, "seconds": time.perf_counter() - begun}
        partial = cache / f"{folder.name}.{os.getpid()}.part"
        shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir(parents=True, exist_ok=True)
        results.write(partial)
        (partial / "settings.json").write_text(json.dumps(about), encoding="utf-8")
        # On a machine that cannot lock files, another worker may have written the same folder.
        with suppress(OSError):
            partial.rename(folder)
        # They are read back, so that a result does not depend on who computed it.
        return JobResults.read(folder), about | {"seconds": 0.0}


def _few(client: EncodedClient, small: int) -> int:
    """Return the number of folds of training rows by which a client with few validation rows
    chooses; 0 for any other client.
    """
    groups = client.groups_of(client.train)
    most = len(client.train) if groups is None else len(set(groups))
    few = len(client.sites[client.spec.name]["validation"]) < small
    return min(FEW_FOLDS, most) if few and most > 1 else 0


def _fit(
    job: Job, client: EncodedClient, model: GoAlone, folds: int, few: int
) -> tuple[JobResults, dict[str, Any]]:
    """Return the predictions of the model with the best settings, and these settings.

    Args:
        job: the job, which has the seed and the metric.
        client: the client whose rows are used.
        model: the model, with the settings to choose from.
        folds: the number of folds of training and validation rows; 0 for training rows alone.
        few: the number of folds of training rows that are used only to choose settings; the model
            is then fitted to all of them.
    """
    name = client.spec.name
    task = client.spec.task
    train = client.train
    validation = client.sites[name]["validation"]
    test = client.sites[name]["test"]
    make = maker(model, client, job.seed, *([validation] if folds else []))
    parts = [Fold(task, make, train, validation)]
    if folds or few:
        rows = train.merged(
            validation if folds else validation.some(np.zeros(len(validation), bool))
        )
        # The folds of few rows are the same for all seeds, so that a model without a seed is
        # fitted once.
        seed = job.seed if folds else 0
        fold = fold_of(rows.y.numpy(), folds or few, seed, name, client.groups_of(rows))
        numbers = range(int(fold.max()) + 1)
        parts = [
            Fold(task, make, rows.some(fold != number), rows.some(fold == number))
            for number in numbers
        ]
    fitted, _ = fit_alone(parts, model.grid, COMPARED[job.choose[name]])
    results = JobResults()
    unseen_rows = np.concatenate([part.held_out.row for part in parts])
    order = np.argsort(unseen_rows)
    unseen = torch.cat(fitted.held_out)[torch.from_numpy(order)]
    models = [fit_rows(task, make(fitted.settings), train)] if few else fitted.models
    if folds or few:
        predicted = Predictions.of_model(task, rows.row, rows.y, unseen, rows.weight)
        results.add(name, OUT_OF_FOLD, predicted)
    for split, split_rows in (("validation", validation), ("test", test)):
        if not len(split_rows):
            continue
        if split == "validation" and not few:
            # All models of the folds but one have seen a validation row.
            row = np.searchsorted(unseen_rows[order], split_rows.row)
            predictions = unseen[torch.from_numpy(row)]
        else:
            predictions = torch.stack(
                [task.of_model(fitted_model, split_rows.x.numpy()) for fitted_model in models]
            )
            predictions = predictions[0] if len(predictions) == 1 else predictions.mean(0)
        predicted = Predictions.of_model(
            task, split_rows.row, split_rows.y, predictions, split_rows.weight
        )
        results.add(name, split, predicted)
    return results, fitted.settings
