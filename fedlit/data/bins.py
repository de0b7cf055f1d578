"""Where the bins of a column of numbers lie: at quantiles of a client's rows or of all clients', or where declared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import ConfigError, did_you_mean

__all__ = [
    "SKETCHED",
    "Bins",
    "Sketch",
    "agreed_edges",
    "check_bins",
    "check_ranges",
    "declared_edges",
    "own_edges",
]

Bins = Literal["own", "agreed", "none"] | dict[str, list[float]]

SKETCHED = 257
"""Order statistics in a sketch."""
MOST_ROWS = 100_000
"""From which a client's own bins are found."""
CLOSEST = 1e-6
"""Of a column's range: edges that are closer are one, for they would fall together in float32 at some client."""


def check_bins(bins: Bins, number: int) -> None:
    """Refuse what a configuration cannot say.

    Raises:
        ConfigError: no bins, or no range [low, high] of a column.
    """
    if number < 1:
        raise ConfigError(f"data.num_bins: expected at least 1, found {number}")
    for column, own in bins.items() if isinstance(bins, Mapping) else ():
        if len(own) != 2 or not all(map(math.isfinite, own)) or own[0] >= own[1]:
            raise ConfigError(f"data.bins: {column}: expected [low, high] with low < high, found {own}")


def check_ranges(bins: Bins, columns: Iterable[str], complete: bool) -> None:
    """Refuse the range of a column that no client has.

    Args:
        bins: the setting.
        columns: of the clients here.
        complete: whether these are all clients.

    Raises:
        ConfigError: there is none of this name.
    """
    known = set(columns)
    for column in bins if isinstance(bins, Mapping) and complete else ():
        if column not in known:
            raise ConfigError(
                f"data.bins: expected names of columns, found {column!r}, which no client has."
                + did_you_mean(column, known)
            )


def declared_edges(bins: Bins, column: str, number: int) -> tuple[float, ...]:
    """Make ``number`` bins of equal width; none for a column whose range is not declared.

    Example:
        >>> declared_edges({"age": [0, 100]}, "age", 4)
        (0.0, 25.0, 50.0, 75.0, 100.0)
    """
    if not isinstance(bins, Mapping) or column not in bins:
        return ()
    low, high = bins[column]
    return tuple(np.linspace(low, high, number + 1).tolist())


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
