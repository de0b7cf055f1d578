"""The settings of growth, and the draws for open nodes. Whoever knows the seed, the range of
each column and the splits so far draws the same thresholds, so that none of them is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlit.trees.nodes import FEATURE, THRESHOLD, Keys, children, uniform

TRIES = 12
"""How often thresholds are drawn for a node before it becomes a leaf."""

NOTHING_LEFT = 1
NOTHING_RIGHT = 2
"""Marks of a threshold that leaves no row of any party on one side; any other threshold has 0."""

Totals = NDArray[np.int64]


@dataclass(frozen=True)
class Growth:
    """How trees are grown.

    Attributes:
        classes: the number of classes; 0 for numbers.
        columns: the number of columns, d.
        tried: the number of columns that are tried at a node.
        thresholds: the number of thresholds that are drawn for each column; the first that leaves
            rows on both sides counts. One if ``exact``.
        minimum: the smallest number of a party's rows (of a class, if there are classes) that is
            reported.
        levels: the maximum number of levels; nodes that are open after the last one are leaves. Any
            number if None.
        exact: whether thresholds are drawn between the smallest and the largest value of the node's
            rows, which parties report; otherwise, they are drawn in the box that the node's
            ancestors leave, which shrinks where it has no rows.
        summed: whether parties report every open node and class, even without rows there, so that
            all answers have one shape and their sum is enough.
    """

    classes: int
    columns: int
    tried: int
    thresholds: int = 2
    minimum: int = 1
    levels: int | None = None
    exact: bool = False
    summed: bool = False

    @property
    def draws(self) -> int:
        """The number of thresholds that a column of a node gets at once."""
        return 1 if self.exact else self.thresholds

    def done(self, totals: Totals) -> NDArray[np.bool_]:
        """Whether nodes are leaves: of one class, or one number, or one row."""
        if self.classes:
            rows = totals.sum(1)
            pure = (totals > 0).sum(1) <= 1
        else:
            rows = totals[:, 0]
            sums = totals[:, 1:].astype(np.float64)
            pure = rows * sums[:, 1] - sums[:, 0] ** 2 <= 1e-12 * rows * sums[:, 1]
        least: NDArray[np.bool_] = pure | (rows < 2)
        return least


@dataclass
class Frontier:
    """The open nodes of growing trees, as far as draws depend on them.

    Attributes:
        keys: (nodes,) their keys.
        low: (columns, nodes) float32, the lower end of the range from which thresholds are drawn.
        high: (columns, nodes) float32, its upper end.
        tried: (nodes,) how often thresholds were drawn for the node before; one less for a root,
            which gets the same numbers twice, the second time in the smaller range.
    """

    keys: Keys
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    tried: NDArray[np.int64]

    @classmethod
    def begin(cls, keys: Keys, low: NDArray[np.float32], high: NDArray[np.float32]) -> Frontier:
        """Return the frontier of roots, all with the same range (columns,)."""
        count = len(keys)
        lows = np.repeat(low.astype(np.float32)[:, None], count, 1)
        highs = np.repeat(high.astype(np.float32)[:, None], count, 1)
        return cls(keys, lows, highs, np.full(count, -1))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def _attempts(self) -> NDArray[np.int64]:
        return np.maximum(self.tried, 0)

    def ranks(self, growth: Growth) -> NDArray[np.float64]:
        """Return a random number for each column and node: the larger ones are tried, and decide
        between equal splits.
        """
        return uniform(self.keys, FEATURE, growth.columns, attempts=self._attempts)

    def draw(self, growth: Growth, ranks: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return the thresholds drawn for each column and node, (columns, thresholds, nodes); NaN
        if a column is not tried.

        Args:
            growth: how trees are grown.
            ranks: the result of :meth:`ranks`, if it is known.
        """
        used = self.high > self.low
        if growth.tried < growth.columns:
            if ranks is None:
                ranks = self.ranks(growth)
            order = np.where(used, -ranks, 1.0)
            used &= order <= np.partition(order, growth.tried - 1, axis=0)[growth.tried - 1]
        low = np.where(used, self.low, 0.0).astype(np.float64)
        width = np.where(used, self.high.astype(np.float64) - self.low, np.nan)
        thresholds = np.empty((growth.columns, growth.draws, len(self)), np.float32)
        for number in range(growth.draws):
            drawn = uniform(self.keys, THRESHOLD, growth.columns, number, self._attempts)
            drawn *= width
            drawn += low
            thresholds[:, number] = drawn
        if growth.exact:
            # A threshold that is rounded to the largest value would leave no row on the right.
            thresholds = np.where(thresholds >= self.high[:, None], self.low[:, None], thresholds)
            thresholds[~used[:, None]] = np.nan
        return thresholds

    def shrink(self, thresholds: NDArray[np.float32], empty: NDArray[np.uint8]) -> None:
        """Leave out the parts of ranges in which no party has rows.

        Args:
            thresholds: the result of :meth:`draw`.
            empty: (columns, thresholds, nodes) :data:`NOTHING_LEFT`, :data:`NOTHING_RIGHT` or 0.
        """
        for number in range(thresholds.shape[1]):
            drawn = thresholds[:, number]
            _put(self.low, drawn, (empty[:, number] == NOTHING_LEFT) & (drawn > self.low))
            _put(self.high, drawn, (empty[:, number] == NOTHING_RIGHT) & (drawn < self.high))

    def following(
        self, feature: NDArray[np.int64], threshold: NDArray[np.float32], keep: NDArray[np.bool_]
    ) -> Frontier:
        """Return the open nodes of the next level.

        Args:
            feature: (nodes,) the column that splits each node; −1 if none, and the node is its own
                left child.
            threshold: (nodes,) the threshold that splits it.
            keep: (nodes, 2) which children stay open.
        """
        parent, side = np.divmod(np.flatnonzero(keep), 2)
        column = feature[parent]
        split = column >= 0
        keys = self.keys[parent]
        keys = np.where(split, children(keys)[np.arange(len(keys)), side], keys)
        low = self.low.take(parent, axis=1)
        high = self.high.take(parent, axis=1)
        left_nodes = np.flatnonzero(split & (side == 0))
        right_nodes = np.flatnonzero(split & (side == 1))
        high[column[left_nodes], left_nodes] = np.minimum(
            high[column[left_nodes], left_nodes], threshold[parent[left_nodes]]
        )
        low[column[right_nodes], right_nodes] = np.maximum(
            low[column[right_nodes], right_nodes], threshold[parent[right_nodes]]
        )
        return Frontier(keys, low, high, np.where(split, 0, self.tried[parent] + 1))


def _put(ends: NDArray[np.float32], values: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
    """Replace some values in place, by their bits: np.where is three times as slow on masks without
    a pattern.
    """
    bits = ends.view(np.int32)
    bits ^= (bits ^ values.view(np.int32)) & -mask.astype(np.int32)
