"""Test scores of resampled rows: how much they would differ on other rows of the same kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.seeding import derive_seed
from fedlit.study.study import METRICS, TEST_ONLY

__all__ = ["bootstrap_scores", "weighted_scores"]

Numbers = NDArray[np.float64]


def bootstrap_scores(test: pd.DataFrame, resamples: int) -> pd.DataFrame:
    """The scores of :data:`fedlit.study.study.METRICS` of rows drawn with replacement.

    The draws are a function of the client's name, its number of rows and the resample: two models that are scored on
    the same rows are scored on the same draws, so that their difference can be taken draw by draw.

    Args:
        test: columns ``client``, ``row``, ``target``, ``predicted``, ``probability_<label>`` (all missing where a
            client does not have the class).
        resamples: how many draws.

    Returns:
        One row per draw; the columns are (client, metric).
    """
    columns: dict[tuple[str, str], Numbers] = {}
    for client, own in test.groupby("client", observed=True):
        own = own.sort_values("row", kind="stable")
        labels = _labels(own)
        probabilities = own[[f"probability_{label}" for label in labels]].to_numpy(np.float32)
        index = {label: position for position, label in enumerate(labels)}
        target = own["target"].map(index).fillna(-1).to_numpy(np.int64)
        scorer = weighted_scores(probabilities, target)
        draws = [scorer(weights) for weights in _draws(str(client), len(own), resamples)]
        for metric in draws[0] if draws else ():
            columns[str(client), metric] = np.array([draw[metric] for draw in draws])
    return pd.DataFrame(columns, columns=pd.MultiIndex.from_tuples(list(columns), names=["client", "metric"]))


def _labels(own: pd.DataFrame) -> list[str]:
    """The classes that the client has, in the order of the columns."""
    columns = own.columns[own.columns.str.startswith("probability_")]
    found = columns[own[columns].notna().any()]
    found = found if len(found) else columns  # predictions that are not finite: no score, whatever the classes
    return [str(name).removeprefix("probability_") for name in found]


def _draws(client: str, rows: int, resamples: int) -> Iterator[Numbers]:
    for number in range(resamples):
        rng = np.random.default_rng(derive_seed(0, "bootstrap", client, rows, number))
        yield np.bincount(rng.integers(0, rows, rows), minlength=rows).astype(np.float64)


class weighted_scores:
    """Scores of rows that count several times or not at all, by the convention of :mod:`fedlit.tasks.metrics`.

    What does not depend on the weights, above all the order of the rows by score, is computed once.

    Args:
        probabilities: (n, C) float.
        target: (n,) whole numbers in [−1, C).

    Example:
        >>> score = weighted_scores(np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]), np.array([0, 0, 1]))
        >>> score(np.array([1.0, 1.0, 1.0]))["accuracy"], score(np.array([1.0, 0.0, 1.0]))["accuracy"]
        (0.6666666666666666, 1.0)
    """

    def __init__(self, probabilities: NDArray[np.floating], target: NDArray[Any]) -> None:
        self.finite = bool(np.isfinite(probabilities).all()) and len(target) > 0
        self.target = target
        self.classes = probabilities.shape[1]
        self.predicted = probabilities.argmax(1)
        self.right = (self.predicted == target).astype(np.float64)
        # per class that is ranked: rows by falling score, whether each is positive, and the last of equal scores
        self._ranked = []
        for position in [1] if self.classes == 2 else range(self.classes):
            score = probabilities[:, position]
            order = np.argsort(-score, kind="stable")
            ends = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
            self._ranked.append((order, (target[order] == position).astype(np.float64), ends))

    def __call__(self, weights: Numbers) -> dict[str, float]:
        """Scores by name; NaN where undefined.

        Args:
            weights: (n,) how often each row counts.
        """
        if not self.finite:
            return dict.fromkeys((metric for metric in METRICS if metric not in TEST_ONLY), float("nan"))
        auroc, auprc = [], []
        for order, positive, ends in self._ranked:
            counted = weights[order]
            hits = np.cumsum(counted * positive)[ends]
            found = np.cumsum(counted)[ends]
            positives, negatives = hits[-1], found[-1] - hits[-1]
            if not positives or not negatives:
                continue
            gained = np.diff(hits, prepend=0.0)
            misses = found - hits
            auroc.append(
                1 - (gained * (misses + np.concatenate(([0.0], misses[:-1])))).sum() / (2 * positives * negatives)
            )
            auprc.append((gained * hits / np.maximum(found, 1e-300)).sum() / positives)
        known = self.target >= 0
        support = np.bincount(self.target[known], weights[known], minlength=self.classes)
        hit = np.bincount(self.target[known], (weights * self.right)[known], minlength=self.classes)
        present = support > 0
        f1 = 2 * hit / np.maximum(support + np.bincount(self.predicted, weights, minlength=self.classes), 1e-300)
        if self.classes == 2:
            f1_score = float(f1[1]) if present[1] else float("nan")
        else:
            f1_score = float(f1[present].mean()) if present.any() else float("nan")
        return {
            "f1": f1_score,
            "weighted_f1": float((f1 * support)[present].sum() / support.sum()) if present.any() else float("nan"),
            "auroc": float(np.mean(auroc)) if auroc else float("nan"),
            "auprc": float(np.mean(auprc)) if auprc else float("nan"),
            "balanced_accuracy": float((hit[present] / support[present]).mean()) if present.any() else float("nan"),
            "accuracy": float((weights * self.right).sum() / weights.sum()),
        }
