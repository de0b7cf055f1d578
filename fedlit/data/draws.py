"""Draws two parts of a table's rows, the same rows as scikit-learn's ``train_test_split``, which
takes ten times longer for a small table and a second to import.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

_FEWEST = 2
"""Fewest rows of a class that both parts can have."""


class _Kept(threading.local):
    """A generator for each thread, which every draw seeds anew: a new one takes sixty times longer,
    as it begins with the system's entropy.
    """

    def __init__(self) -> None:
        self.generator = np.random.RandomState()


_KEPT = _Kept()


def two_parts(
    rows: int, second: float, seed: int, labels: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two parts of the positions 0, 1, …, rows − 1.

    Args:
        rows: the number of rows.
        second: the share of the rows in the second part, in (0, 1), rounded up to whole rows; or
            their number, as an integer.
        seed: the seed of the draw.
        labels: (rows,) the labels of the rows, of which both parts get the same shares; None for a
            plain draw.

    Returns:
        The positions (int64) of both parts, in the order drawn.

    Raises:
        ValueError: a part would be empty, or too small to have every label.

    Example:
        >>> [part.tolist() for part in two_parts(6, 0.3, seed=0)]
        [[1, 3, 0, 4], [5, 2]]
        >>> first, second = two_parts(6, 2, 0, labels=["a", "b", "b", "b", "b", "a"])
        >>> sorted(first.tolist()), sorted(second.tolist())
        ([1, 2, 3, 5], [0, 4])
    """
    seconds = second if isinstance(second, int) else math.ceil(second * rows)
    firsts = rows - seconds
    if firsts < 1 or seconds < 1:
        raise ValueError(f"Of {rows} rows, one part would have {min(firsts, seconds)}.")
    generator = _KEPT.generator
    generator.seed(seed)
    if labels is None:
        order = generator.permutation(rows)
        return order[seconds:], order[:seconds]
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if counts.min() < _FEWEST:
        raise ValueError("A class has 1 row alone, but each part needs one.")
    if min(firsts, seconds) < len(counts):
        raise ValueError(
            f"A part of {min(firsts, seconds)} rows cannot have each of {len(counts)} classes."
        )
    in_first = _shares(counts.tolist(), firsts, generator)
    remaining = (counts - in_first).tolist()
    in_second = _shares(remaining, seconds, generator)
    ordered = np.argsort(codes, kind="stable")
    first_rows = list[np.ndarray]()
    second_rows = list[np.ndarray]()
    start = 0
    for count, firsts_of, seconds_of in zip(counts.tolist(), in_first, in_second, strict=True):
        drawn = ordered[start : start + count][generator.permutation(count)]
        first_rows.append(drawn[:firsts_of])
        second_rows.append(drawn[firsts_of : firsts_of + seconds_of])
        start += count
    first_part = generator.permutation(np.concatenate(first_rows))
    return first_part, generator.permutation(np.concatenate(second_rows))


def _shares(counts: list[int], drawn: int, generator: np.random.RandomState) -> list[int]:
    """Return how many of ``drawn`` rows each class gets, in proportion to its rows. The rows that
    rounding leaves over go to the classes with the largest remainders; ties are broken at random.
    """
    total = sum(counts)
    expected = [count / total * drawn for count in counts]
    shares = [int(number) for number in expected]
    remainders = [number - share for number, share in zip(expected, shares, strict=True)]
    tied = dict[float, list[int]]()
    for position, remainder in enumerate(remainders):
        tied.setdefault(remainder, []).append(position)
    left_over = drawn - sum(shares)
    for remainder in sorted(tied, reverse=True):
        if not left_over:
            break
        classes = tied[remainder]
        for index in generator.permutation(len(classes))[:left_over].tolist():
            shares[classes[index]] += 1
        left_over -= min(len(classes), left_over)
    return shares
