"""Go-alone models judged by rows that they have not seen: validation rows, or those of the fold that was left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ParameterGrid
from torch import Tensor

from fedlit.composite.alone import fit_rows
from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.folds import fold_of, together
from fedlit.tasks import Score, Task

__all__ = ["FEW_FOLDS", "OUT_OF_FOLD", "Chosen", "Judging", "choose_settings", "scores_on"]

OUT_OF_FOLD = "out_of_fold"  # a split of predictions and scores
FEW_FOLDS = 5  # of the training rows of clients with few validation rows

Make = Callable[[Mapping[str, Any]], Any]
Predicted = tuple[Rows, Tensor]


@dataclass(frozen=True)
class Judging:
    """By which rows settings are chosen.

    Attributes:
        folds: of training and validation rows, on which models are trained; 0 for training rows alone.
        few: of training rows, by which settings are chosen alone; 0 where validation rows choose.
        seed: of the draw of either.
    """

    folds: int = 0
    few: int = 0
    seed: int = 0

    @classmethod
    def of(cls, client: EncodedClient, folds: int, small: int, seed: int) -> Judging:
        """For a client.

        Args:
            client: whose rows they are.
            folds: as the study says.
            small: as the study says; the folds of a small client are the same for all seeds, so that a model without a
                seed is fitted once.
            seed: of the run.
        """
        if folds:
            return cls(folds=folds, seed=seed)
        validation = len(client.sites[client.spec.name]["validation"])
        groups = client.groups_of(client.train)
        most = len(client.train) if groups is None else len(set(groups))
        few = min(FEW_FOLDS, most) if validation < small else 0
        return cls(few=few if few > 1 else 0)


@dataclass(frozen=True)
class Chosen:
    """What came of the best settings.

    Attributes:
        settings: the best, the first of equals.
        predictions: split → its rows and what is predicted of them; ``out_of_fold`` where there were folds.
    """

    settings: dict[str, Any]
    predictions: dict[str, Predicted]


def choose_settings(
    client: EncodedClient, make: Make, grid: Mapping[str, list[Any]], score: Score, judging: Judging
) -> Chosen:
    """The predictions of the settings that are best on rows that a model has not seen.

    Args:
        client: whose rows they are.
        make: an untrained model for settings.
        grid: setting → values.
        score: by which the best are chosen.
        judging: on which rows.
    """
    task, splits = client.spec.task, client.sites[client.spec.name]
    rows, folds = _folds(client, judging)
    best: tuple[float, dict[str, Any], list[Any], Tensor | None] | None = None
    for settings in ParameterGrid(dict(grid)):
        models: list[Any] = []
        unseen = None
        if rows is not None:
            models, unseen = _crossed(task, partial(make, settings), rows, folds)
            value = scores_on(task, unseen, rows)[score.name]
        else:
            models = [fit_rows(task, make(settings), client.train)]
            known = splits["validation"]
            value = scores_on(task, _mean(task, models, known), known)[score.name] if len(known) else math.nan
        if best is None or score.gain(value, best[0]) > 0 or (math.isnan(best[0]) and not math.isnan(value)):
            best = value, dict(settings), models, unseen
    assert best is not None
    _, settings, models, unseen = best
    if judging.few:
        models = [fit_rows(task, make(settings), client.train)]
    predictions: dict[str, Predicted] = {}
    if rows is not None and unseen is not None:
        predictions[OUT_OF_FOLD] = rows, unseen
    for split in ("validation", "test"):
        own = splits[split]
        if len(own):
            seen = split == "validation" and judging.folds  # by all models but one
            made = _those_of(own, rows, unseen) if seen else _mean(task, models, own)
            predictions[split] = own, made
    return Chosen(settings, predictions)


def scores_on(task: Task, predicted: Tensor, rows: Rows) -> dict[str, float]:
    """Scores by name."""
    return {name: float(value) for name, value in task.evaluate(predicted, rows.y).items()}


def _folds(client: EncodedClient, judging: Judging) -> tuple[Rows | None, np.ndarray]:
    """The rows that are in folds, and in which."""
    if not (count := judging.folds or judging.few):
        return None, np.zeros(0, np.int64)
    name = client.spec.name
    nobody = Rows(client.train.x[:0], client.train.y[:0], client.train.row[:0])
    rows = together(client.train, client.sites[name]["validation"] if judging.folds else nobody)
    return rows, fold_of(rows.y.numpy(), count, judging.seed, name, client.groups_of(rows))


def _crossed(task: Task, make: Callable[[], Any], rows: Rows, folds: np.ndarray) -> tuple[list[Any], Tensor]:
    """A model for each fold, trained on the others, and what it predicts of its own."""
    models, made = [], None
    for fold in range(int(folds.max()) + 1):
        own = torch.from_numpy(folds == fold)
        others = Rows(rows.x[~own], rows.y[~own], rows.row[folds != fold])
        models.append(fit_rows(task, make(), others))
        predicted = task.of_model(models[-1], rows.x[own].numpy())
        made = predicted.new_zeros(len(rows), predicted.shape[1]) if made is None else made
        made[own] = predicted
    assert made is not None
    return models, made


def _mean(task: Task, models: list[Any], rows: Rows) -> Tensor:
    made = [task.of_model(model, rows.x.numpy()) for model in models]
    return made[0] if len(made) == 1 else torch.stack(made).mean(0)


def _those_of(own: Rows, rows: Rows | None, unseen: Tensor | None) -> Tensor:
    assert rows is not None and unseen is not None
    return unseen[torch.from_numpy(np.searchsorted(rows.row, own.row))]
