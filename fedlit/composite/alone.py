"""Go-alone models as a part: fitted by each client to its own folds, their settings chosen by held-out rows."""

from __future__ import annotations

import math
import shutil
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import ParameterGrid

from fedlit.composite.parts import Part, held_out
from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import EncodedClient, Rows
from fedlit.errors import RunError
from fedlit.score.arrays import ArrayFunction, as_arrays
from fedlit.score.folder import write
from fedlit.score.scorer import Scorer
from fedlit.tasks import COMPARED, Classification, Task, task_state
from fedlit.tasks.go_alone import MOST_CATEGORIES, GoAlone

__all__ = ["fit_alone", "fit_rows"]

_BATCH = 65_536  # rows at a time through a model: trees are as fast as there are many


def fit_alone(part: Part, by: str | None) -> None:
    """Fit a part's models of all folds and clients; the settings of a client's are the same in all folds.

    Args:
        part: whose ``go_alone`` is a name.
        by: the score that chooses settings; the main one of a client's task if None, or if that task has no such score.

    Raises:
        RunError: no client's task has such a model.
    """
    if all(part.done(fold) for fold in part.each_fold):
        return
    shutil.rmtree(part.fold(0), ignore_errors=True)
    folds = []
    for fold in part.each_fold:
        shutil.rmtree(part.fold(fold), ignore_errors=True)
        data = part.load(fold).data
        data.setup()
        folds.append(data)
    models: list[dict[str, Scorer]] = [{} for _ in folds]
    for place, client in enumerate(folds[0].clients):
        own = [data.clients[place] for data in folds]
        model = client.spec.task.go_alone.get(str(part.settings.go_alone))
        if model is None:
            continue
        for fold, scorer in enumerate(_chosen(part, model, own, [data.encoders for data in folds], by)):
            models[fold][client.spec.name] = scorer
    if not models[0]:
        known = ", ".join(folds[0].specs[0].task.go_alone)
        raise RunError(
            f"part {part.name!r}: expected a client whose task has the model {part.settings.go_alone!r}, found none; "
            + (f"name one of {known}" if known else "this task has no go-alone models: leave the part out")
        )
    for fold, data in enumerate(folds):
        for name, scorer in models[fold].items():
            write(part.fold(fold) / name, scorer)
        rows = {name: own for _, name, own in data.sites("validation")}
        kept = part.scorers(fold)  # what is weighed is what will be read
        part.finish(fold, held_out(kept, rows))


def _chosen(
    part: Part, model: GoAlone, folds: list[EncodedClient], encoders: list[dict[str, TableEncoder]], by: str | None
) -> list[Scorer]:
    """One client's models, of the settings that are best on held-out rows, the first of equals."""
    name = folds[0].spec.name
    task = folds[0].spec.task
    score = COMPARED[by] if by in {own.name for own in task.scores} and by in COMPARED else task.scores[0]
    best: tuple[float, list[Any], dict[str, Any]] | None = None
    grid = part.settings.grid or dict(model.grid)
    several = len(ParameterGrid(dict(grid))) > 1
    for settings in ParameterGrid(dict(grid)):
        fitted = [_fitted(model, dict(settings), own, part.seed) for own in folds]
        value = _mean_score(fitted, folds, score.name) if several else 0.0
        if best is None or score.gain(value, best[0]) > 0 or (math.isnan(best[0]) and not math.isnan(value)):
            best = value, fitted, dict(settings)
    assert best is not None
    made = []
    for own, model_, known in zip(folds, best[1], encoders, strict=True):
        about = {
            "client": str(part.settings.go_alone), "settings": best[2], "rows": dict(own.spec.rows), "epochs": 0,
            "checkpoint": part.name, "version": None, "precision": "32-true",
        }  # fmt: skip
        spec = own.spec
        function = ArrayFunction(*as_arrays(model_), spec.task.outcome, spec.num_features)
        state, classes = task_state(spec.task), spec.sites[0].classes
        made.append(Scorer(name, known[name], function, state, classes=classes, batch=_BATCH, about=about))
    return made


def _fitted(model: GoAlone, settings: dict[str, Any], client: EncodedClient, seed: int) -> Any:
    categorical = [place for place, name in enumerate(client.spec.features) if name in client.categorical]
    wide = [place for place in categorical if client.train.x[:, place].max() >= MOST_CATEGORIES]
    own = model.make(settings, categorical, 0 if model.seedless else seed, torch.get_num_threads(), wide)
    return fit_rows(client.spec.task, own, client.train)


def fit_rows(task: Task, model: Any, rows: Rows) -> Any:
    """Fit a model to the rows whose target is known; where these have one class, it predicts that class."""
    known = task.known(rows.y)
    x, y = rows.x[known].numpy(), rows.y[known].numpy()
    if isinstance(task, Classification) and len(np.unique(y)) == 1:
        model = DummyClassifier(strategy="prior")
    return model.fit(x, y)


def _mean_score(fitted: list[Any], folds: list[EncodedClient], metric: str) -> float:
    """Mean over folds: of a fold each row is predicted by one model, whose scale is its own."""
    found = [
        _score(own.spec.task, model, own.sites[own.spec.name]["validation"], metric)
        for model, own in zip(fitted, folds, strict=True)
    ]
    known = [value for value in found if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _score(task: Task, model: Any, rows: Rows, metric: str) -> float:
    if not len(rows):
        return math.nan
    return float(task.evaluate(task.of_model(model, rows.x.numpy()), rows.y)[metric])
