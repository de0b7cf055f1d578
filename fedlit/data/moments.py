"""What clients tell of a column of numbers (moments, a sketch), and where its bins lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SKETCHED", "Moments", "agreed_edges", "own_edges", "sketch"]

SKETCHED = 257
"""Order statistics in a sketch."""
MOST_ROWS = 100_000
"""From which a client's own bins are found."""
CLOSEST = 1e-6
"""Of a column's range: edges that are closer are one, for they would fall together in float32 at some client."""


@dataclass(frozen=True)
class Moments:
    """The moments of the numbers in one column.

    Attributes:
        count: how many.
        mean: their mean.
        variance: their mean squared distance from it.

    Example:
        >>> first, second = Moments.of(np.array([1.0, 3.0])), Moments.of(np.array([8.0, np.nan]))
        >>> Moments.pooled([first, second])
        Moments(count=3, mean=4.0, variance=8.666666666666666)
        >>> bool(np.isclose(np.var([1, 3, 8]), 8 + 2 / 3))
        True
    """

    count: int
    mean: float
    variance: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Moments | None:
        """Compute the moments of the values (n,) that are not missing (NaN); None if all are missing."""
        values = values[~np.isnan(values)]
        if not len(values):
            return None
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not finite
            mean = values.sum() / len(values)
            apart = values - mean
            # Chan, Golub and LeVeque 1983: the second term corrects the mean's own rounding
            variance = ((apart**2).sum() - apart.sum() ** 2 / len(values)) / len(values)
        return cls(len(values), float(mean), float(variance))

    @classmethod
    def pooled(cls, parts: Sequence[Moments]) -> Moments | None:
        """Combine the moments of all parts (Chan, Golub and LeVeque 1983, Eq. 2.1); None if there are none."""
        if len(parts) < 2:
            return parts[0] if parts else None
        counts, means, variances = (
            np.array(values, np.float64)
            for values in zip(*((part.count, part.mean, part.variance) for part in parts), strict=True)
        )
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not finite
            mean = (counts * means).sum() / counts.sum()
            variance = (counts * (variances + (means - mean) ** 2)).sum() / counts.sum()
        return cls(int(counts.sum()), float(mean), float(variance))

    def to_list(self) -> list[float]:
        """Plain data: ``Moments(*to_list())`` is the same."""
        return list(vars(self).values())

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(values − mean) / standard deviation, any shape; a column that is constant up to rounding keeps its unit."""
        # scikit-learn's bound for the error of a variance of equal numbers
        epsilon = np.finfo(np.float64).eps
        rounding = self.count * epsilon * self.variance + (self.count * self.mean * epsilon) ** 2
        scale = 1.0 if self.variance <= rounding else math.sqrt(self.variance)
        with np.errstate(over="ignore", invalid="ignore"):
            return (values - self.mean) / scale


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


def sketch(values: NDArray[np.float64]) -> list[float]:
    """A client's sketch of the numbers in a column (n,), from which all clients get the same bins: how many are not
    missing (NaN); and the smallest, the largest and 255 quantiles evenly between, unless all are missing.
    """
    values = values[~np.isnan(values)]
    return [len(values), *(np.quantile(values, np.linspace(0, 1, SKETCHED)).tolist() if len(values) else [])]


def agreed_edges(sketches: Sequence[Sequence[float]], number: int) -> tuple[float, ...]:
    """Quantiles (``number`` + 1 at most) of all clients' numbers together, as far as their sketches tell; the first is
    the smallest number of all, the last the largest.

    Example:
        >>> one, two = sketch(np.arange(1001.0)), sketch(np.arange(1000, 3001.0))
        >>> [round(edge) for edge in agreed_edges([one, two], 3)]
        [0, 1000, 2000, 3000]
    """
    sketches = [own for own in sketches if own[0]]
    if not sketches:
        return ()
    values = np.concatenate([own[1:] for own in sketches])
    weights = np.concatenate([np.full(len(own) - 1, own[0] / (len(own) - 1)) for own in sketches])
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
