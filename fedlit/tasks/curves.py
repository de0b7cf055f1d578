"""What predictions of one split look like beside their scores: curves, as numbers. Pictures are drawn elsewhere."""

from __future__ import annotations

import numpy as np

__all__ = [
    "Line", "Ranked", "binned", "largest", "precision_recall", "reliability", "roc",
]  # fmt: skip

Line = tuple[np.ndarray, np.ndarray]
"""(k,) positions to the right, (k,) positions upwards."""

Ranked = dict[str, tuple[np.ndarray, np.ndarray]]
"""Class → (n,) bool, whether each row is of it; (n,) float in [0, 1], the probability that it was given. Each class has
rows inside and outside of it."""


def largest(ranked: Ranked, most: int) -> Ranked:
    """The classes of most rows, in the order of classes.

    Example:
        >>> of = lambda *rows: (np.array(rows), np.array([0.5, 0.5, 0.5]))
        >>> list(largest({"a": of(0, 0, 1), "b": of(1, 0, 1), "c": of(0, 1, 1)}, 2))
        ['b', 'c']
    """
    kept = set(sorted(ranked, key=lambda label: -int(ranked[label][0].sum()))[:most])
    return {label: own for label, own in ranked.items() if label in kept}


def precision_recall(positive: np.ndarray, probability: np.ndarray) -> Line:
    """Recall, precision; see :data:`Ranked` for the arguments.

    Example:
        >>> recall, precision = precision_recall(np.array([True, False, True]), np.array([0.9, 0.8, 0.1]))
        >>> recall.tolist(), precision.round(2).tolist()
        ([1.0, 0.5, 0.5, 0.0], [0.67, 0.5, 1.0, 1.0])
    """
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(positive, probability, drop_intermediate=True)
    return recall, precision


def roc(positive: np.ndarray, probability: np.ndarray) -> Line:
    """False positive rate, true positive rate; see :data:`Ranked` for the arguments.

    Example:
        >>> false, true = roc(np.array([True, False, True]), np.array([0.9, 0.8, 0.1]))
        >>> false.tolist(), true.tolist()
        ([0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0])
    """
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(positive, probability)
    return false, true


def reliability(positive: np.ndarray, probability: np.ndarray, bins: int = 10) -> Line:
    """Mean probability, share of positive rows: how often what was predicted came true, over bins of equal width.

    Args:
        positive: see :data:`Ranked`.
        probability: see :data:`Ranked`.
        bins: how many; those without a row are left out.

    Example:
        >>> predicted, share = reliability(np.array([True, False, True]), np.array([0.75, 0.75, 1.0]), bins=2)
        >>> predicted.round(2).tolist(), share.round(2).tolist()
        ([0.83], [0.67])
    """
    place = np.clip((probability * bins).astype(int), 0, bins - 1)
    _, predicted, share, _ = binned(place, probability, positive)
    return predicted, share


def binned(
    place: np.ndarray, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means of two values over bins; bins without a row are left out.

    Args:
        place: (n,) int, the bin of each row.
        first: (n,) numbers.
        second: (n,) numbers.

    Returns:
        (k,) bins, (k,) means of the first, (k,) means of the second, (k,) rows.

    Example:
        >>> [part.tolist() for part in binned(np.array([2, 0, 2]), np.array([1.0, 5.0, 3.0]), np.array([0, 1, 1]))]
        [[0, 2], [5.0, 2.0], [1.0, 0.5], [1, 2]]
    """
    rows = np.bincount(place)
    known = np.flatnonzero(rows)
    before, behind = (np.bincount(place, own)[known] / rows[known] for own in (first, second))
    return known, before, behind, rows[known]
