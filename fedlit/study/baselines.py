"""Local baselines, fitted: what a client reaches on its own rows, with the care that a careful user takes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import sklearn
from filelock import FileLock

from fedlit.data.encoding import EncodedClient
from fedlit.files import read_named
from fedlit.mixture.alone import maker
from fedlit.run.load import load
from fedlit.study.alone import model_for
from fedlit.study.job import FORMAT, PREDICTIONS, SCORE_FILE, FitAlone, Job, digest_of, score_rows, tidy
from fedlit.study.out_of_fold import Judging, choose_settings, scores_on
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED
from fedlit.tasks.go_alone import GoAlone

__all__ = ["fit_baseline"]

Fitted = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]


def fit_baseline(job: Job) -> Fitted:
    """Fit a local baseline on every client of a job's data whose task has it, choose its settings on rows that it has
    not seen, score it on the test split.

    Returns:
        Predictions and scores of the chosen models, and for the record which settings were chosen, and which clients go
        without this model.
    """
    work = job.work
    assert isinstance(work, FitAlone)
    data = load(work.config, *work.arguments, f"--seed={job.seed}").data
    if data.categories in (None, "auto"):
        data.categories = "codes"  # trees take categories as such, and linear models a column for each
    data.setup()
    cache = Path(job.folder).parent.parent.parent / "baselines"
    predictions, scores, chosen, without = [], [], {}, []
    for client in data.clients:
        task, name = client.spec.task, client.spec.name
        model = model_for(job.method, work.model, task)
        if model is None or task.name not in work.grid:
            without.append(name)
            continue
        fitted = _cached(job, work, client, model, work.grid[task.name], cache)
        predictions.append(fitted[0])
        scores.append(fitted[1])
        chosen[name] = fitted[2]
    train_rows = {client.spec.name: len(client.train) for client in data.clients}
    details = {"settings": chosen, "train_rows": train_rows, **({"without": without} if without else {})}
    return pd.concat(predictions, ignore_index=True), pd.concat(scores, ignore_index=True), details


def _cached(
    job: Job, work: FitAlone, client: EncodedClient, model: GoAlone, grid: Mapping[str, list[Any]], cache: Path
) -> Fitted:
    judging = Judging.of(client, work.folds, work.small, job.seed)
    made_of = [client.fingerprint(), client.categorical, job.method, grid, job.choose, sklearn.__version__, FORMAT]
    made_of += [work.model, judging.folds, judging.few, judging.seed]
    made_of += [version("lightgbm")] if job.method == "lightgbm" else []
    made_of += [] if model.seedless else [job.seed]
    folder = cache / f"{job.method}-{client.spec.name}-{digest_of(made_of)}"
    locks = cache.with_name(".locks")
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / folder.name):  # of two workers that want the same, one fits and the other reads
        if folder.is_dir():
            try:
                return _read(folder)
            except (OSError, ValueError):  # cut short by more than a killed process, say a full disk
                shutil.rmtree(folder)
        predictions, scores, settings = _choose(job, client, model, grid, judging)
        partial = cache / f"{folder.name}.{os.getpid()}.part"
        partial.mkdir(parents=True, exist_ok=True)
        predictions.to_parquet(partial / PREDICTIONS, index=False)
        scores.to_csv(partial / SCORE_FILE, index=False)
        (partial / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        with suppress(OSError):  # a machine on which files cannot be locked: another worker wrote the same
            partial.rename(folder)
        return _read(folder)  # even if just computed: a result does not depend on who computed it


def _read(folder: Path) -> Fitted:
    return (
        pd.read_parquet(folder / PREDICTIONS),
        read_named(folder / SCORE_FILE),
        json.loads((folder / "settings.json").read_text(encoding="utf-8")),
    )


def _choose(job: Job, client: EncodedClient, model: GoAlone, grid: Mapping[str, list[Any]], judging: Judging) -> Fitted:
    """Predictions and scores of the model with the best settings."""
    site, task = client.spec.name, client.spec.task
    known = [client.sites[site]["validation"]] if judging.folds else []
    make = maker(model, client, job.seed, *known)
    chosen = choose_settings(client, make, grid, COMPARED[choice_of(job.choose, site)], judging)
    predictions, scores = [], []
    for split, (rows, predicted) in chosen.predictions.items():
        scored = scores_on(task, predicted, rows)
        scored |= task.evaluate_once(predicted, rows.y) if split == "test" else {}
        predictions.append(tidy(task.frame(rows.row, rows.y, predicted).assign(task=task.name), site, split))
        scores += score_rows(scored, site, split)
    return pd.concat(predictions, ignore_index=True), pd.DataFrame(scores), chosen.settings
