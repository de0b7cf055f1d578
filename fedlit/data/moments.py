"""What clients send about a column of numbers (moments or a sketch), and where its bins lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 100_000
"""Largest number of rows that determine the edges of a client's own bins."""
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Moments:
    """The moments of the numbers in one column.

    Attributes:
        count: the number of values.
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
        """Compute the moments of the values (n,) that are not missing (NaN); None if all are
        missing.
        """
        (moments,) = cls.of_each(values[np.newaxis])
        return moments

    @classmethod
    def of_each(cls, columns: NDArray[np.float64]) -> list[Moments | None]:
        """Compute the moments of each of several columns (columns, n), see :meth:`of`.

        Columns with equally many values form one array. Each is summed along its own row, in the
        same order as alone, so the bits do not depend on the other columns, nor on other clients.

        Example:
            >>> Moments.of_each(np.array([[1.0, 3.0], [8.0, np.nan], [np.nan, np.nan]]))
            [Moments(count=2, mean=2.0, variance=1.0), Moments(count=1, mean=8.0, variance=0.0), None]
        """
        present = ~np.isnan(columns)
        return cls.of_runs(columns[present], present.sum(axis=1))

    @classmethod
    def of_runs(
        cls, values: NDArray[np.float64], counts: NDArray[np.int64]
    ) -> list[Moments | None]:
        """Compute the moments of runs of numbers that stand one behind the other, such as those of
        a column at each of several clients.

        Args:
            values: the numbers, none missing.
            counts: how many of them each run has.

        Example:
            >>> Moments.of_runs(np.array([1.0, 3.0, 8.0]), np.array([2, 0, 1]))
            [Moments(count=2, mean=2.0, variance=1.0), None, Moments(count=1, mean=8.0, variance=0.0)]
        """
        moments: list[Moments | None] = [None] * len(counts)
        starts = np.cumsum(counts) - counts
        for count in np.unique(counts[counts > 0]).tolist():
            chosen = np.flatnonzero(counts == count)
            runs = values[starts[chosen, np.newaxis] + np.arange(count)]
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not finite
                means = runs.sum(axis=1) / count
                deviations = runs - means[:, np.newaxis]
                # Chan, Golub and LeVeque 1983: the second term corrects the rounding of the mean.
                # One by one, because NumPy rounds the power of a number and of an array differently.
                rounding = np.array([total**2 for total in deviations.sum(axis=1)])
                variances = ((deviations**2).sum(axis=1) - rounding / count) / count
            for position, mean, variance in zip(
                chosen.tolist(), means.tolist(), variances.tolist(), strict=True
            ):
                moments[position] = cls(count, mean, variance)
        return moments

    @classmethod
    def pooled(cls, parts: Sequence[Moments]) -> Moments | None:
        """Combine the moments of all parts (Chan, Golub and LeVeque 1983, Eq. 2.1); None if there
        are none.
        """
        if len(parts) < 2:
            return parts[0] if parts else None
        counts = np.array([part.count for part in parts], np.float64)
        means = np.array([part.mean for part in parts], np.float64)
        variances = np.array([part.variance for part in parts], np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not finite
            mean = (counts * means).sum() / counts.sum()
            variance = (counts * (variances + (means - mean) ** 2)).sum() / counts.sum()
        return cls(int(counts.sum()), float(mean), float(variance))

    def to_list(self) -> list[float]:
        """Return plain data, from which ``Moments(*to_list())`` restores the moments."""
        return list(vars(self).values())

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (values − mean) / standard deviation for values of any shape. A column that is
        constant up to rounding is only centred.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return (values - self.mean) / self.scale

    @property
    def scale(self) -> float:
        """The standard deviation; 1 if the numbers are constant up to rounding."""
        with np.errstate(over="ignore", invalid="ignore"):
            # This is scikit-learn's bound for the error of a variance of equal numbers.
            rounding = (
                self.count * _EPSILON * self.variance + (self.count * self.mean * _EPSILON) ** 2
            )
        return 1.0 if self.variance <= rounding else math.sqrt(self.variance)

    @property
    def is_finite(self) -> bool:
        """Whether neither the mean nor the variance overflowed."""
        return math.isfinite(self.mean) and math.isfinite(self.variance)


def standardise(
    moments: Sequence[Sequence[Moments | None]],
    columns: NDArray[np.float64],
    sizes: NDArray[np.int64],
    scaling: str,
) -> NDArray[np.float64]:
    """Standardise columns of numbers at one or several clients by their moments; missing numbers
    become the mean. A column without moments becomes 0, and one whose moments overflowed infinite,
    which the caller refuses.

    Args:
        moments: the moments of each column at each client.
        columns: (columns, n) the numbers of the first client, then those of the second, and so on.
        sizes: (clients,) the number of rows of each client.
        scaling: ``none`` leaves numbers that are not missing as they are.

    Example:
        >>> moments = [[Moments(2, 3.0, 4.0)], [None]]
        >>> standardise(moments, np.array([[5.0, np.nan], [1.0, 2.0]]), np.array([2]), "client")
        array([[1., 0.],
               [0., 0.]])
    """
    means = np.zeros((len(moments), len(sizes)))
    scales = np.ones_like(means)
    fixed = np.full_like(means, np.nan)
    for position, of_clients in enumerate(moments):
        for client, part in enumerate(of_clients):
            if part is None:
                fixed[position, client] = 0.0
            elif not part.is_finite:
                fixed[position, client] = np.inf
            else:
                means[position, client] = part.mean
                scales[position, client] = part.scale
    means = np.repeat(means, sizes, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # The caller refuses an overflow.
        if scaling == "none":
            standardised = np.where(np.isnan(columns), means, columns)
        else:
            scales = np.repeat(scales, sizes, axis=1)
            standardised = np.where(np.isnan(columns), 0.0, (columns - means) / scales)
    if not np.isnan(fixed).all():
        fixed = np.repeat(fixed, sizes, axis=1)
        standardised = np.where(np.isnan(fixed), standardised, fixed)
    return standardised


def own_edges(values: NDArray[Any], number: int) -> tuple[float, ...]:
    """Return at most ``number`` + 1 different quantiles of an encoded column (n,). Of more than
    100,000 rows, only every second, third, … row is used.

    Example:
        >>> own_edges(np.array([0, 0, 0, 1, 2, 3]), 4)
        (0.0, 0.5, 1.75, 3.0)
    """
    (edges,) = own_edges_of_each(values[np.newaxis], number)
    return edges


def edge_step(rows: int) -> int:
    """Return of how many rows one determines the edges of bins.

    Example:
        >>> edge_step(100_000), edge_step(250_000)
        (1, 3)
    """
    return max(1, -(-rows // MOST_ROWS))


def own_edges_of_each(columns: NDArray[Any], number: int) -> list[tuple[float, ...]]:
    """Return the edges of each of several encoded columns (columns, n), see :func:`own_edges`.

    Example:
        >>> own_edges_of_each(np.array([[0, 0, 0, 1, 2, 3], [1, 1, 1, 1, 1, 1]]), 4)
        [(0.0, 0.5, 1.75, 3.0), (1.0,)]
    """
    rows = columns.shape[1]
    if not rows:
        return [()] * len(columns)
    columns = columns[:, :: edge_step(rows)]
    quantiles = np.quantile(columns, np.linspace(0, 1, number + 1), axis=1).T.astype(np.float32)
    quantiles = np.sort(quantiles, axis=1)
    is_new = np.ones(quantiles.shape, bool)
    is_new[:, 1:] = quantiles[:, 1:] != quantiles[:, :-1]
    ends = np.cumsum(is_new.sum(axis=1)).tolist()
    edges = quantiles[is_new].tolist()
    return [tuple(edges[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
