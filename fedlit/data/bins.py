"""Where the bins of a column of numbers lie: at quantiles of a client's rows, or of all clients'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SKETCHED",
    "Bins",
    "Sketch",
    "agreed_edges",
    "own_edges",
]

Bins = Literal["own", "agreed", "none"]

SKETCHED = 257
"""Order statistics in a sketch."""
MOST_ROWS = 100_000
"""From which a client's own bins are found."""
CLOSEST = 1e-6
"""Of a column's range: edges that are closer are one, for they would fall together in float32 at some client."""


def own_edges(values: NDArray[Any], number: int) -> tuple[float, ...]:
    """Quantiles (``number`` + 1 at most, equal ones once) of a column (n,) as it is encoded; of more than 100,000 rows
    those of each second, or third and so on.

    Example:
        >>> own_edges(np.array([0, 0, 0, 1, 2, 3]), 4)
        (0.0, 0.5, 1.75, 3.0)
    """
    if not len(values):
        return ()
    values = values[:: -(-len(values) // MOST_ROWS)]
    return tuple(np.unique(np.quantile(values, np.linspace(0, 1, number + 1)).astype(np.float32)).tolist())


@dataclass(frozen=True)
class Sketch:
    """A client's sketch of the numbers in a column, from which all clients get the same bins.

    Attributes:
        rows: training rows that have a number there.
        quantiles: the smallest, the largest, and 255 evenly between; none of no row.
    """

    rows: int
    quantiles: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Sketch:
        """Make a sketch of the values (n,) that are not missing (NaN)."""
        values = values[~np.isnan(values)]
        if not len(values):
            return cls(0)
        return cls(len(values), tuple(np.quantile(values, np.linspace(0, 1, SKETCHED)).tolist()))

    def to_list(self) -> list[float]:
        """Plain data: the rows, then the quantiles."""
        return [self.rows, *self.quantiles]

    @classmethod
    def from_list(cls, values: Sequence[float]) -> Sketch:
        """Make it from its plain data."""
        return cls(int(values[0]), tuple(values[1:]))


def agreed_edges(sketches: Sequence[Sketch], number: int) -> tuple[float, ...]:
    """Quantiles (``number`` + 1 at most) of all clients' numbers together, as far as their sketches tell; the first is
    the smallest number of all, the last the largest.

    Example:
        >>> one, two = Sketch.of(np.arange(1001.0)), Sketch.of(np.arange(1000, 3001.0))
        >>> [round(edge) for edge in agreed_edges([one, two], 3)]
        [0, 1000, 2000, 3000]
    """
    sketches = [own for own in sketches if own.rows]
    if not sketches:
        return ()
    values = np.concatenate([own.quantiles for own in sketches])
    weights = np.concatenate([np.full(len(own.quantiles), own.rows / len(own.quantiles)) for own in sketches])
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    shares = (np.cumsum(weights) - weights / 2) / weights.sum()
    edges = np.interp(np.linspace(0, 1, number + 1), shares, values)
    edges[0], edges[-1] = values[0], values[-1]
    apart = [float(edges[0])]
    for edge in edges[1:].tolist():
        if edge - apart[-1] > CLOSEST * (values[-1] - values[0]):
            apart.append(edge)
    if len(apart) > 1:
        apart[-1] = float(values[-1])
    return tuple(apart)
