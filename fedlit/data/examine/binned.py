"""How much of a target the bins of a column leave unexplained, for many columns in many pools of rows
at once.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass

import numpy as np
import pandas as pd

_FEWEST_OF_CLASS = 8
_BINS = 32
_ROWS_OF_BIN = 4


@dataclass(frozen=True, eq=False)
class Pools:
    """Pools of rows, one below the other.

    Attributes:
        of_row: (n,) the pool of each row, ascending.
        sizes: (pools,) the number of rows of each.
    """

    of_row: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, pools: Sequence[Sequence[Sized]]) -> Pools:
        """Describe pools of the rows of several clients each."""
        sizes = np.array([sum(map(len, pool)) for pool in pools])
        return cls(np.repeat(np.arange(len(pools)), sizes), sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def totals(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the values (n,) in each pool."""
        return np.bincount(self.of_row, values, len(self))

    def codes(self, values: pd.Series) -> np.ndarray:
        """Number the different values (n,) of each pool from 1; missing ones are 0."""
        codes, different = pd.factorize(values)
        pairs = self.of_row * (len(different) + 1) + codes + 1
        gaps = np.arange(len(self)) * (len(different) + 1)
        distinct, positions = np.unique(np.concatenate([gaps, pairs]), return_inverse=True)
        first = np.searchsorted(distinct, gaps)
        numbers: np.ndarray = positions[len(self) :] - first[self.of_row]
        return numbers

    def ranks(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ranks (n,) of the first and of the last value that equals each one in its pool,
        from 0. Missing ones are equal, and last.
        """
        order = np.lexsort((values, self.of_row))
        ordered = values[order]
        is_gap = np.isnan(ordered)
        are_equal = (ordered[1:] == ordered[:-1]) | (is_gap[1:] & is_gap[:-1])
        is_new = np.ones(len(values), bool)
        is_new[1:] = ~are_equal | (self.of_row[1:] != self.of_row[:-1])
        starts = np.flatnonzero(is_new)
        counts = np.diff(starts, append=len(values))
        pool_starts = (np.cumsum(self.sizes) - self.sizes)[self.of_row]
        first = np.empty(len(values), np.int64)
        first[order] = np.repeat(starts, counts) - pool_starts
        last = np.empty(len(values), np.int64)
        last[order] = np.repeat(starts + counts - 1, counts) - pool_starts
        return first, last


def answers_of(target: pd.Series, classes: bool, pools: Pools) -> np.ndarray:
    """Return indicators of each pool's classes with enough rows, or the ranks of its numbers, in
    (0, 1]: (n, k).
    """
    if not classes:
        ranks: np.ndarray = target.groupby(pools.of_row).rank(pct=True).to_numpy(np.float64)
        return ranks[:, np.newaxis]
    codes = pools.codes(target)
    width = int(codes.max()) + 1
    cells = pools.of_row * width + codes
    counts = np.bincount(cells, minlength=len(pools) * width)
    is_common = counts[cells] >= _FEWEST_OF_CLASS
    indicators: np.ndarray = (codes[:, np.newaxis] == np.arange(1, width)) & is_common[
        :, np.newaxis
    ]
    return indicators.astype(np.float64)


def variation(answers: np.ndarray, owners: np.ndarray, pools: Pools) -> np.ndarray:
    """Return the sum of squares of answers (n, k) about the means of their clients, in each pool, so
    that a column that only tells clients apart explains none of it.
    """
    variation = np.zeros(len(pools))
    counts = np.bincount(owners)
    for answer in answers.T:
        means = np.bincount(owners, answer) / counts
        variation += pools.totals(answer**2 - answer * means[owners])
    return variation


def bins_of(columns: pd.DataFrame, categorical: Sequence[str], pools: Pools) -> np.ndarray:
    """Return a bin for each cell (n, d): the code of a category, or one of bins with roughly equal
    numbers of rows of a pool. Equal numbers share a bin, and so do missing ones.
    """
    sizes = pools.sizes[pools.of_row]
    most = np.minimum(_BINS, np.maximum(sizes // _ROWS_OF_BIN, 1))
    bins = np.empty(columns.shape, np.int64)
    for position, name in enumerate(columns):
        column = columns.iloc[:, position]
        if name in categorical:
            bins[:, position] = pools.codes(column)
            continue
        first, last = pools.ranks(column.to_numpy(np.float64, na_value=np.nan))
        is_frequent = last - first >= sizes // most  # has a bin of its own
        bins[:, position] = 2 * (first * most // sizes) + is_frequent
    return bins


def unexplained_by(bins: np.ndarray, answers: np.ndarray, pools: Pools) -> np.ndarray:
    """Return the variance of indicators of classes, or ranks (n, k), that each column's bins (n, d)
    leave unexplained in each pool: (pools, d). It is infinite for columns with fewer than two rows
    in a bin.
    """
    columns = bins.shape[1]
    shape = len(pools), columns, int(bins.max()) + 1
    blocks = pools.of_row[:, np.newaxis] * columns + np.arange(columns)
    cells = (bins + shape[2] * blocks).ravel()
    counts = np.bincount(cells, minlength=np.prod(shape)).reshape(shape)
    used = (counts > 0).sum(axis=2)
    unexplained = np.zeros(used.shape)
    for answer in answers.T:
        totals = np.bincount(cells, np.repeat(answer, columns), np.prod(shape)).reshape(shape)
        unexplained += pools.totals(answer**2)[:, np.newaxis]
        unexplained -= (totals**2 / np.maximum(counts, 1)).sum(axis=2)
    rows = pools.sizes[:, np.newaxis]
    return np.where(2 * used <= rows, unexplained / np.maximum(rows - used, 1), np.inf)
