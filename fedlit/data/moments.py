"""Count, mean and variance of a column: what clients tell of it so that all can standardise it alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments"]


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
        return [self.count, self.mean, self.variance]

    def standardise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(values − mean) / standard deviation, any shape; a column that is constant up to rounding keeps its unit."""
        # scikit-learn's bound for the error of a variance of equal numbers
        epsilon = np.finfo(np.float64).eps
        rounding = self.count * epsilon * self.variance + (self.count * self.mean * epsilon) ** 2
        scale = 1.0 if self.variance <= rounding else math.sqrt(self.variance)
        with np.errstate(over="ignore", invalid="ignore"):
            return (values - self.mean) / scale
