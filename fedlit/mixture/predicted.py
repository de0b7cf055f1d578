"""What the parts of a mixture predict for each client's rows: for test rows the mean of the folds'
models, for held-out rows the model that was not trained on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.table import ClientTable, Split
from fedlit.mixture.parts import Part
from fedlit.score.mixed_scorer import united
from fedlit.score.scorer import Scorer
from fedlit.tasks import Task, task_from
from fedlit.tasks.predictions import Predictions


def predicted(parts: Mapping[str, Part], split: Split) -> dict[str, Predictions]:
    """Map each client to its parts' predictions for its rows.

    Args:
        parts: the trained parts.
        split: ``test``, for which each part predicts the mean of its folds' models; or
            ``validation``, in which each row is predicted by the model of the fold that it was held
            out of.
    """
    by_part: dict[str, dict[str, list[_OfFold]]] = {}
    targets: dict[str, dict[int, Any]] = {}
    for name, part in parts.items():
        for fold in part.each_fold:
            tables = {table.name: table for table in part.load(fold).data.tables()}
            for client, scorer in part.scorers(fold).items():
                rows = tables[client].splits[split]
                predictions = scorer.of_inputs(
                    scorer.encoder.transform(tables[client].features.iloc[rows])
                )
                weight = _weights(tables[client], rows)
                of_fold = _OfFold(
                    scorer,
                    fold,
                    tables[client].features.index.to_numpy()[rows],
                    predictions,
                    weight,
                )
                by_part.setdefault(client, {}).setdefault(name, []).append(of_fold)
                targets.setdefault(client, {})[fold] = tables[client].target.iloc[rows]
    return {
        client: _together(by_part[client], targets[client], split) for client in sorted(by_part)
    }


@dataclass(frozen=True)
class _OfFold:
    """The predictions of a fold's model for rows."""

    scorer: Scorer
    fold: int
    row: np.ndarray
    predictions: np.ndarray
    weight: Tensor | None


def _weights(table: ClientTable, rows: np.ndarray) -> Tensor | None:
    return None if table.weights is None else torch.from_numpy(table.weights[rows])


def _together(
    parts: Mapping[str, list[_OfFold]], targets: Mapping[int, Any], split: Split
) -> Predictions:
    """Combine the parts' predictions for a client's rows, in ascending order of row numbers."""
    every = itertools.chain.from_iterable(parts.values())
    task = task_from(united([of_fold.scorer.own_state for of_fold in every]))
    first = next(iter(parts.values()))
    arrays = {name: _in_order(folds, task) for name, folds in parts.items()}
    if split == "test":
        y = task.encode(targets[first[0].fold])
        means = {name: np.asarray(sum(folds)) / len(folds) for name, folds in arrays.items()}
        return Predictions(task, first[0].row, y, means, weight=first[0].weight)
    row = np.concatenate([of_fold.row for of_fold in first])
    fold = np.concatenate([np.full(of_fold.row.shape, of_fold.fold) for of_fold in first])
    order = np.argsort(row, kind="stable")
    y = task.encode(pd.concat([targets[of_fold.fold] for of_fold in first]))
    weights = [of_fold.weight for of_fold in first if of_fold.weight is not None]
    weight = torch.cat(weights) if weights else None
    joined = {name: np.concatenate(folds) for name, folds in arrays.items()}
    return Predictions(task, row, y, joined, fold, weight).some(order)


def _in_order(folds: Sequence[_OfFold], task: Task) -> list[np.ndarray]:
    """Return the predictions of each fold's model in the order of the task's classes, or at its
    times.
    """
    outcome = task.outcome
    return [outcome.aligned(fold.predictions, fold.scorer.outcome) for fold in folds]
