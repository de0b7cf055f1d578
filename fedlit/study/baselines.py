"""Fits local baselines, which show what a client reaches on its rows alone if its user works with
care.

Settings are chosen on rows that a model has not seen: validation rows, or those of the fold that
was left out.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from filelock import FileLock

from fedlit.data.encoding import EncodedClient
from fedlit.data.folds import fold_of
from fedlit.jobs.alone import Fold, fit_alone, fit_rows, maker
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
        The predictions of the chosen models, and for the record the chosen settings and the clients
        without this model.
    """
    work = job.work
    assert isinstance(work, FitAlone)
    data = load(work.config, overrides={**work.overrides, "seed": job.seed}).data
    if data.categories in (None, "auto"):
        # Trees take categories as such, and linear models get a column for each.
        data.categories = "codes"
    data.setup()
    results = JobResults()
    chosen = dict[str, Any]()
    without = list[str]()
    for client in data.clients:
        name = client.spec.name
        task = client.spec.task
        model = model_for(job.method, work.model, task)
        if model is None or task.name not in work.grid:
            without.append(name)
            continue
        client_results, chosen[name] = _cached(
            job, work, client, replace(model, grid=work.grid[task.name])
        )
        results.extend(client_results)
    splits = ("train", "validation") if work.folds else ("train",)
    train_rows = dict[str, int]()
    for client in data.clients:
        train_rows[client.spec.name] = sum(client.spec.rows[split] for split in splits)
    details: dict[str, Any] = {"settings": chosen, "train_rows": train_rows}
    if without:
        details["without"] = without
    return results, details


def _cached(
    job: Job, work: FitAlone, client: EncodedClient, model: GoAlone
) -> tuple[JobResults, dict[str, Any]]:
    """Fit a model only once for the same rows, even if it occurs again with other seeds or in other
    studies of this folder.
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
            return JobResults.read(folder), json.loads(
                (folder / "settings.json").read_text(encoding="utf-8")
            )
        results, settings = _fit(job, client, model, work.folds, few)
        partial = cache / f"{folder.name}.{os.getpid()}.part"
        shutil.rmtree(folder, ignore_errors=True)
        partial.mkdir(parents=True, exist_ok=True)
        results.write(partial)
        (partial / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        # On a machine that cannot lock files, another worker may have written the same folder.
        with suppress(OSError):
            partial.rename(folder)
        # They are read back, so that a result does not depend on who computed it.
        return JobResults.read(folder), settings


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
