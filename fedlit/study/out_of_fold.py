"""Local baselines judged by rows that they have not seen: validation rows, or those of the fold that was left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.folds import fold_of, together
from fedlit.mixture.alone import Fold, fit_alone, fit_rows
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
    whole, folds = _folds(client, make, judging)
    fitted, _ = fit_alone(folds, grid, score)
    models, rows, unseen = fitted.models, None, torch.zeros(0)
    if whole is not None:  # in the order of row numbers
        places = torch.from_numpy(np.searchsorted(whole.row, np.concatenate([own.held.row for own in folds])))
        rows, unseen = whole, torch.cat(fitted.held)[torch.argsort(places)]
    if judging.few:
        models = [fit_rows(task, make(fitted.settings), client.train)]
    predictions: dict[str, Predicted] = {} if rows is None else {OUT_OF_FOLD: (rows, unseen)}
    for split in ("validation", "test"):
        own = splits[split]
        if len(own):
            made = _mean(task, models, own)
            if rows is not None and judging.folds and split == "validation":  # seen by all models but one
                made = unseen[torch.from_numpy(np.searchsorted(rows.row, own.row))]
            predictions[split] = own, made
    return Chosen(fitted.settings, predictions)


def scores_on(task: Task, predicted: Tensor, rows: Rows) -> dict[str, float]:
    """Scores by name."""
    return {name: float(value) for name, value in task.evaluate(predicted, rows.y).items()}


def _folds(client: EncodedClient, make: Make, judging: Judging) -> tuple[Rows | None, list[Fold]]:
    """The rows that are in folds, and the folds; without folds the training rows, and validation rows to judge by."""
    name, task = client.spec.name, client.spec.task
    validation = client.sites[name]["validation"]
    if not (count := judging.folds or judging.few):
        return None, [Fold(task, make, client.train, validation)]
    nobody = Rows(client.train.x[:0], client.train.y[:0], client.train.row[:0])
    rows = together(client.train, validation if judging.folds else nobody)
    fold = fold_of(rows.y.numpy(), count, judging.seed, name, client.groups_of(rows))
    return rows, [
        Fold(task, make, _some(rows, fold != number), _some(rows, fold == number))
        for number in range(int(fold.max()) + 1)
    ]


def _some(rows: Rows, chosen: np.ndarray) -> Rows:
    place = torch.from_numpy(chosen)
    return Rows(rows.x[place], rows.y[place], rows.row[chosen])


def _mean(task: Task, models: list[Any], rows: Rows) -> Tensor:
    made = [task.of_model(model, rows.x.numpy()) for model in models]
    return made[0] if len(made) == 1 else torch.stack(made).mean(0)
