"""Go-alone models of scikit-learn: what a client reaches on its own rows, with the care that a careful user takes."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import sklearn
import torch
from sklearn.base import ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fedlit.data.encoding import EncodedClient
from fedlit.data.table import Split
from fedlit.explain.judge import read_records
from fedlit.study.runs import Job, digest_of, score_rows, tidy
from fedlit.tasks import Task

__all__ = ["GRIDS", "fit_baseline", "make_baseline"]

# Settings of which the best on validation is taken, per client and seed; the first of equals.
GRIDS: dict[str, dict[str, list[Any]]] = {
    "extra_trees": {"n_estimators": [300], "min_samples_leaf": [1, 3], "max_features": ["sqrt", None]},
    "gradient_boosting": {"max_iter": [100, 300], "learning_rate": [0.05], "max_leaf_nodes": [7, 31]},
    "logistic_regression": {"C": [0.01, 0.05, 0.2, 1.0, 10.0], "categories": ["codes", "one_hot"]},
}
MOST_CATEGORIES = 255  # of a column in gradient boosting
# These are given no seed (on the same rows they differ by nothing that matters): they are fitted once.
_SEEDLESS = ("gradient_boosting", "logistic_regression")


def make_baseline(
    name: str,
    settings: Mapping[str, Any],
    categorical: list[int],
    seed: int = 0,
    threads: int = 1,
    wide: Collection[int] = (),
) -> ClassifierMixin:
    """An untrained model.

    Args:
        name: ``extra_trees``, ``gradient_boosting`` or ``logistic_regression``.
        settings: keyword arguments of scikit-learn's class; for logistic regression also ``categories``: whether they
            are numbers (``codes``) or a column each (``one_hot``). Everything is scaled for it.
        categorical: positions of the columns that hold category codes, −1 for missing or unseen.
        seed: of the model's own randomness.
        threads: how many it may use.
        wide: which of these columns have more categories than scikit-learn's gradient boosting takes (255): there their
            codes are numbers.

    Example:
        >>> make_baseline("extra_trees", {"n_estimators": 10}, [])
        ExtraTreesClassifier(n_estimators=10, n_jobs=1, random_state=0)
    """
    if name == "extra_trees":
        return ExtraTreesClassifier(**settings, random_state=seed, n_jobs=threads)
    if name == "gradient_boosting":
        categorical = [position for position in categorical if position not in wide]
        return HistGradientBoostingClassifier(
            **settings, categorical_features=categorical or None, early_stopping=False, random_state=seed
        )
    settings = dict(settings)
    one_hot = settings.pop("categories", "codes") == "one_hot" and categorical
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    expand = [make_column_transformer((encoder, categorical), remainder="passthrough")] if one_hot else []
    return make_pipeline(*expand, StandardScaler(), LogisticRegression(**settings, max_iter=2000, random_state=seed))


def fit_baseline(job: Job) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Fit a baseline on every client of a job's data, choose its settings on validation, score it on the test split.

    Returns:
        Predictions and scores of the chosen models, and for the record which settings were chosen.
    """
    from fedlit.run.load import load

    assert job.grid is not None
    data = load(job.config, *job.arguments, f"--seed={job.seed}").data
    data.setup()
    cache = Path(job.folder).parent.parent.parent / "baselines"
    predictions, scores, chosen = [], [], {}
    for client in data.clients:
        own_predictions, own_scores, settings = _cached(job, client, cache)
        predictions.append(own_predictions)
        scores.append(own_scores)
        chosen[client.spec.name] = settings
    train_rows = {client.spec.name: len(client.train) for client in data.clients}
    details = {"settings": chosen, "train_rows": train_rows}
    return pd.concat(predictions, ignore_index=True), pd.concat(scores, ignore_index=True), details


def _cached(job: Job, client: EncodedClient, cache: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    made_of = [client.fingerprint(), client.categorical, job.method, job.grid, job.choose, sklearn.__version__]
    made_of += [] if job.method in _SEEDLESS else [job.seed]
    folder = cache / f"{job.method}-{client.spec.name}-{digest_of(made_of)}"
    if folder.is_dir():
        try:
            return _read(folder)
        except (OSError, ValueError):  # cut short by more than a killed process, say a full disk
            shutil.rmtree(folder)
    predictions, scores, settings = _choose(job, client)
    partial = cache / f"{folder.name}.{os.getpid()}.part"
    partial.mkdir(parents=True, exist_ok=True)
    predictions.to_parquet(partial / "predictions.parquet", index=False)
    scores.to_csv(partial / "scores.csv", index=False)
    (partial / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    with suppress(OSError):  # another worker was as fast: it wrote the same
        partial.rename(folder)
    return _read(folder)  # even if just computed: a result does not depend on who computed it


def _read(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    return (
        pd.read_parquet(folder / "predictions.parquet"),
        read_records(folder / "scores.csv"),
        json.loads((folder / "settings.json").read_text(encoding="utf-8")),
    )


def _choose(job: Job, client: EncodedClient) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    site = client.spec.name
    features = client.spec.features
    categorical = [position for position, name in enumerate(features) if name in client.categorical]
    validation = client.sites[site]["validation"]
    wide = [position for position in categorical if client.train.x[:, position].max() >= MOST_CATEGORIES]
    seed = 0 if job.method in _SEEDLESS else job.seed
    best: tuple[float, Any, dict[str, Any]] | None = None
    for settings in ParameterGrid(job.grid):
        model = make_baseline(job.method, settings, categorical, seed, torch.get_num_threads(), wide)
        model.fit(client.train.x.numpy(), client.train.y.numpy())
        value = float(_scores(client.spec.task, model, validation)[1][job.choose]) if len(validation) else math.nan
        if best is None or value > best[0] or (math.isnan(best[0]) and not math.isnan(value)):
            best = value, model, dict(settings)
    assert best is not None
    predictions, scores = [], []
    splits: tuple[Split, ...] = ("validation", "test")
    for split in splits:
        rows = client.sites[site][split]
        if not len(rows):
            continue
        predicted, own = _scores(client.spec.task, best[1], rows)
        own |= client.spec.task.evaluate_once(predicted, rows.y) if split == "test" else {}
        predictions.append(tidy(client.spec.task.frame(rows.row, rows.y, predicted), site, split))
        scores += score_rows(own, site, split)
    return pd.concat(predictions, ignore_index=True), pd.DataFrame(scores), best[2]


def _scores(task: Task, model: Any, rows: Any) -> tuple[torch.Tensor, dict[str, float]]:
    probabilities = torch.from_numpy(model.predict_proba(rows.x.numpy())).float()
    scores = task.evaluate(probabilities, rows.y)
    return probabilities, {name: float(value) for name, value in scores.items()}
