"""Whether what a run predicts comes true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from fedlit.tasks import Classification, Task, read_predictions
from fedlit.tasks.curves import binned

__all__ = ["BINS", "CALIBRATION", "FILES", "IMPORTANCE", "Tested", "calibration", "read_tested"]

IMPORTANCE, CALIBRATION = "importance.csv", "calibration.csv"
FILES = (IMPORTANCE, CALIBRATION)
BINS = 10
Tested = Mapping[str, tuple[Task, Tensor, Tensor]]
"""Client → its task, the predictions of its test rows, their targets."""


def read_tested(predictions: pd.DataFrame) -> Tested:
    """The test rows of ``predictions.parquet`` as tensors, in the order of their numbers."""
    test = predictions[predictions["split"] == "test"].sort_values("row", kind="stable")
    return {str(client): read_predictions(own) for client, own in test.groupby("client", observed=True)}


def calibration(tested: Tested) -> pd.DataFrame:
    """How what was predicted of test rows compares with what was true, over :data:`BINS` bins.

    Args:
        tested: as :func:`read_tested` gives it.

    Returns:
        One row per client and bin that has rows: ``of`` (``class``: the probability of the second of two classes
        against the share of rows that are of it, bins of equal width; ``confidence``: of more classes the probability
        of the predicted one against the share of rows that are of it; ``labels``: the same over all labels of a task
        that may give several; ``number``: predicted against true, bins of equally many rows), ``label``, ``bin``,
        ``predicted``, ``true``, ``rows``.
    """
    found: list[dict[str, Any]] = []
    for client, own in tested.items():
        what, label, place, first, second = _compared(*own)
        for number, predicted, true, rows in zip(*binned(place, first, second), strict=True):
            row = {"client": client, "of": what, "label": label, "bin": number}
            found.append({**row, "predicted": predicted, "true": true, "rows": rows})
    return pd.DataFrame(found, columns=["client", "of", "label", "bin", "predicted", "true", "rows"])


def _compared(task: Task, predictions: Tensor, y: Tensor) -> tuple[str, str, np.ndarray, np.ndarray, np.ndarray]:
    """Of what, its label, and of each row the bin, what was predicted, what was true."""
    nothing = np.zeros(0)
    if (line := task.numbers(predictions, y)) is not None:
        true, number = line
        order = np.argsort(np.argsort(number, kind="stable"), kind="stable")
        return "number", "", order * BINS // len(number), number, true
    ranked = task.ranked(predictions, y)
    if not ranked:
        return "", "", nothing.astype(int), nothing, nothing
    if len(ranked) == 1:
        what, (label, (happened, probability)) = "class", next(iter(ranked.items()))
    elif isinstance(task, Classification):
        what, label = "confidence", ""
        probability = predictions.max(1).values.double().numpy()
        happened = (predictions.argmax(1) == y).numpy()
    else:
        what, label = "labels", ""
        happened, probability = (np.concatenate(parts) for parts in zip(*ranked.values(), strict=True))
    return what, label, np.clip((probability * BINS).astype(int), 0, BINS - 1), probability, happened
