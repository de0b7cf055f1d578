"""What a run's predictions are worth beside their scores: whether they come true, and where to draw the line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from fedlit.tasks import Classification, Task, read_predictions
from fedlit.tasks.curves import at_threshold, best_threshold, binned, brier

__all__ = ["BINS", "CALIBRATION", "FILES", "IMPORTANCE", "JUDGED", "LEAST_OF_CLASS", "calibration", "judged"]

IMPORTANCE, CALIBRATION, JUDGED = "importance.csv", "calibration.csv", "judged.csv"
FILES = (IMPORTANCE, CALIBRATION, JUDGED)
BINS = 10
LEAST_OF_CLASS = 10  # rows of either class, without which a threshold is not chosen or judged


def calibration(predictions: pd.DataFrame) -> pd.DataFrame:
    """How what was predicted of test rows compares with what was true, over :data:`BINS` bins.

    Args:
        predictions: rows of ``predictions.parquet``.

    Returns:
        One row per client and bin that has rows: ``of`` (``class``: the probability of the second of two classes
        against the share of rows that are of it, bins of equal width; ``confidence``: of more classes the probability
        of the predicted one against the share of rows that are of it; ``labels``: the same over all labels of a task
        that may give several; ``number``: predicted against true, bins of equally many rows), ``label``, ``bin``,
        ``predicted``, ``true``, ``rows``.
    """
    found: list[dict[str, Any]] = []
    for client, own in predictions[predictions["split"] == "test"].groupby("client", observed=True):
        what, label, place, first, second = _compared(*read_predictions(own))
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


def judged(predictions: pd.DataFrame) -> pd.DataFrame:
    """Brier's score of test rows, and of clients with two classes a threshold and what comes of it.

    The threshold is chosen on validation rows, where balanced accuracy is largest; sensitivity, specificity and
    precision are of test rows, at it (``chosen``) and at 0.5 (``half``).

    Args:
        predictions: rows of ``predictions.parquet``.

    Returns:
        Columns ``client``, ``label`` (the positive class), ``name``, ``value``: ``rows``, ``classes``, ``brier``,
        ``brier_share`` (of who always predicts the classes' shares among these rows), ``threshold``,
        ``chosen/sensitivity``, …; without thresholds where a split has fewer than :data:`LEAST_OF_CLASS` rows of a
        class.
    """
    found: list[dict[str, Any]] = []
    for client, own in predictions.groupby("client", observed=True):
        for label, name, value in _of_client(own):
            found.append({"client": client, "label": label, "name": name, "value": value})
    return pd.DataFrame(found, columns=["client", "label", "name", "value"])


def _of_client(own: pd.DataFrame) -> list[tuple[str, str, float]]:
    test = own[own["split"] == "test"]
    if test.empty:
        return []
    task, predictions, y = read_predictions(test)
    found = [("", "rows", float(len(test)))]
    if not isinstance(task, Classification) or not np.isfinite(predictions.numpy()).all():
        return found
    labels, given = y.numpy(), predictions.double().numpy()
    shares = np.bincount(labels[labels >= 0], minlength=len(task.classes)) / len(labels)
    always = np.repeat(shares[None], len(labels), axis=0)
    found.append(("", "classes", float(len(task.classes))))
    found += [("", "brier", brier(labels, given)), ("", "brier_share", brier(labels, always))]
    validation = own[own["split"] == "validation"]
    if len(task.classes) != 2 or validation.empty:
        return found
    asked = task.ranked(predictions, y), task.ranked(*read_predictions(validation)[1:])
    if not all(ranked and _enough(next(iter(ranked.values()))[0]) for ranked in asked):
        return found
    (label, (positive, probability)), chooser = next(iter(asked[0].items())), next(iter(asked[1].values()))
    threshold = best_threshold(*chooser)
    found.append((label, "threshold", threshold))
    for place, value in (("chosen", threshold), ("half", 0.5)):
        scores = at_threshold(positive, probability, value)
        found += [(label, f"{place}/{name}", score) for name, score in scores.items()]
    return found


def _enough(positive: np.ndarray) -> bool:
    return bool(min(positive.sum(), (~positive).sum()) >= LEAST_OF_CLASS)
