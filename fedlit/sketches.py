"""Sketches of numbers, from which several parties derive the same quantiles of all their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedlit.disclosure import group_means

SKETCHED = 257
"""Order statistics in a sketch."""
CLOSEST = 1e-6
"""Share of a column's range. Edges closer than this are merged, because they could be equal in
float32 at some client."""


def sketch(values: NDArray[np.float64], rows: int = 1, stated: int | None = None) -> list[float]:
    """Return a client's sketch of a column of numbers (n,), from which all clients derive the same
    bins: the count of values that are not missing (NaN), the smallest, the largest and 255 evenly
    spaced quantiles. If all values are missing, it is the count alone.

    Args:
        values: the numbers.
        rows: the number of rows behind each quantile. From 2 on, quantiles are the means of groups
            of so many rows or more (see :func:`fedlit.disclosure.group_means`), and there are as
            many as groups, at most 257.
        stated: a count, at most that of values, to state in place of theirs. The number of
            quantiles then says no more than it.
    """
    values = values[~np.isnan(values)]
    count = len(values) if stated is None else stated
    if not count:
        return [0]
    if rows > 1:
        most = min(count // rows, SKETCHED)
        return [count, *group_means(values, rows, most).tolist()]
    return [count, *np.quantile(values, np.linspace(0, 1, SKETCHED)).tolist()]


def agreed_edges(sketches: Sequence[Sequence[float]], number: int) -> tuple[float, ...]:
    """Estimate at most ``number`` + 1 quantiles of the numbers of all clients together from their
    sketches. The first is the smallest of all that was sent, the last the largest.

    Example:
        >>> one, two = sketch(np.arange(1001.0)), sketch(np.arange(1000, 3001.0))
        >>> [round(edge) for edge in agreed_edges([one, two], 3)]
        [0, 1000, 2000, 3000]
    """
    sketches = [client_sketch for client_sketch in sketches if client_sketch[0]]
    if not sketches:
        return ()
    values, shares = _together(sketches)
    edges = np.interp(np.linspace(0, 1, number + 1), shares, values)
    edges[0] = values[0]
    edges[-1] = values[-1]
    with np.errstate(over="ignore"):  # An infinite range merges all edges.
        closest = CLOSEST * (values[-1] - values[0])
    distinct = [float(edges[0])]
    for edge in edges[1:].tolist():
        if edge - distinct[-1] > closest:
            distinct.append(edge)
    if len(distinct) > 1:
        distinct[-1] = float(values[-1])
    return tuple(distinct)


def agreed_quantile(sketches: Sequence[Sequence[float]], share: float) -> float:
    """Estimate a quantile of the numbers of all clients together from their sketches.

    Args:
        sketches: at least one of some numbers.
        share: the share of numbers that are below, from 0 to 1.

    Example:
        >>> agreed_quantile([sketch(np.repeat([1.0, 9.0], [70, 30]))], 0.5)
        1.0
    """
    values, shares = _together([client_sketch for client_sketch in sketches if client_sketch[0]])
    return float(np.interp(share, shares, values))


def _together(
    sketches: Sequence[Sequence[float]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values of all sketches, ascending, and the share of all numbers up to the middle of
    those that each stands for.
    """
    values = np.concatenate([client_sketch[1:] for client_sketch in sketches])
    weights = np.concatenate(
        [
            np.full(len(client_sketch) - 1, client_sketch[0] / (len(client_sketch) - 1))
            for client_sketch in sketches
        ]
    )
    order = np.argsort(values, kind="stable")
    values = values[order]
    weights = weights[order]
    shares = (np.cumsum(weights) - weights / 2) / weights.sum()
    return values, shares
