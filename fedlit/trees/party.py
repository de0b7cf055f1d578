"""One party's rows while trees are grown: what it answers, and what it keeps to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError
from fedlit.trees.nodes import SIDE, Keys, children, uniform

Arrays = Mapping[str, NDArray]

SCALE = 2.0**16
"""Numbers are summed as whole multiples of 1 / SCALE, so that no order of parties or rows changes a sum."""

_EXACT = 2**53


class Party:
    """Answers by sums over its rows: of each class, or (rows, sum, sum of squares) of a number.

    All trees are grown at once, level by level. The party records which open node each row is in, and continues with
    what it receives about the last level. It keeps no node that has none of its rows.

    Args:
        x: (n, d) float32.
        y: (n,) positions of classes, int64; or numbers, float32.
        classes: how many there are; 0 for numbers.
        lacks: positions of columns that the party does not have: all its rows go to a side that is drawn.
        minimum: a number of rows (of a class, where there are classes) below this is not told: where a split leaves so
            few on one side, all of them are counted, and go on being counted, on the side that has more.
        everywhere: whether it tells of each open node and class, where it has no rows, too, so that answers of all
            parties have one form.

    Raises:
        DataError: numbers too large for exact sums.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        y: NDArray,
        classes: int,
        lacks: Sequence[int] = (),
        minimum: int = 1,
        everywhere: bool = False,
    ) -> None:
        self.columns = np.ascontiguousarray(x.T)
        self.classes, self.lacks = classes, frozenset(lacks)
        self.minimum, self.everywhere = minimum, everywhere
        # in the order of classes, so that the rows of a node and class lie together, here and below
        self.order = np.argsort(y, kind="stable") if classes else np.arange(len(y))
        self._y = y.astype(np.int64) if classes else np.rint(y.astype(np.float64) * SCALE).astype(np.int64)
        if not classes and (squares := float((y.astype(np.float64) ** 2).sum())) * SCALE**2 >= _EXACT:
            raise DataError(
                "a forest of numbers: expected a standardised target, found one whose squares are too large for exact "
                f"sums ({squares:.3g}); look for wrong values in the target"
            )

    # ------------------------------------------------------------------ nodes

    def start(self, keys: Keys, rows: NDArray[np.int64] | None = None, sizes: NDArray | None = None) -> Arrays:
        """Begin at some nodes.

        Args:
            keys: the keys of the nodes.
            rows: the numbers of rows, node after node; each node has all rows if None.
            sizes: the number of rows of each node.

        Returns:
            ``totals`` (nodes, sums), and ``low`` and ``high`` (d,) float32, the range of each column, rounded outward
            to whole numbers; empty (∞, −∞) for a column that is lacking.
        """
        self.keys = keys
        self.rows = np.tile(self.order, len(keys)) if rows is None else rows
        self.sizes = np.full(len(keys), len(self.order)) if sizes is None else sizes
        if self.classes:
            group = np.repeat(np.arange(len(keys)), self.sizes) * self.classes + self._y[self.rows]
            self._counts = np.bincount(group, minlength=len(keys) * self.classes)
        else:
            self._counts = self.sizes
        if self.minimum > 1:
            told = self._counts >= self.minimum
            self.rows = self.rows[np.repeat(told, self._counts)]
            self._counts = np.where(told, self._counts, 0)
        self._place()
        low, high = (np.array([own(column) for column in self.columns]) for own in (np.min, np.max))
        low, high = np.floor(low), np.ceil(high)
        low[list(self.lacks)], high[list(self.lacks)] = np.inf, -np.inf
        self._told = np.flatnonzero(self.totals.any(0) | self.everywhere | (not self.classes))
        return {"totals": self.totals, "low": low, "high": high}

    def _place(self) -> None:
        """Compute where the rows of each node, or of each node and class, begin and end, and their sums."""
        self._ends = np.concatenate([[0], np.cumsum(self._counts)])
        if self.classes:
            self.totals = self._counts.reshape(-1, self.classes)
            self.sizes = self.totals.sum(1)
        else:
            self.sizes, y = self._counts, self._y[self.rows]
            self._values = y, y**2
            self.totals = self._sums(np.ones(len(y), bool))

    def _sums(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the sums over the chosen rows, (nodes, sums), as differences of running sums, which are fast."""
        if self.classes:
            return self._between(chosen, np.int32).reshape(-1, self.classes)
        parts = [chosen, *(np.where(chosen, own, 0) for own in self._values)]
        return np.stack([self._between(own, np.int64) for own in parts], 1)

    def _between(self, values: NDArray, dtype: type[np.integer]) -> NDArray:
        running = np.zeros(len(values) + 1, dtype)
        np.cumsum(values, dtype=dtype, out=running[1:])
        return np.diff(running[self._ends])

    # ------------------------------------------------------------------ answers

    def ranges(self, told: Arrays) -> Arrays:
        """Return ``low`` and ``high`` (d, nodes) float32, the range of each column in each node; empty (∞, −∞) if there
        are no rows.
        """
        self._go_on(told)
        shape = len(self.columns), len(self.sizes)
        low, high = np.full(shape, np.inf, np.float32), np.full(shape, -np.inf, np.float32)
        full = np.flatnonzero(self.sizes)
        first = (np.cumsum(self.sizes) - self.sizes)[full]
        for place, column in enumerate(self.columns):
            if place not in self.lacks and len(full):
                values = column.take(self.rows)
                low[place, full] = np.minimum.reduceat(values, first)
                high[place, full] = np.maximum.reduceat(values, first)
        return {"low": low, "high": high}

    def counts(self, told: Arrays) -> Arrays:
        """Return ``left``: the sums over the rows that are not above a threshold, (sums, d, thresholds, nodes).

        Args:
            told: ``thresholds`` (d, thresholds, nodes) float32, NaN where nothing is asked; and what :meth:`_go_on`
                takes.
        """
        self._go_on(told)
        thresholds = told["thresholds"]
        dtype = _smallest(self._counts) if self.classes and not self.everywhere else np.int64
        totals = self.totals.T
        left = np.zeros((len(totals), *thresholds.shape), dtype)
        sides = self._sides() if self.lacks else None
        for place, column in enumerate(self.columns):
            if place in self.lacks:
                assert sides is not None
                left[:, place] = (totals * sides[place])[:, None]
                continue
            values = column.take(self.rows)
            for number, own in enumerate(thresholds[place]):
                left[:, place, number] = self._sums(values <= np.repeat(own, self.sizes)).T
        if self.minimum > 1:
            left = self._hidden(left)
        return {"left": left[self._told]}

    def _sides(self) -> NDArray[np.bool_]:
        return uniform(self.keys, SIDE, len(self.columns)) < 0.5

    def _hidden(self, left: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count all rows on one side if there are too few on the other."""
        totals = self.totals.T.astype(left.dtype)[:, None, None]
        counted, total = (left, totals) if self.classes else (left[:1], totals[:1])
        few, more = _few(counted, total, self.minimum)
        return np.where(few, np.where(more, totals, 0), left)

    # ------------------------------------------------------------------ the next level

    def _go_on(self, told: Arrays) -> None:
        """Move rows into the nodes of the next level.

        Args:
            told: ``feature`` (nodes,), −1 for a node that is not split; ``threshold`` (nodes,) float32; ``keep``
                (nodes, 2), which children stay open: (true, false) for a node that is not split, if it is tried again.
                Nothing at the first level.
        """
        if "feature" not in told:
            return
        feature, keep = told["feature"].astype(np.int64), told["keep"]
        split = feature >= 0
        places = np.repeat(np.maximum(feature, 0) * self.columns.shape[1], self.sizes) + self.rows
        left = self.columns.ravel().take(places) <= np.repeat(told["threshold"], self.sizes)
        if lacking := sorted(self.lacks):
            drawn_side = np.isin(feature, lacking)
            side = self._sides()[np.maximum(feature, 0), np.arange(len(feature))]
            left = np.where(np.repeat(drawn_side, self.sizes), np.repeat(side, self.sizes), left)
        left |= np.repeat(~split, self.sizes)
        ours = self._between(left, np.int32).astype(np.int64)
        if self.minimum > 1:
            few, more = _few(ours, self._counts, self.minimum)
            left = np.where(np.repeat(few, self._counts), np.repeat(more, self._counts), left)
            ours = np.where(few, np.where(more, self._counts, 0), ours)
        each = np.stack([own.reshape(len(feature), -1) for own in (ours, self._counts - ours)], 1)
        sizes = each.sum(2).ravel()
        open_ = keep.ravel()
        self.rows = self._parted(left, sizes[::2])[np.repeat(open_, sizes)]
        # a node is the party's own while it has rows there, unless it is not to tell where it has none
        kept = open_ & ((sizes > 0) | self.everywhere)
        keys = children(self.keys)
        keys[~split, 0] = self.keys[~split]
        self.keys = keys.ravel()[kept]
        self._counts = each.reshape(len(sizes), -1)[kept].ravel()
        self._place()

    def _parted(self, left: NDArray[np.bool_], ours: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows with those on the left of each node before the others; otherwise they keep their order."""
        first = np.cumsum(self.sizes) - self.sizes
        before: NDArray[np.int64] = np.cumsum(left) - left  # rows on the left before each one
        start = before[np.minimum(first, len(left) - 1)] if len(left) else first
        place = np.arange(len(left))
        on_left = before + np.repeat(first - start, self.sizes)
        on_right = place - before + np.repeat(start + ours, self.sizes)
        parted = np.empty_like(self.rows)
        parted[np.where(left, on_left, on_right)] = self.rows
        return parted


def _few(left: NDArray, total: NDArray, minimum: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether one side has some, but too few, and whether the left one has at least as many as the right."""
    right = total - left  # of one type, so that nothing is smaller than 0
    return ((left > 0) & (left < minimum)) | ((right > 0) & (right < minimum)), left >= right


def _smallest(values: NDArray[np.int64]) -> type[np.integer]:
    """Return the smallest integer type that holds the values; torch and safetensors have it, too."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    fitting = [own for own in (np.uint8, np.int16, np.int32) if np.iinfo(own).min <= low and high <= np.iinfo(own).max]
    return fitting[0] if fitting else np.int64
