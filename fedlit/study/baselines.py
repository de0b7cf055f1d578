"""Go-alone models, fitted: what a client reaches on its own rows, with the care that a careful user takes."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import sklearn
import torch
from sklearn.model_selection import ParameterGrid

from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.table import Split
from fedlit.explain.judge import read_records
from fedlit.run.load import load
from fedlit.study.job import FORMAT, PREDICTIONS, SCORE_FILE, Job, digest_of, score_rows, tidy
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED, Task
from fedlit.tasks.go_alone import MOST_CATEGORIES, GoAlone

__all__ = ["fit_baseline"]

Fitted = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]


def fit_baseline(job: Job) -> Fitted:
    """Fit a go-alone model on every client of a job's data whose task has it, choose its settings on validation, score
    it on the test split.

    Returns:
        Predictions and scores of the chosen models, and for the record which settings were chosen, and which clients go
        without this model.
    """
    assert job.grid is not None
    data = load(job.config, *job.arguments, f"--seed={job.seed}").data
    if data.categories in (None, "auto"):
        data.categories = "codes"  # trees take categories as such, and linear models a column for each
    data.setup()
    cache = Path(job.folder).parent.parent.parent / "baselines"
    predictions, scores, chosen, without = [], [], {}, []
    for client in data.clients:
        task, name = client.spec.task, client.spec.name
        if task.name not in job.grid:
            without.append(name)
            continue
        fitted = _cached(job, client, task.go_alone[job.method], job.grid[task.name], cache)
        predictions.append(fitted[0])
        scores.append(fitted[1])
        chosen[name] = fitted[2]
    train_rows = {client.spec.name: len(client.train) for client in data.clients}
    details = {"settings": chosen, "train_rows": train_rows, **({"without": without} if without else {})}
    return pd.concat(predictions, ignore_index=True), pd.concat(scores, ignore_index=True), details


def _cached(job: Job, client: EncodedClient, model: GoAlone, grid: Mapping[str, list[Any]], cache: Path) -> Fitted:
    made_of = [client.fingerprint(), client.categorical, job.method, grid, job.choose, sklearn.__version__, FORMAT]
    made_of += [] if model.seedless else [job.seed]
    folder = cache / f"{job.method}-{client.spec.name}-{digest_of(made_of)}"
    if folder.is_dir():
        try:
            return _read(folder)
        except (OSError, ValueError):  # cut short by more than a killed process, say a full disk
            shutil.rmtree(folder)
    predictions, scores, settings = _choose(job, client, model, grid)
    partial = cache / f"{folder.name}.{os.getpid()}.part"
    partial.mkdir(parents=True, exist_ok=True)
    predictions.to_parquet(partial / PREDICTIONS, index=False)
    scores.to_csv(partial / SCORE_FILE, index=False)
    (partial / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    with suppress(OSError):  # another worker was as fast: it wrote the same
        partial.rename(folder)
    return _read(folder)  # even if just computed: a result does not depend on who computed it


def _read(folder: Path) -> Fitted:
    return (
        pd.read_parquet(folder / PREDICTIONS),
        read_records(folder / SCORE_FILE),
        json.loads((folder / "settings.json").read_text(encoding="utf-8")),
    )


def _choose(job: Job, client: EncodedClient, model: GoAlone, grid: Mapping[str, list[Any]]) -> Fitted:
    """The model with the settings that are best on validation, the first of equals."""
    site = client.spec.name
    task, score = client.spec.task, COMPARED[choice_of(job.choose, site)]
    categorical = [position for position, name in enumerate(client.spec.features) if name in client.categorical]
    wide = [position for position in categorical if client.train.x[:, position].max() >= MOST_CATEGORIES]
    validation = client.sites[site]["validation"]
    seed = 0 if model.seedless else job.seed
    best: tuple[float, Any, dict[str, Any]] | None = None
    for settings in ParameterGrid(dict(grid)):
        own = model.make(settings, categorical, seed, torch.get_num_threads(), wide)
        own.fit(client.train.x.numpy(), client.train.y.numpy())
        value = float(_scores(task, own, validation)[1][score.name]) if len(validation) else math.nan
        if best is None or score.gain(value, best[0]) > 0 or (math.isnan(best[0]) and not math.isnan(value)):
            best = value, own, dict(settings)
    assert best is not None
    predictions, scores = [], []
    splits: tuple[Split, ...] = ("validation", "test")
    for split in splits:
        rows = client.sites[site][split]
        if not len(rows):
            continue
        predicted, scored = _scores(task, best[1], rows)
        scored |= task.evaluate_once(predicted, rows.y) if split == "test" else {}
        predictions.append(tidy(task.frame(rows.row, rows.y, predicted).assign(task=task.name), site, split))
        scores += score_rows(scored, site, split)
    return pd.concat(predictions, ignore_index=True), pd.DataFrame(scores), best[2]


def _scores(task: Task, model: Any, rows: Rows) -> tuple[torch.Tensor, dict[str, float]]:
    predicted = task.of_model(model, rows.x.numpy())
    return predicted, {name: float(value) for name, value in task.evaluate(predicted, rows.y).items()}
