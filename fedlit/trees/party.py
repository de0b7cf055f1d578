"""One party's rows while trees are grown: its answers, its refusals, and what it does not
reveal.
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
    """Return the range of a column as a party reports it, rounded outward to whole numbers.

    Args:
        column: (n,) its values.
        rows: the number of rows that stand behind each end (see
            :func:`fedlit.disclosure.outer_means`).

    Example:
        >>> range_of(np.array([0.5, 1.5, 2.5], np.float32))
        (0.0, 3.0)
        >>> range_of(np.array([0.5, 1.5, 4.5], np.float32), 2)
        (1.0, 3.0)
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
    reports for a node are 0 or at least the minimum.

    Args:
        x: (n, d) float32.
        y: (n,) positions of classes, int64; or numbers, float32.
        growth: how trees are grown.
        lacks: positions of columns that the party does not have: all its rows go to a side that is
            drawn.
        facts_from: the number of rows that stand behind each end of a column's range.
        least: the minimum for each class; that of ``growth`` if None.

    Raises:
        DataError: numbers too large for exact sums.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        y: NDArray,
        growth: Growth,
        lacks: Sequence[int] = (),
        facts_from: int = 1,
        least: Sequence[int] | None = None,
    ) -> None:
        self.columns = np.ascontiguousarray(x.T)
        self.growth = growth
        self.lacks = sorted(lacks)
        self._facts_from = facts_from
        if least is None:
            least = (growth.minimum,) * max(growth.classes, 1)
        self._least = np.array(least)
        if growth.classes:
            # In the order of classes, the rows of a node and class lie together at every level.
            self.order = np.argsort(y, kind="stable")
            self._y = y.astype(np.int64)
        else:
            self.order = np.arange(len(y))
            self._y = _multiples(y)
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
        classes = self.growth.classes
        if classes:
            group = np.repeat(np.arange(len(keys)), self.sizes) * classes + self._y[self.rows]
            self._counts = np.bincount(group, minlength=len(keys) * classes)
        else:
            self._counts = self.sizes
        if self.growth.minimum > 1:
            enough = self._counts >= np.tile(self._least, len(keys))
            self.rows = self.rows[np.repeat(enough, self._counts)]
            self._counts = np.where(enough, self._counts, 0)
        self._place()
        ends = np.array([range_of(column, self._facts_from) for column in self.columns], np.float32)
        ends[self.lacks] = np.inf, -np.inf
        # Messages must be finite.
        ends = ends.clip(-_LARGEST, _LARGEST)
        self._range = ends.reshape(-1, 2).T
        self._reported = np.flatnonzero(self.totals.any(0) | self.growth.summed | (not classes))
        return {"totals": self.totals, "low": self._range[0], "high": self._range[1]}

    def _place(self) -> None:
        """Compute where the rows of each node, or of each node and class, begin and end, and their
        sums.
        """
        self._ends = np.concatenate([[0], np.cumsum(self._counts)])
        if self.growth.classes:
            self.totals = self._counts.reshape(-1, self.growth.classes)
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
        if self.growth.classes:
            return self._between(chosen, np.int32).reshape(-1, self.growth.classes)
        parts = [chosen, *(np.where(chosen, part, 0) for part in self._values)]
        return np.stack([self._between(part, np.int64) for part in parts], 1)

    def _between(self, values: NDArray, dtype: type[np.integer]) -> NDArray:
        running = np.empty(len(values) + 1, dtype)
        running[0] = 0
        np.cumsum(values, dtype=dtype, out=running[1:])
        ends = running.take(self._ends)
        return ends[1:] - ends[:-1]

    # ------------------------------------------------------------------ answers

    def ranges(self, message: Arrays) -> Arrays:
        """Return ``low`` and ``high`` (d, nodes) float32, the range of each column in each node;
        empty (∞, −∞) if there are no rows. Only asked if trees are grown ``exact``.
        """
        self._advance(message)
        shape = len(self.columns), len(self.sizes)
        low = np.full(shape, np.inf, np.float32)
        high = np.full(shape, -np.inf, np.float32)
        full = np.flatnonzero(self.sizes)
        first = (np.cumsum(self.sizes) - self.sizes)[full]
        for feature, column in enumerate(self.columns):
            if feature not in self.lacks and len(full):
                values = column.take(self.rows)
                low[feature, full] = np.minimum.reduceat(values, first)
                high[feature, full] = np.maximum.reduceat(values, first)
        return {"low": low, "high": high}

    def counts(self, message: Arrays) -> Arrays:
        """Return ``left``: the sums over the rows that are not above a threshold, (sums, d,
        thresholds, nodes).

        Args:
            message: at first ``open`` (roots,), which roots are, and ``low`` and ``high`` (d,), the
                ranges of columns on which all agreed. Later ``feature`` (nodes,), −1 for a node
                that is not split; ``number`` (nodes,), which of the column's thresholds splits it;
                ``keep`` (nodes, 2), which children stay open: (true, false) for a node that is not
                split, if it is tried again; and ``empty`` (d, thresholds, nodes), see
                :meth:`fedlit.trees.draws.Frontier.shrink`. Where trees are grown ``exact``, which
                nobody is told, no ``empty`` but ``thresholds`` (d, 1, nodes).

        Raises:
            RunError: a question contradicts the party's rows or the agreed ranges.
        """
        self._advance(message)
        assert self._frontier is not None
        self._drawn = (
            message["thresholds"] if self.growth.exact else self._frontier.draw(self.growth)
        )
        dtype: type[np.integer] = np.int64
        if self.growth.classes and not self.growth.summed:
            dtype = _smallest(self._counts)
        totals = self.totals.T
        left_sums = np.empty((len(totals), *self._drawn.shape), dtype)
        if self.lacks:
            sides = uniform(self._frontier.keys, SIDE, len(self.columns))[self.lacks] < 0.5
            left_sums[:, self.lacks] = (totals[:, None] * sides)[:, :, None]
        for feature, column in enumerate(self.columns):
            if feature in self.lacks:
                continue
            values = column.take(self.rows)
            for number, drawn in enumerate(self._drawn[feature]):
                left_sums[:, feature, number] = self._sums(values <= np.repeat(drawn, self.sizes)).T
        if self.growth.minimum > 1:
            left_sums = self._coarsened(left_sums)
        self._left = left_sums
        return {"left": left_sums[self._reported]}

    def _coarsened(self, left_sums: NDArray) -> NDArray:
        """Return counts of which no two differ by less than the minimum, nor from none or all rows:
        all rows count on one side if there are too few on the other, and a threshold close to an
        earlier one of its column counts as it.
        """
        totals = self.totals.T.astype(left_sums.dtype)[:, None, None]
        count_rows = slice(None) if self.growth.classes else slice(1)
        least = self._least[:, None, None, None]
        too_few, left_is_larger = _few(left_sums[count_rows], totals[count_rows], least)
        # This is faster than np.where.
        left_sums = left_sums * ~too_few + totals * (too_few & left_is_larger)
        counted = left_sums[count_rows]
        for later in range(1, left_sums.shape[2]):
            for earlier in range(later):
                later_counts = counted[:, :, later]
                earlier_counts = counted[:, :, earlier]
                gap = np.maximum(later_counts, earlier_counts) - np.minimum(
                    later_counts, earlier_counts
                )
                near = (gap > 0) & (gap < least[:, :, 0])
                if near.any():
                    left_sums[:, :, later] = (
                        left_sums[:, :, later] * ~near + left_sums[:, :, earlier] * near
                    )
        return left_sums

    # ------------------------------------------------------------------ the next level

    def _advance(self, message: Arrays) -> None:
        """Apply the decisions on the last level, if the message has any, and move rows into the
        open nodes of the next one.
        """
        if "feature" not in message and "open" not in message:
            return  # The message that asked for this level's ranges had them.
        if self._frontier is None:
            self._begin(message)
        else:
            self._move(message)
        self._levels += 1
        most = self.growth.levels
        if most is not None and self._levels > most:
            raise _refused(f"at most {most} levels of nodes, as agreed", "one more")

    def _begin(self, message: Arrays) -> None:
        columns = (len(self.columns),)
        _check_shapes(message, {"low": columns, "high": columns, "open": (len(self._roots),)})
        low = message["low"]
        high = message["high"]
        if not ((low <= self._range[0]) & (high >= self._range[1])).all():
            raise _refused("ranges of columns that hold those of this site", "others")
        keep = message["open"] & ((self.sizes > 0) | self.growth.summed)
        self.rows = self.rows[np.repeat(keep, self.sizes)]
        self._counts = self._counts.reshape(len(keep), -1)[keep].ravel()
        self._place()
        self._frontier = Frontier.begin(self._roots[keep], low, high)

    def _move(self, message: Arrays) -> None:
        """Move rows into the children of the nodes that were split."""
        assert self._frontier is not None
        self._check(message)
        feature = message["feature"].astype(np.int64)
        keep = message["keep"]
        chosen = np.maximum(feature, 0), message["number"].astype(np.int64), np.arange(len(feature))
        cut = np.repeat(self._cut(chosen).ravel(), self._counts)
        cells = np.repeat(chosen[0] * self.columns.shape[1], self.sizes) + self.rows
        goes_left = self.columns.ravel().take(cells) <= cut
        goes_left |= np.repeat(feature < 0, self.sizes)
        left_before = np.zeros(len(goes_left) + 1, np.int64)  # rows on the left before each one
        np.cumsum(goes_left, out=left_before[1:])
        left_counts = np.diff(left_before[self._ends])
        side_counts = np.stack(
            [part.reshape(len(feature), -1) for part in (left_counts, self._counts - left_counts)],
            1,
        )
        sizes = side_counts.sum(2).ravel()
        self.rows = self._parted(goes_left, left_before, sizes[::2])[np.repeat(keep.ravel(), sizes)]
        # The party follows a node while it has rows there, or all nodes if it has to hide where it
        # has none.
        open_children = keep.ravel() & ((sizes > 0) | self.growth.summed)
        if "empty" in message:
            self._frontier.shrink(self._drawn, message["empty"])
        self._frontier = self._frontier.following(feature, self._drawn[chosen], open_children)
        self._counts = side_counts.reshape(len(sizes), -1)[open_children].ravel()
        self._place()

    def _cut(self, chosen: tuple[NDArray[np.int64], ...]) -> NDArray[np.float32]:
        """Return the thresholds by which rows are moved, (nodes, classes or 1): those whose counts
        were reported.

        Args:
            chosen: the column, the number of the threshold, and the position of each node.
        """
        column, number, node = chosen
        groups = slice(None) if self.growth.classes else slice(1)
        counted = self._left[groups, column, :, node]  # (nodes, classes or 1, thresholds)
        chosen_counts = counted[node, :, number]
        first = (counted == chosen_counts[:, :, None]).argmax(2)
        cut: NDArray[np.float32] = self._drawn[column[:, None], first, node[:, None]]
        cut[chosen_counts == 0] = -np.inf
        cut[chosen_counts == self.totals[:, groups]] = np.inf
        return cut

    def _check(self, message: Arrays) -> None:
        """Refuse what this party knows to be impossible: its own counts say which thresholds have
        rows on a side, and which nodes can be split.
        """
        assert self._frontier is not None
        nodes = len(self.sizes)
        shapes: dict[str, tuple[int, ...]] = {"feature": (nodes,), "number": (nodes,)}
        shapes["keep"] = (nodes, 2)
        if not self.growth.exact:
            shapes["empty"] = self._drawn.shape
        _check_shapes(message, shapes)
        feature = message["feature"]
        number = message["number"]
        keep = message["keep"]
        no_column = (feature < -1) | (feature >= len(self.columns))
        no_threshold = (number < 0) | (number >= self._drawn.shape[1])
        if no_column.any() or no_threshold.any():
            raise _refused("columns and thresholds that there are", "others")
        split = np.flatnonzero(feature >= 0)
        if np.isnan(self._drawn[feature[split], number[split], split]).any():
            raise _refused("splits by thresholds that were drawn", "others")
        again = (feature < 0) & keep[:, 0]
        if keep[feature < 0, 1].any() or (again & (self._frontier.tried + 1 >= TRIES)).any():
            raise _refused(f"a node that is not split to be tried at most {TRIES} times", "more")
        if not self.growth.exact:
            self._check_empty(message["empty"], np.flatnonzero(again))

    def _check_empty(self, empty: NDArray[np.uint8], tried: NDArray[np.int64]) -> None:
        """Refuse thresholds that are reported as empty on a side where this party has rows, and
        nodes that are tried again although its rows can split them.

        Args:
            empty: see :meth:`fedlit.trees.draws.Frontier.shrink`.
            tried: the nodes that are tried again.
        """
        counted = self._left if self.growth.classes else self._left[:1]
        total = self.totals.T[: len(counted), None, None].astype(counted.dtype)
        on_left = np.where(counted.any(0), NOTHING_LEFT, 0)
        on_right = np.where((counted < total).any(0), NOTHING_RIGHT, 0)
        sides = on_left | on_right
        if (sides & empty).any():
            raise _refused(
                "thresholds with this site's rows on both sides to count as such", "others"
            )
        both = sides[:, :, tried] == NOTHING_LEFT | NOTHING_RIGHT
        if (both & ~np.isnan(self._drawn[:, :, tried])).any():
            raise _refused(
                "a node that this site's rows can split to be split", "that it is tried again"
            )

    def _parted(
        self,
        goes_left: NDArray[np.bool_],
        left_before: NDArray[np.int64],
        left_counts: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the rows with those on the left of each node before the others; otherwise they
        keep their order.
        """
        first = np.cumsum(self.sizes) - self.sizes
        start = left_before[first]
        on_left = left_before[:-1] + np.repeat(first - start, self.sizes)
        on_right = (
            np.arange(len(goes_left))
            - left_before[:-1]
            + np.repeat(start + left_counts, self.sizes)
        )
        parted = np.empty_like(self.rows)
        parted[np.where(goes_left, on_left, on_right)] = self.rows
        return parted


def _few(
    left_sums: NDArray, total: NDArray, minimum: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether one side has some, but too few, and whether the left one has at least as many
    as the right.
    """
    right_sums = total - left_sums
    few_left = (left_sums > 0) & (left_sums < minimum)
    few_right = (right_sums > 0) & (right_sums < minimum)
    return few_left | few_right, left_sums >= right_sums


def _multiples(y: NDArray) -> NDArray[np.int64]:
    """Return numbers as whole multiples of 1 / SCALE.

    Raises:
        DataError: the numbers are too large for exact sums.
    """
    numbers = y.astype(np.float64)
    squares = float((numbers**2).sum())
    if squares * SCALE**2 >= _EXACT:
        raise DataError(
            "a forest of numbers: expected a standardised target, found one whose squares are "
            f"too large for exact sums ({squares:.3g}); look for wrong values in the target"
        )
    return np.rint(numbers * SCALE).astype(np.int64)


def _check_shapes(message: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in message:
            raise _refused(f"{name} of shape {shape}", "none")
        actual = message[name].shape
        if actual != shape:
            raise _refused(f"{name} of shape {shape}", f"{tuple(actual)}")


def _refused(expected: str, actual: str) -> RunError:
    return RunError(
        f"forest: expected {expected}, found {actual}; nothing was answered. Do all sites run the "
        "same version?"
    )


def _smallest(values: NDArray[np.int64]) -> type[np.integer]:
    """Return the smallest integer type that holds the values, among those of torch and
    safetensors.
    """
    low = int(values.min(initial=0))
    high = int(values.max(initial=0))
    for dtype in (np.uint8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return dtype
    return np.int64
