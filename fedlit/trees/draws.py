"""How trees are grown, and what is drawn for their open nodes. Whoever knows the seed, the range of
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
"""What is said of a threshold that leaves no row of any party on one side; 0 of any other."""

Totals = NDArray[np.int64]


@dataclass(frozen=True)
class Growth:
    """How trees are grown.

    Attributes:
        classes: how many there are; 0 for numbers.
        columns: d.
        tried: columns of a node that are tried.
        thresholds: drawn for each column; the first that leaves rows on both sides counts. One if
            ``exact``.
        minimum: a number of a party's rows (of a class, where there are classes) below this is not
            told.
        levels: how often parties are asked at most; nodes that are open then are leaves. Any number
            if None.
        exact: whether thresholds are drawn between least and largest value of the node's rows,
            which are asked for; else in the box that the node's ancestors leave, which shrinks
            where it has no rows.
        summed: whether parties tell of each open node and class, where they have no rows, too, so
            that answers of all have one form and their sum is enough.
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
        low, high = (
            np.repeat(end.astype(np.float32)[:, None], len(keys), 1) for end in (low, high)
        )
        return cls(keys, low, high, np.full(len(keys), -1))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def _attempts(self) -> NDArray[np.int64]:
        return np.maximum(self.tried, 0)

    def ranks(self, way: Growth) -> NDArray[np.float64]:
        """Return a random number for each column and node: the larger ones are tried, and decide
        between equal splits.
        """
        return uniform(self.keys, FEATURE, way.columns, attempts=self._attempts)

    def draw(self, way: Growth, ranks: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return the thresholds drawn for each column and node, (columns, thresholds, nodes); NaN
        if a column is not tried.

        Args:
            way: how trees are grown.
            ranks: what :meth:`ranks` returns, if it is known.
        """
        used = self.high > self.low
        if way.tried < way.columns:
            order = np.where(used, -(self.ranks(way) if ranks is None else ranks), 1.0)
            used &= order <= np.partition(order, way.tried - 1, axis=0)[way.tried - 1]
        low = np.where(used, self.low, 0.0).astype(np.float64)
        width = np.where(used, self.high.astype(np.float64) - self.low, np.nan)
        thresholds = np.empty((way.columns, way.draws, len(self)), np.float32)
        for number in range(way.draws):
            drawn = uniform(self.keys, THRESHOLD, way.columns, number, self._attempts)
            drawn *= width
            drawn += low
            thresholds[:, number] = drawn
        if way.exact:  # rounded to the largest value, a threshold would leave nothing on the right
            thresholds = np.where(thresholds >= self.high[:, None], self.low[:, None], thresholds)
            thresholds[~used[:, None]] = np.nan
        return thresholds

    def shrink(self, thresholds: NDArray[np.float32], empty: NDArray[np.uint8]) -> None:
        """Leave out the parts of ranges in which no party has rows.

        Args:
            thresholds: what :meth:`draw` returned.
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
        left = np.flatnonzero(split & (side == 0))
        right = np.flatnonzero(split & (side == 1))
        high[column[left], left] = np.minimum(high[column[left], left], threshold[parent[left]])
        low[column[right], right] = np.maximum(low[column[right], right], threshold[parent[right]])
        return Frontier(keys, low, high, np.where(split, 0, self.tried[parent] + 1))


def _put(ends: NDArray[np.float32], values: NDArray[np.float32], where: NDArray[np.bool_]) -> None:
    """Replace some values in place, by their bits: np.where is three times as slow on masks without
    a pattern.
    """
    bits = ends.view(np.int32)
    bits ^= (bits ^ values.view(np.int32)) & -where.astype(np.int32)
