"""Scikit-learn models that clients fit alone, with the settings that are best on rows that the
model has not seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import ParameterGrid
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from fedlit.data.encoding import EncodedClient, Rows, joined
from fedlit.tasks import Score, Task
from fedlit.tasks.fitting import fit_weighted
from fedlit.tasks.go_alone import MOST_CATEGORIES, GoAlone

Make = Callable[[Mapping[str, Any]], Any]
_MANY = 1000
"""With no more rows, starting threads takes longer than fitting a model."""


@dataclass(frozen=True)
class Fold:
    """The rows to fit a model to, and the rows that it does not see.

    Attributes:
        task: the task of all these rows.
        make: builds an untrained model from settings.
        train: the rows to fit to.
        held_out: the rows to judge by; there may be none.
    """

    task: Task
    make: Make
    train: Rows
    held_out: Rows


@dataclass(frozen=True)
class Fitted:
    """The best settings, with their models and predictions.

    Attributes:
        settings: the best settings, the first among equals.
        models: the model of each fold.
        held_out: the predictions of each fold's model for its held-out rows.
        value: the score of these predictions; NaN if it is undefined.
    """

    settings: dict[str, Any]
    models: list[Any]
    held_out: list[Tensor]
    value: float


def fit_alone(
    folds: Sequence[Fold], grid: Mapping[str, Sequence[Any]], score: Score, until: float = math.inf
) -> tuple[Fitted, bool]:
    """Fit a model to each fold with each combination of settings, and return the best combination.

    Args:
        folds: the folds of one client. If all have the same task, predictions for all held-out rows
            are judged together; otherwise the mean of the folds' scores counts, because their
            scales differ.
        grid: maps each setting to the values to try.
        score: the score by which settings are chosen.
        until: the time (of ``time.monotonic``) after which only the first combination is tried.

    Returns:
        The best, and whether all combinations were tried.
    """
    best: Fitted | None = None
    combinations = ParameterGrid({key: list(values) for key, values in grid.items()})
    with threads_for(max(len(fold.train) for fold in folds)):
        for settings in combinations:
            if best is not None and time.monotonic() > until:
                return best, False
            fitted = _fitted(folds, dict(settings), score)
            if (
                best is None
                or score.gain(fitted.value, best.value) > 0
                or (math.isnan(best.value) and not math.isnan(fitted.value))
            ):
                best = fitted
    assert best is not None
    return best, True


def _fitted(folds: Sequence[Fold], settings: dict[str, Any], score: Score) -> Fitted:
    """Fit a model to each fold with the same settings."""
    models = [fit_rows(fold.task, fold.make(settings), fold.train) for fold in folds]
    held_out = [_unseen(fold, model) for fold, model in zip(folds, models, strict=True)]
    return Fitted(settings, models, held_out, _value(folds, held_out, score))


def threads_for(rows: int) -> AbstractContextManager[object]:
    """Let models of few rows use one thread, also those that have no argument for it: threads of
    boosting would wait for each other longer than they work.

    Args:
        rows: the number of rows that the models are fitted to.
    """
    return threadpool_limits(1 if rows <= _MANY else None)  # type: ignore[no-any-return]


def _unseen(fold: Fold, model: Any) -> Tensor:
    """Return a model's predictions for the rows that its fold holds out."""
    if not len(fold.held_out):
        return torch.zeros(0)
    return fold.task.of_model(model, fold.held_out.x.numpy())


def _value(folds: Sequence[Fold], held_out: Sequence[Tensor], score: Score) -> float:
    judged = [
        (fold.task, predictions, fold.held_out.y)
        for fold, predictions in zip(folds, held_out, strict=True)
        if len(fold.held_out)
    ]
    weights = [fold.held_out.weight for fold in folds if len(fold.held_out)]
    if judged and all(fold.task is folds[0].task for fold in folds):
        whole = torch.cat([predictions for _, predictions, _ in judged])
        judged = [(folds[0].task, whole, torch.cat([y for *_, y in judged]))]
        weights = [joined([fold.held_out for fold in folds if len(fold.held_out)])]
    values = [
        float(task.evaluate(predictions, y, weight)[score.name])
        for (task, predictions, y), weight in zip(judged, weights, strict=True)
    ]
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def fit_rows(task: Task, model: Any, rows: Rows) -> Any:
    """Fit a model to the rows with a known target. If all of these have one class, the model
    predicts that class.
    """
    labelled = task.known(rows.y)
    x = rows.x[labelled].numpy()
    y = rows.y[labelled].numpy()
    if task.outcome.one_label and len(np.unique(y)) == 1:
        model = DummyClassifier(strategy="prior")
    if rows.weight is None:
        return model.fit(x, y)
    return fit_weighted(model, x, y, rows.weight[labelled].numpy().astype(np.float64))


def maker(model: GoAlone, client: EncodedClient, seed: int, *extra: Rows) -> Make:
    """Return a function that builds an untrained model for a client's columns from settings.

    Args:
        model: the kind of model.
        client: the client whose columns are used.
        seed: the seed of the model's random numbers.
        extra: rows in addition to the training rows, which show which columns have too many
            categories.
    """
    categorical = [
        column for column, name in enumerate(client.spec.features) if name in client.categorical
    ]
    most = torch.cat([rows.x for rows in (client.train, *extra)]).amax(0)
    wide = [column for column in categorical if most[column] >= MOST_CATEGORIES]
    seed = 0 if model.seedless else seed
    threads = torch.get_num_threads() if len(client.train) > _MANY else 1
    return partial(
        model.make,
        categorical=categorical,
        seed=seed,
        threads=threads,
        wide=wide,
        periods=client.spec.task.outcome.times,
    )
