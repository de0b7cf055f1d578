"""Grows trees from sums: it decides which node is split and where, and sees no row. At the end of
the file, a party completes these trees by private branches and predictions of leaves.

Extremely randomised trees (Geurts, Ernst and Wehenkel 2006, "Extremely randomized trees", Machine
Learning 63:3-42): each column of a node gets a threshold that is drawn, and the best of these
splits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedlit.trees.draws import NOTHING_LEFT, NOTHING_RIGHT, TRIES, Frontier, Growth, Totals
from fedlit.trees.nodes import SIDE, Grown, Keys, Nodes, find_leaves, keys_of, uniform
from fedlit.trees.party import SCALE, Arrays, Party

Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of the arrays of an answer, by name."""
Ask = Callable[[str, Sequence["dict[str, NDArray] | None"], Sequence[Shapes]], Sequence[Arrays]]
"""Asks all parties at once: (topic, the message to each, the shapes of each answer) → answers.
There is no message, but None, to a party that is not asked.
"""


@dataclass
class _Level:
    """The open nodes of a level: their numbers, their sums, and the state of their draws."""

    number: NDArray[np.int64]
    totals: Totals
    frontier: Frontier

    def __len__(self) -> int:
        return len(self.number)


@dataclass
class _Split:
    """The decision on open nodes: column (−1 if none), which threshold of the column, its value,
    sums on the left, which children stay open, and which thresholds have no row on a side.
    """

    feature: NDArray[np.int64]
    number: NDArray[np.int64]
    threshold: NDArray[np.float32]
    left_totals: Totals
    keep: NDArray[np.bool_]
    empty: NDArray[np.uint8]


class _Side:
    """The server's view of one party: which open nodes have rows of it, and its sums there.

    Args:
        start: its first answer.
        growth: how trees are grown. If only the sum of all answers is revealed, each party answers
            for every node.
    """

    def __init__(self, start: Arrays, growth: Growth) -> None:
        self.growth = growth
        self.totals = start["totals"]
        reported = self.totals.any(0) | growth.summed | (not growth.classes)
        self.sums: slice | NDArray[np.int64] = slice(None)
        if not reported.all():
            self.sums = np.flatnonzero(reported)
        self.nodes = np.arange(len(self.totals))

    def _keep(self, totals: Totals, nodes: NDArray[np.int64], keep: NDArray[np.bool_]) -> None:
        if not self.growth.summed:
            keep = keep & totals.any(1)
        self.totals = totals[keep]
        self.nodes = nodes[keep]

    def shape(self, thresholds: NDArray) -> tuple[int, ...]:
        """Return the shape of the party's counts at thresholds (d, thresholds, nodes)."""
        columns, draws, _ = thresholds.shape
        sums = self.totals[:, self.sums].shape[1]
        return sums, columns, draws, len(self.nodes)

    def first_message(
        self, open_: NDArray[np.bool_], low: NDArray, high: NDArray
    ) -> dict[str, NDArray]:
        """Return the first message to the party."""
        self._keep(self.totals, np.cumsum(open_) - 1, open_)
        return {"low": low, "high": high, "open": open_}

    def message_after(self, split: _Split, left_totals: Totals) -> dict[str, NDArray]:
        """Return the message to the party about a decided level; ``left_totals`` holds the party's
        sums on the left.
        """
        nodes = self.nodes
        feature = split.feature[nodes]
        keep = split.keep[nodes]
        message: dict[str, NDArray] = {
            "feature": feature.astype(np.int16),
            "number": split.number[nodes].astype(np.uint8),
            "keep": keep,
        }
        if not self.growth.exact:
            message["empty"] = split.empty[:, :, nodes]
        left_totals = np.where((feature >= 0)[:, None], left_totals, self.totals)
        child_position = (np.cumsum(split.keep) - 1).reshape(-1, 2)[nodes]
        both = np.stack([left_totals, self.totals - left_totals], 1).reshape(
            -1, left_totals.shape[1]
        )
        self._keep(both, child_position.ravel(), keep.ravel())
        return message


def asking(parties: Sequence[Party]) -> Ask:
    """Return a function that asks parties of this process."""

    def ask(
        topic: str, messages: Sequence[dict[str, NDArray] | None], shapes: Sequence[Shapes]
    ) -> list[Arrays]:
        answers: list[Arrays] = []
        for party, message in zip(parties, messages, strict=True):
            answers.append({} if message is None else getattr(party, topic)(message))
        return answers

    return ask


def grow(ask: Ask, starts: Sequence[Arrays], keys: Keys, growth: Growth) -> Grown:
    """Grow all trees at once.

    Args:
        ask: asks parties.
        starts: the first answer of each party (see :meth:`fedlit.trees.party.Party.start`).
        keys: the keys of the nodes to start from.
        growth: how trees are grown.

    Returns:
        Nodes; the first are those that it started from.

    Example:
        >>> from fedlit.trees.nodes import root_keys
        >>> x = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)
        >>> growth = Growth(classes=2, columns=1, tried=1)
        >>> party, keys = Party(x, np.array([0, 0, 1, 1]), growth), root_keys(8, 1)
        >>> grown = grow(asking([party]), [party.start(keys)], keys, growth)
        >>> int(grown.feature[0]), grown.totals[grown.feature < 0].tolist()
        (0, [[0, 1], [2, 0], [0, 1]])
    """
    totals: Totals = np.sum([start["totals"] for start in starts], 0)
    low = np.min([start["low"] for start in starts], 0)
    high = np.max([start["high"] for start in starts], 0)
    open_ = ~growth.done(totals)
    level = _Level(np.flatnonzero(open_), totals[open_], Frontier.begin(keys[open_], low, high))
    sides = [_Side(start, growth) for start in starts]
    messages = [side.first_message(open_, low, high) for side in sides]
    nodes = Nodes(totals)
    levels = 0
    while len(level) and (growth.levels is None or levels < growth.levels):
        split, lefts = _decide(ask, level, sides, messages, growth)
        messages = [
            side.message_after(split, left_totals)
            for side, left_totals in zip(sides, lefts, strict=True)
        ]
        level = _next(level, split, nodes)
        levels += 1
    return nodes.grown()


def _asked(
    ask: Ask,
    topic: str,
    messages: Sequence[dict[str, NDArray]],
    sides: Sequence[_Side],
    shapes: Sequence[Shapes],
) -> list[Arrays]:
    """Ask the parties that have open nodes; the others never have any again."""
    open_ = [
        message if len(side.nodes) else None for message, side in zip(messages, sides, strict=True)
    ]
    return list(ask(topic, open_, shapes))


def _decide(
    ask: Ask,
    level: _Level,
    sides: Sequence[_Side],
    messages: list[dict[str, NDArray]],
    growth: Growth,
) -> tuple[_Split, list[Totals]]:
    """Return how each node of a level is split, and the sums of each party on the left."""
    frontier = level.frontier
    if growth.exact:
        _narrow(ask, frontier, sides, messages)
        messages = [{} for _ in sides]
    ranks = frontier.ranks(growth)
    thresholds = frontier.draw(growth, ranks)
    if growth.exact:  # Only this side knows the ranges, so it sends the thresholds.
        messages = [{"thresholds": thresholds[:, :, side.nodes]} for side in sides]
    shapes = [{"left": side.shape(thresholds)} for side in sides]
    answers = [answer.get("left") for answer in _asked(ask, "counts", messages, sides, shapes)]
    dtype = np.int32 if growth.classes else np.int64
    left_sums = np.zeros((level.totals.shape[1], *thresholds.shape), dtype)
    for side, answer in zip(sides, answers, strict=True):
        if answer is not None:
            _add(left_sums, answer, side)
    split = _best(level, left_sums, thresholds, ranks, growth)
    lefts = []
    for side, answer in zip(sides, answers, strict=True):
        side_left = np.zeros_like(side.totals)
        if answer is not None:
            feature = np.maximum(split.feature, 0)[side.nodes]
            number = split.number[side.nodes]
            side_left[:, side.sums] = answer[:, feature, number, np.arange(len(side.nodes))].T
        lefts.append(side_left)
    return split, lefts


def _narrow(
    ask: Ask, frontier: Frontier, sides: Sequence[_Side], messages: list[dict[str, NDArray]]
) -> None:
    """Ask for the range of each column in each node."""
    frontier.low = np.full_like(frontier.low, np.inf)
    frontier.high = np.full_like(frontier.high, -np.inf)
    shapes = [
        dict.fromkeys(("low", "high"), (len(frontier.low), len(side.nodes))) for side in sides
    ]
    for side, answer in zip(sides, _asked(ask, "ranges", messages, sides, shapes), strict=True):
        if answer:
            frontier.low[:, side.nodes] = np.minimum(frontier.low[:, side.nodes], answer["low"])
            frontier.high[:, side.nodes] = np.maximum(frontier.high[:, side.nodes], answer["high"])


def _add(left_sums: Totals, answer: Totals, side: _Side) -> None:
    everywhere = len(side.nodes) == left_sums.shape[-1]
    for position, number in enumerate(np.arange(len(left_sums))[side.sums]):
        if everywhere:
            left_sums[number] += answer[position]
        else:
            left_sums[number][..., side.nodes] += answer[position]


def _best(
    level: _Level,
    left_sums: Totals,
    thresholds: NDArray[np.float32],
    ranks: NDArray[np.float64],
    growth: Growth,
) -> _Split:
    """Return the best split of each node, and shrink the ranges of columns to where there are
    rows.
    """
    frontier = level.frontier
    rows = left_sums.sum(0, dtype=left_sums.dtype) if growth.classes else left_sums[0]
    total = level.totals.sum(-1) if growth.classes else level.totals[:, 0]
    used = ~np.isnan(thresholds)
    valid = used & (rows > 0) & (rows < total)
    empty = np.zeros(rows.shape, np.uint8)
    if not growth.exact:
        empty[used & (rows <= 0)] = NOTHING_LEFT
        empty[used & (rows >= total)] = NOTHING_RIGHT
        frontier.shrink(thresholds, empty)
    number = valid.argmax(1)
    at = np.arange(growth.columns)[:, None], number, np.arange(len(level))[None]
    valid_left = left_sums[:, *at]
    score = np.where(
        valid[at], _score(valid_left, rows[at], level.totals.T, total, growth), -np.inf
    )
    feature = np.where(score >= score.max(0), ranks, -1.0).argmax(0)
    nodes = np.arange(len(level))
    splittable = np.isfinite(score[feature, nodes])
    number = number[feature, nodes]
    best_left = valid_left[:, feature, nodes].T.astype(np.int64)
    again = (
        ~splittable
        & (not growth.exact)
        & (frontier.tried + 1 < TRIES)
        & (frontier.high > frontier.low).any(0)
    )
    leaf = np.stack([growth.done(best_left), growth.done(level.totals - best_left)], 1)
    keep = ~leaf & splittable[:, None]
    keep[again, 0] = True
    threshold = np.where(splittable, thresholds[feature, number, nodes], np.float32(0))
    return _Split(np.where(splittable, feature, -1), number, threshold, best_left, keep, empty)


def _score(
    left_sums: Totals, rows: Totals, totals: Totals, total: Totals, growth: Growth
) -> NDArray[np.float64]:
    """Return how much a split explains: larger values are purer by Gini's impurity, or by the
    variance.
    """
    if not growth.classes:
        left_sums = left_sums[1:2]
        totals = totals[1:2]
    score = np.zeros(rows.shape)
    right_score = np.zeros(rows.shape)
    for left_sum, node_sum in zip(
        left_sums.astype(np.float64), totals.astype(np.float64), strict=True
    ):
        score += left_sum**2
        right_score += (node_sum - left_sum) ** 2
    score /= np.maximum(rows, 1)
    right_score /= np.maximum(total - rows, 1)
    score += right_score
    return score


def _next(level: _Level, split: _Split, nodes: Nodes) -> _Level:
    """Return the open nodes of the next level, and record the finished ones."""
    parents = np.flatnonzero(split.feature >= 0)
    feature = split.feature[parents]
    threshold = split.threshold[parents]
    left_totals = split.left_totals[parents]
    child = np.full((len(level), 2), -1)
    child[parents] = nodes.split(
        level.number[parents], feature, threshold, left_totals, level.totals[parents] - left_totals
    )
    again = split.feature < 0
    child[again, 0] = level.number[again]
    left_or_whole = np.where(again[:, None], level.totals, split.left_totals)
    totals = np.stack([left_or_whole, level.totals - split.left_totals], 1)
    keep = split.keep.ravel()
    return _Level(
        child.ravel()[keep],
        totals.reshape(-1, totals.shape[-1])[keep],
        level.frontier.following(split.feature, split.threshold, split.keep),
    )


# ---------------------------------------------------------------------- a party's private branches

_MOST = 2.0
_FADES = 100
"""The maximum number of rows that are added to a leaf, and the number of a party's rows at which
one row is added; chosen on validation rows."""


def usual_smoothing(rows: int, *, alone: bool) -> float:
    """Return the number of rows that are added to each leaf of a party with so many rows, if nobody
    says so: 0 unless it goes on alone where the trees end.

    Example:
        >>> usual_smoothing(400, alone=True), usual_smoothing(400, alone=False)
        (0.25, 0.0)
    """
    if not alone or not rows:
        return 0.0
    return min(_MOST, _FADES / rows)


def sided(grown: Grown, keys: Keys, lacks: Sequence[int]) -> Grown:
    """Return the trees of a party that lacks columns: at their splits, all its rows take the side
    that was drawn.

    Args:
        grown: the trees.
        keys: the keys of all nodes.
        lacks: the positions of the columns that the party lacks.
    """
    nodes = np.flatnonzero(np.isin(grown.feature, sorted(lacks)))
    if not len(nodes):
        return grown
    columns = int(grown.feature.max()) + 1
    sides = uniform(keys[nodes], SIDE, columns)[grown.feature[nodes], np.arange(len(nodes))] < 0.5
    threshold = grown.threshold.copy()
    threshold[nodes] = np.where(sides, np.inf, -np.inf)
    return replace(grown, threshold=threshold)


def finished(
    grown: Grown,
    roots: Keys,
    growth: Growth,
    x: NDArray[np.float32],
    y: NDArray,
    lacks: Sequence[int],
    *,
    alone: bool,
    smoothing: float | None = None,
) -> tuple[Grown, NDArray[np.float32]]:
    """Return the trees of one party, and what each of their nodes predicts.

    Shares of classes are the m-estimate of Cestnik 1990 ("Estimating probabilities: a crucial task
    in machine learning", ECAI). Otherwise, leaves of one or two rows would be sure of their class,
    and so would a forest of few rows, whose trees are similar.

    Args:
        grown: the trees that all parties have.
        roots: the keys of their roots.
        growth: how they were grown.
        x: (n, d) the rows of the party.
        y: (n,) the target of these rows.
        lacks: the positions of the columns that the party does not have.
        alone: whether the party goes on where the trees end, with its rows alone, and sends nothing
            about it.
        smoothing: m, the number of rows that are added to each leaf, with the shares of classes of
            all rows that were reported. If None, see :func:`usual_smoothing`.

    Returns:
        The trees; and (nodes, outputs) shares of classes, or (nodes, 1) numbers. Only the values of
        leaves count.
    """
    keys = keys_of(grown, roots)
    grown = sided(grown, keys, lacks)
    reported = np.maximum(grown.totals[grown.leaves], 0).sum(0) + 1.0
    if smoothing is None:
        smoothing = usual_smoothing(len(x), alone=alone)
    prior = smoothing * reported / reported.sum()
    values = _predicted(grown.totals, growth, prior)
    if not alone or not len(x):
        return grown, values
    growth = replace(growth, exact=True, minimum=1, levels=None, summed=False)
    party = Party(x, y, growth, lacks)
    roots_of_trees = np.arange(grown.roots)
    leaf_of_row = find_leaves(x, grown.feature, grown.threshold, grown.child, roots_of_trees)
    leaf_of_row = leaf_of_row[party.order].T.ravel()
    order = np.argsort(leaf_of_row, kind="stable")  # Rows of a class stay together.
    leaves, sizes = np.unique(leaf_of_row, return_counts=True)
    begun = party.start(keys[leaves], np.tile(party.order, grown.roots)[order], sizes)
    below = grow(asking([party]), [begun], keys[leaves], growth)
    # Measured on Covertype: the common leaf as a prior makes the private branches worse, whatever
    # its weight.
    below_values = _predicted(below.totals, growth, prior)
    values = np.concatenate([values, below_values[len(leaves) :]])
    values[leaves] = below_values[: len(leaves)]
    return grown.with_below(leaves, below), values


def _predicted(
    totals: NDArray[np.int64], growth: Growth, prior: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return means; or shares of classes, with ``prior`` (classes,) added to the counts. Without
    any rows, all classes have the same share.
    """
    if not growth.classes:
        return (totals[:, 1:2] / SCALE / np.maximum(totals[:, :1], 1)).astype(np.float32)
    counts = np.maximum(totals, 0) + prior
    rows = counts.sum(1, keepdims=True)
    shares = np.where(rows > 0, counts / np.where(rows > 0, rows, 1), 1 / totals.shape[1])
    return shares.astype(np.float32)
