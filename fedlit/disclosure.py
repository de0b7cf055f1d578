"""What a party sends of a column of numbers where each value must stand for several rows.

Nothing is drawn at random and no order matters: equal rows give equal values in one process, in
ranks and at sites.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def outer_means(values: NDArray, rows: int) -> tuple[float, float]:
    """Return a range that stands for a column: the mean of the smallest values, and the mean of the
    largest.

    Args:
        values: (n,) numbers, none of them missing.
        rows: the number of values in each mean; with 1 the range is that of the values.

    Returns:
        The lower and the upper end; the empty range (∞, −∞) if there are fewer values than
        ``rows``.

    Raises:
        ValueError: ``rows`` is not at least 1.

    Example:
        >>> ages = np.array([107.0, 21.0, 34.0, 35.0, 36.0, 38.0, 52.0])
        >>> outer_means(ages, 1), outer_means(ages, 3), outer_means(ages, 8)
        ((21.0, 107.0), (30.0, 65.66666666666667), (inf, -inf))
    """
    _check(rows)
    if len(values) < rows:
        return math.inf, -math.inf
    if rows == 1:
        return float(values.min()), float(values.max())
    numbers = np.asarray(values, np.float64)
    # sorted, so that the order of rows does not change how the sum is rounded
    smallest = np.sort(np.partition(numbers, rows - 1)[:rows])
    largest = np.sort(np.partition(numbers, -rows)[-rows:])
    return float(smallest.sum() / rows), float(largest.sum() / rows)


def group_means(values: NDArray, rows: int, most: int) -> NDArray[np.float64]:
    """Return the means of groups of neighbours among the sorted values, in ascending order
    (univariate microaggregation).

    Each value is in one group, so that the mean of all values, which may be known, says no more
    about a single one. The first and the last group have ``rows`` values where there are three or
    more, the others share the rest evenly.

    Args:
        values: (n,) numbers, none of them missing.
        rows: the smallest number of values in a group.
        most: the largest number of groups.

    Returns:
        (groups,) float64; empty if there are fewer values than ``rows``.

    Raises:
        ValueError: ``rows`` is not at least 1.

    Example:
        >>> group_means(np.arange(20.0), 5, 257).tolist()
        [2.0, 7.0, 12.0, 17.0]
        >>> group_means(np.arange(12.0), 5, 257).tolist()
        [2.5, 8.5]
    """
    _check(rows)
    groups = min(most, len(values) // rows)
    if groups == 0:
        return np.zeros(0)
    ordered = np.sort(np.asarray(values, np.float64))
    if groups < 3:
        parts = np.array_split(ordered, groups)
    else:
        parts = [ordered[:rows], *np.array_split(ordered[rows:-rows], groups - 2), ordered[-rows:]]
    with np.errstate(over="ignore"):  # callers refuse what is not finite
        return np.array([part.sum() / len(part) for part in parts])


def _check(rows: int) -> None:
    if rows < 1:
        raise ValueError(f"rows: expected at least 1, found {rows}")
