"""One party's rows while trees are grown: what it answers, what it refuses, and what it keeps to
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedlit.disclosure import outer_means
from fedlit.errors import DataError, RunError
from fedlit.trees.draws import NOTHING_LEFT, NOTHING_RIGHT, TRIES, Frontier, Growth
from fedlit.trees.nodes import SIDE, Keys, uniform

Arrays = Mapping[str, NDArray]

SCALE = 2.0**16
"""Numbers are summed as whole multiples of 1 / SCALE, so that no order of parties or rows changes a
sum."""

_EXACT = 2**53
_LARGEST = np.finfo(np.float32).max


def range_of(column: NDArray[np.float32], rows: int = 1) -> tuple[float, float]:
    """Return the range of a column as a party tells it, rounded outward to whole numbers.

    Args:
        column: (n,) its values.
        rows: the number of rows that stand behind each end (see
            :func:`fedlit.disclosure.outer_means`).

    Example:
        >>> range_of(np.array([0.5, 1.5, 2.5], np.float32)), range_of(np.array([0.5, 1.5, 4.5], np.float32), 2)
        ((0.0, 3.0), (1.0, 3.0))
    """
    low, high = outer_means(column, rows)
    return float(np.floor(low)), float(np.ceil(high))


class Party:
    """Answers by sums over its rows: of each class, or (rows, sum, sum of squares) of a number.

    All trees are grown at once, level by level. The party records which open node each row is in,
    and continues with what it receives about the last level. It keeps no node that has none of its
    rows. It draws thresholds itself, from the keys of nodes, the range that all parties agreed on,
    and the splits that it received, and answers no others.

    With a minimum above 1, a split that leaves fewer of its rows (of a class) on one side counts
    all of them on the side that has more, and they stay there. A threshold within so few rows of
    another one of the same node and column counts as that one. So all differences of counts that it
    tells of a node are 0 or at least the minimum.

    Args:
        x: (n, d) float32.
        y: (n,) positions of classes, int64; or numbers, float32.
        way: how trees are grown.
        lacks: positions of columns that the party does not have: all its rows go to a side that is
            drawn.
        facts_from: the number of rows that stand behind each end of a column's range.

    Raises:
        DataError: numbers too large for exact sums.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        y: NDArray,
        way: Growth,
        lacks: Sequence[int] = (),
        facts_from: int = 1,
    ) -> None:
        self.columns = np.ascontiguousarray(x.T)
        self.way = way
        self.lacks = sorted(lacks)
        self._facts_from = facts_from
        # in the order of classes, so that the rows of a node and class lie together, here and below
        self.order = np.argsort(y, kind="stable") if way.classes else np.arange(len(y))
        self._y = (
            y.astype(np.int64)
            if way.classes
            else np.rint(y.astype(np.float64) * SCALE).astype(np.int64)
        )
        if (
            not way.classes
            and (squares := float((y.astype(np.float64) ** 2).sum())) * SCALE**2 >= _EXACT
        ):
            raise DataError(
                "a forest of numbers: expected a standardised target, found one whose squares are "
                f"too large for exact sums ({squares:.3g}); look for wrong values in the target"
            )
        self._frontier: Frontier | None = None
        self._levels = 0

    # ------------------------------------------------------------------ nodes

    def start(
        self, keys: Keys, rows: NDArray[np.int64] | None = None, sizes: NDArray | None = None
    ) -> Arrays:
        """Begin at some nodes.

        Args:
            keys: the keys of the nodes.
            rows: the numbers of rows, node after node; each node has all rows if None.
            sizes: the number of rows of each node.

        Returns:
            ``totals`` (nodes, sums), and ``low`` and ``high`` (d,) float32, the range of each
            column, rounded outward to whole numbers; empty, of the largest number and its negative,
            for a column that is lacking.
        """
        self._roots = keys
        self.rows = np.tile(self.order, len(keys)) if rows is None else rows
        self.sizes = np.full(len(keys), len(self.order)) if sizes is None else sizes
        classes = self.way.classes
        minimum = self.way.minimum
        if classes:
            group = np.repeat(np.arange(len(keys)), self.sizes) * classes + self._y[self.rows]
            self._counts = np.bincount(group, minlength=len(keys) * classes)
        else:
            self._counts = self.sizes
        if minimum > 1:
            told = self._counts >= minimum
            self.rows = self.rows[np.repeat(told, self._counts)]
            self._counts = np.where(told, self._counts, 0)
        self._place()
        ends = np.array([range_of(column, self._facts_from) for column in self.columns], np.float32)
        ends[self.lacks] = np.inf, -np.inf
        # whoever sends numbers that are not finite is refused
        ends = ends.clip(-_LARGEST, _LARGEST)
        self._range = ends.reshape(-1, 2).T
        self._told = np.flatnonzero(self.totals.any(0) | self.way.summed | (not classes))
        return {"totals": self.totals, "low": self._range[0], "high": self._range[1]}

    def _place(self) -> None:
        """Compute where the rows of each node, or of each node and class, begin and end, and their
        sums.
        """
        self._ends = np.concatenate([[0], np.cumsum(self._counts)])
        if self.way.classes:
            self.totals = self._counts.reshape(-1, self.way.classes)
            self.sizes = self.totals.sum(1)
        else:
            self.sizes = self._counts
            y = self._y[self.rows]
            self._values = y, y**2
            self.totals = self._sums(np.ones(len(y), bool))

    def _sums(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the sums over the chosen rows, (nodes, sums), as differences of running sums,
        which are fast.
        """
        if self.way.classes:
            return self._between(chosen, np.int32).reshape(-1, self.way.classes)
        parts = [chosen, *(np.where(chosen, own, 0) for own in self._values)]
        return np.stack([self._between(own, np.int64) for own in parts], 1)

    def _between(self, values: NDArray, dtype: type[np.integer]) -> NDArray:
        running = np.empty(len(values) + 1, dtype)
        running[0] = 0
        np.cumsum(values, dtype=dtype, out=running[1:])
        ends = running.take(self._ends)
        return ends[1:] - ends[:-1]

    # ------------------------------------------------------------------ answers

    def ranges(self, told: Arrays) -> Arrays:
        """Return ``low`` and ``high`` (d, nodes) float32, the range of each column in each node;
        empty (∞, −∞) if there are no rows. Only asked if trees are grown ``exact``.
        """
        self._go_on(told)
        shape = len(self.columns), len(self.sizes)
        low = np.full(shape, np.inf, np.float32)
        high = np.full(shape, -np.inf, np.float32)
        full = np.flatnonzero(self.sizes)
        first = (np.cumsum(self.sizes) - self.sizes)[full]
        for place, column in enumerate(self.columns):
            if place not in self.lacks and len(full):
                values = column.take(self.rows)
                low[place, full] = np.minimum.reduceat(values, first)
                high[place, full] = np.maximum.reduceat(values, first)
        return {"low": low, "high": high}

    def counts(self, told: Arrays) -> Arrays:
        """Return ``left``: the sums over the rows that are not above a threshold, (sums, d,
        thresholds, nodes).

        Args:
            told: at first ``open`` (roots,), which roots are, and ``low`` and ``high`` (d,), the
                ranges of columns on which all agreed. Later ``feature`` (nodes,), −1 for a node
                that is not split; ``number`` (nodes,), which of the column's thresholds splits it;
                ``keep`` (nodes, 2), which children stay open: (true, false) for a node that is not
                split, if it is tried again; and ``empty`` (d, thresholds, nodes), see
                :meth:`fedlit.trees.draws.Frontier.shrink`. Where trees are grown ``exact``, which
                nobody is told, no ``empty`` but ``thresholds`` (d, 1, nodes).

        Raises:
            RunError: a question that contradicts the party's own rows, or what was agreed.
        """
        self._go_on(told)
        assert self._frontier is not None
        self._drawn = told["thresholds"] if self.way.exact else self._frontier.draw(self.way)
        dtype = _smallest(self._counts) if self.way.classes and not self.way.summed else np.int64
        totals = self.totals.T
        left = np.empty((len(totals), *self._drawn.shape), dtype)
        if self.lacks:
            sides = uniform(self._frontier.keys, SIDE, len(self.columns))[self.lacks] < 0.5
            left[:, self.lacks] = (totals[:, None] * sides)[:, :, None]
        for place, column in enumerate(self.columns):
            if place in self.lacks:
                continue
            values = column.take(self.rows)
            for number, drawn in enumerate(self._drawn[place]):
                left[:, place, number] = self._sums(values <= np.repeat(drawn, self.sizes)).T
        if self.way.minimum > 1:
            left = self._coarsened(left)
        self._left = left
        return {"left": left[self._told]}

    def _coarsened(self, left: NDArray) -> NDArray:
        """Return counts of which no two differ by less than the minimum, nor from none or all rows:
        all rows count on one side if there are too few on the other, and a threshold close to an
        earlier one of its column counts as it.
        """
        totals = self.totals.T.astype(left.dtype)[:, None, None]
        counted, total = (left, totals) if self.way.classes else (left[:1], totals[:1])
        few, more = _few(counted, total, self.way.minimum)
        left = left * ~few + totals * (few & more)  # faster than np.where
        counted = left if self.way.classes else left[:1]
        for later in range(1, left.shape[2]):
            for earlier in range(later):
                here = counted[:, :, later]
                there = counted[:, :, earlier]
                gap = np.maximum(here, there) - np.minimum(here, there)
                near = (gap > 0) & (gap < self.way.minimum)
                if near.any():
                    left[:, :, later] = left[:, :, later] * ~near + left[:, :, earlier] * near
        return left

    # ------------------------------------------------------------------ the next level

    def _go_on(self, told: Arrays) -> None:
        """Take what is told of the last level, if anything is, and move rows into the open nodes of
        the next one.
        """
        if "feature" not in told and "open" not in told:
            return  # the ranges of the level were asked for before
        if self._frontier is None:
            self._begin(told)
        else:
            self._move(told)
        self._levels += 1
        most = self.way.levels
        if most is not None and self._levels > most:
            raise _refused(f"at most {most} levels of nodes, as agreed", "one more")

    def _begin(self, told: Arrays) -> None:
        _check_forms(
            told,
            {
                "low": (len(self.columns),),
                "high": (len(self.columns),),
                "open": (len(self._roots),),
            },
        )
        low = told["low"]
        high = told["high"]
        if not ((low <= self._range[0]) & (high >= self._range[1])).all():
            raise _refused("ranges of columns that hold those of this site", "others")
        kept = told["open"] & ((self.sizes > 0) | self.way.summed)
        self.rows = self.rows[np.repeat(kept, self.sizes)]
        self._counts = self._counts.reshape(len(kept), -1)[kept].ravel()
        self._place()
        self._frontier = Frontier.begin(self._roots[kept], low, high)

    def _move(self, told: Arrays) -> None:
        """Move rows into the children of the nodes that were split."""
        assert self._frontier is not None
        self._check(told)
        feature = told["feature"].astype(np.int64)
        keep = told["keep"]
        chosen = np.maximum(feature, 0), told["number"].astype(np.int64), np.arange(len(feature))
        cut = np.repeat(self._cut(chosen).ravel(), self._counts)
        places = np.repeat(chosen[0] * self.columns.shape[1], self.sizes) + self.rows
        left = self.columns.ravel().take(places) <= cut
        left |= np.repeat(feature < 0, self.sizes)
        before = np.zeros(len(left) + 1, np.int64)  # rows on the left before each one
        np.cumsum(left, out=before[1:])
        ours = np.diff(before[self._ends])
        each = np.stack([part.reshape(len(feature), -1) for part in (ours, self._counts - ours)], 1)
        sizes = each.sum(2).ravel()
        self.rows = self._parted(left, before, sizes[::2])[np.repeat(keep.ravel(), sizes)]
        # a node is the party's own while it has rows there, unless it is not to tell where it has
        # none
        kept = keep.ravel() & ((sizes > 0) | self.way.summed)
        if "empty" in told:
            self._frontier.shrink(self._drawn, told["empty"])
        self._frontier = self._frontier.following(feature, self._drawn[chosen], kept)
        self._counts = each.reshape(len(sizes), -1)[kept].ravel()
        self._place()

    def _cut(self, chosen: tuple[NDArray[np.int64], ...]) -> NDArray[np.float32]:
        """Return the thresholds by which rows are moved, (nodes, classes or 1): those of which the
        counts were told.

        Args:
            chosen: the column, the number of the threshold, and the position of each node.
        """
        column, number, node = chosen
        groups = slice(None) if self.way.classes else slice(1)
        counted = self._left[groups, column, :, node]  # (nodes, classes or 1, thresholds)
        told = counted[node, :, number]
        first = (counted == told[:, :, None]).argmax(2)
        cut: NDArray[np.float32] = self._drawn[column[:, None], first, node[:, None]]
        cut[told == 0] = -np.inf
        cut[told == self.totals[:, groups]] = np.inf
        return cut

    def _check(self, told: Arrays) -> None:
        """Refuse what this party knows to be impossible: its own counts say which thresholds have
        rows on a side, and which nodes can be split.
        """
        assert self._frontier is not None
        nodes = len(self.sizes)
        forms: dict[str, tuple[int, ...]] = {
            "feature": (nodes,),
            "number": (nodes,),
            "keep": (nodes, 2),
        }
        if not self.way.exact:
            forms["empty"] = self._drawn.shape
        _check_forms(told, forms)
        feature = told["feature"]
        number = told["number"]
        keep = told["keep"]
        if ((feature < -1) | (feature >= len(self.columns))).any() or (
            (number < 0) | (number >= self._drawn.shape[1])
        ).any():
            raise _refused("columns and thresholds that there are", "others")
        split = np.flatnonzero(feature >= 0)
        if np.isnan(self._drawn[feature[split], number[split], split]).any():
            raise _refused("splits by thresholds that were drawn", "others")
        again = (feature < 0) & keep[:, 0]
        if keep[feature < 0, 1].any() or (again & (self._frontier.tried + 1 >= TRIES)).any():
            raise _refused(f"a node that is not split to be tried at most {TRIES} times", "more")
        if self.way.exact:
            return
        counted = self._left if self.way.classes else self._left[:1]
        total = self.totals.T[: len(counted), None, None].astype(counted.dtype)
        sides = np.where(counted.any(0), NOTHING_LEFT, 0) | np.where(
            (counted < total).any(0), NOTHING_RIGHT, 0
        )
        if (sides & told["empty"]).any():
            raise _refused(
                "thresholds with this site's rows on both sides to count as such", "others"
            )
        tried = np.flatnonzero(again)
        both = sides[:, :, tried] == NOTHING_LEFT | NOTHING_RIGHT
        if (both & ~np.isnan(self._drawn[:, :, tried])).any():
            raise _refused(
                "a node that this site's rows can split to be split", "that it is tried again"
            )

    def _parted(
        self, left: NDArray[np.bool_], before: NDArray[np.int64], ours: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the rows with those on the left of each node before the others; otherwise they
        keep their order.
        """
        first = np.cumsum(self.sizes) - self.sizes
        start = before[first]
        on_left = before[:-1] + np.repeat(first - start, self.sizes)
        on_right = np.arange(len(left)) - before[:-1] + np.repeat(start + ours, self.sizes)
        parted = np.empty_like(self.rows)
        parted[np.where(left, on_left, on_right)] = self.rows
        return parted


def _few(
    left: NDArray, total: NDArray, minimum: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether one side has some, but too few, and whether the left one has at least as many
    as the right.
    """
    right = total - left  # of one type, so that nothing is smaller than 0
    return ((left > 0) & (left < minimum)) | ((right > 0) & (right < minimum)), left >= right


def _check_forms(told: Arrays, forms: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in forms.items():
        if name not in told or told[name].shape != shape:
            found = "none" if name not in told else f"{tuple(told[name].shape)}"
            raise _refused(f"{name} of shape {shape}", found)


def _refused(expected: str, found: str) -> RunError:
    return RunError(
        f"forest: expected {expected}, found {found}; nothing was answered. Do all sites run the "
        "same version?"
    )


def _smallest(values: NDArray[np.int64]) -> type[np.integer]:
    """Return the smallest integer type that holds the values; torch and safetensors have it,
    too.
    """
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    fitting = [
        own
        for own in (np.uint8, np.int16, np.int32)
        if np.iinfo(own).min <= low and high <= np.iinfo(own).max
    ]
    return fitting[0] if fitting else np.int64
