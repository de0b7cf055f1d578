"""Grows trees from sums: it decides which node is split and where, and sees no row. What a party
makes of these trees stands at the end: ends of branches of its own, and predictions of leaves.

Extremely randomised trees (Geurts, Ernst and Wehenkel 2006, "Extremely randomized trees", Machine
Learning 63:3-42): each column of a node gets a threshold that is drawn, and the best of these
splits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    """The open nodes of a level: their numbers, their sums, and what is drawn for them."""

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
    left: Totals
    keep: NDArray[np.bool_]
    empty: NDArray[np.uint8]


class _Side:
    """What is known of one party: which open nodes have rows of it, and its sums there.

    Args:
        start: what it said at the beginning.
        way: how trees are grown. All whose sum alone is told tell of every node.
    """

    def __init__(self, start: Arrays, way: Growth) -> None:
        self.way = way
        self.totals = start["totals"]
        told = self.totals.any(0) | way.summed | (not way.classes)
        self.sums: Any = slice(None) if told.all() else np.flatnonzero(told)
        self.nodes = np.arange(len(self.totals))

    def _keep(self, totals: Totals, nodes: NDArray[np.int64], kept: NDArray[np.bool_]) -> None:
        if not self.way.summed:
            kept = kept & totals.any(1)
        self.totals = totals[kept]
        self.nodes = nodes[kept]

    def shape(self, thresholds: NDArray) -> tuple[int, ...]:
        """Return the shape of the party's counts at thresholds (d, thresholds, nodes)."""
        columns, each, _ = thresholds.shape
        sums = self.totals[:, self.sums].shape[1]
        return sums, columns, each, len(self.nodes)

    def begin(self, open_: NDArray[np.bool_], low: NDArray, high: NDArray) -> dict[str, NDArray]:
        """Return what the party is sent at first."""
        self._keep(self.totals, np.cumsum(open_) - 1, open_)
        return {"low": low, "high": high, "open": open_}

    def go_on(self, split: _Split, left: Totals) -> dict[str, NDArray]:
        """Return what the party is sent about a level that has been decided; ``left`` holds the
        party's sums there.
        """
        nodes = self.nodes
        feature = split.feature[nodes]
        keep = split.keep[nodes]
        told: dict[str, NDArray] = {
            "feature": feature.astype(np.int16),
            "number": split.number[nodes].astype(np.uint8),
            "keep": keep,
        }
        if not self.way.exact:
            told["empty"] = split.empty[:, :, nodes]
        left = np.where((feature >= 0)[:, None], left, self.totals)
        place = (np.cumsum(split.keep) - 1).reshape(-1, 2)[nodes]
        both = np.stack([left, self.totals - left], 1).reshape(-1, left.shape[1])
        self._keep(both, place.ravel(), keep.ravel())
        return told


def asking(parties: Sequence[Party]) -> Ask:
    """Return a function that asks parties of this process."""
    return lambda topic, told, shapes: [
        {} if own is None else getattr(party, topic)(own)
        for party, own in zip(parties, told, strict=True)
    ]


def grow(ask: Ask, starts: Sequence[Arrays], keys: Keys, way: Growth) -> Grown:
    """Grow all trees at once.

    Args:
        ask: asks parties.
        starts: the first answer of each party (see :meth:`fedlit.trees.party.Party.start`).
        keys: the keys of the nodes to start from.
        way: how trees are grown.

    Returns:
        Nodes; the first are those that it started from.

    Example:
        >>> from fedlit.trees.nodes import root_keys
        >>> x, way = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32), Growth(classes=2, columns=1, tried=1)
        >>> party, keys = Party(x, np.array([0, 0, 1, 1]), way), root_keys(8, 1)
        >>> grown = grow(asking([party]), [party.start(keys)], keys, way)
        >>> int(grown.feature[0]), grown.totals[grown.feature < 0].tolist()
        (0, [[0, 1], [2, 0], [0, 1]])
    """
    totals: Totals = np.sum([start["totals"] for start in starts], 0)
    low = np.min([start["low"] for start in starts], 0)
    high = np.max([start["high"] for start in starts], 0)
    open_ = ~way.done(totals)
    level = _Level(np.flatnonzero(open_), totals[open_], Frontier.begin(keys[open_], low, high))
    sides = [_Side(start, way) for start in starts]
    told = [side.begin(open_, low, high) for side in sides]
    nodes = Nodes(totals)
    levels = 0
    while len(level) and (way.levels is None or levels < way.levels):
        split, lefts = _decide(ask, level, sides, told, way)
        told = [side.go_on(split, left) for side, left in zip(sides, lefts, strict=True)]
        level = _next(level, split, nodes)
        levels += 1
    return nodes.grown()


def _asked(
    ask: Ask,
    topic: str,
    told: Sequence[dict[str, NDArray]],
    sides: Sequence[_Side],
    shapes: Sequence[Shapes],
) -> list[Arrays]:
    """Ask the parties that have open nodes; the others never have any again."""
    open_ = [own if len(side.nodes) else None for own, side in zip(told, sides, strict=True)]
    return list(ask(topic, open_, shapes))


def _decide(
    ask: Ask, level: _Level, sides: Sequence[_Side], told: list[dict[str, NDArray]], way: Growth
) -> tuple[_Split, list[Totals]]:
    """Return how each node of a level is split, and the sums of each party on the left."""
    frontier = level.frontier
    if way.exact:
        _narrow(ask, frontier, sides, told)
        told = [{} for _ in sides]
    ranks = frontier.ranks(way)
    thresholds = frontier.draw(way, ranks)
    if way.exact:  # nobody else knows the ranges
        told = [{"thresholds": thresholds[:, :, side.nodes]} for side in sides]
    shapes = [{"left": side.shape(thresholds)} for side in sides]
    answers = [answer.get("left") for answer in _asked(ask, "counts", told, sides, shapes)]
    left = np.zeros(
        (level.totals.shape[1], *thresholds.shape), np.int32 if way.classes else np.int64
    )
    for side, answer in zip(sides, answers, strict=True):
        if answer is not None:
            _add(left, answer, side)
    split = _best(level, left, thresholds, ranks, way)
    lefts = []
    for side, answer in zip(sides, answers, strict=True):
        mine = np.zeros_like(side.totals)
        if answer is not None:
            at = np.arange(len(side.nodes))
            chosen = np.maximum(split.feature, 0)[side.nodes], split.number[side.nodes], at
            mine[:, side.sums] = answer[:, *chosen].T
        lefts.append(mine)
    return split, lefts


def _narrow(
    ask: Ask, frontier: Frontier, sides: Sequence[_Side], told: list[dict[str, NDArray]]
) -> None:
    """Ask for the range of each column in each node."""
    frontier.low = np.full_like(frontier.low, np.inf)
    frontier.high = np.full_like(frontier.high, -np.inf)
    shapes = [
        dict.fromkeys(("low", "high"), (len(frontier.low), len(side.nodes))) for side in sides
    ]
    for side, answer in zip(sides, _asked(ask, "ranges", told, sides, shapes), strict=True):
        if answer:
            frontier.low[:, side.nodes] = np.minimum(frontier.low[:, side.nodes], answer["low"])
            frontier.high[:, side.nodes] = np.maximum(frontier.high[:, side.nodes], answer["high"])


def _add(left: Totals, answer: Totals, side: _Side) -> None:
    everywhere = len(side.nodes) == left.shape[-1]
    for place, number in enumerate(np.arange(len(left))[side.sums]):
        if everywhere:
            left[number] += answer[place]
        else:
            left[number][..., side.nodes] += answer[place]


def _best(
    level: _Level,
    left: Totals,
    thresholds: NDArray[np.float32],
    ranks: NDArray[np.float64],
    way: Growth,
) -> _Split:
    """Return the best split of each node, and shrink the ranges of columns to where there are
    rows.
    """
    frontier = level.frontier
    rows = left.sum(0, dtype=left.dtype) if way.classes else left[0]
    total = level.totals.sum(-1) if way.classes else level.totals[:, 0]
    used = ~np.isnan(thresholds)
    valid = used & (rows > 0) & (rows < total)
    empty = np.zeros(rows.shape, np.uint8)
    if not way.exact:
        empty[used & (rows <= 0)] = NOTHING_LEFT
        empty[used & (rows >= total)] = NOTHING_RIGHT
        frontier.shrink(thresholds, empty)
    number = valid.argmax(1)
    at = np.arange(way.columns)[:, None], number, np.arange(len(level))[None]
    ours = left[:, *at]
    score = np.where(valid[at], _score(ours, rows[at], level.totals.T, total, way), -np.inf)
    feature = np.where(score >= score.max(0), ranks, -1.0).argmax(0)
    nodes = np.arange(len(level))
    good = np.isfinite(score[feature, nodes])
    number = number[feature, nodes]
    mine = ours[:, feature, nodes].T.astype(np.int64)
    again = (
        ~good
        & (not way.exact)
        & (frontier.tried + 1 < TRIES)
        & (frontier.high > frontier.low).any(0)
    )
    keep = ~np.stack([way.done(mine), way.done(level.totals - mine)], 1) & good[:, None]
    keep[again, 0] = True
    threshold = np.where(good, thresholds[feature, number, nodes], np.float32(0))
    return _Split(np.where(good, feature, -1), number, threshold, mine, keep, empty)


def _score(
    left: Totals, rows: Totals, totals: Totals, total: Totals, way: Growth
) -> NDArray[np.float64]:
    """Return how much a split explains: larger values are purer by Gini's impurity, or by the
    variance.
    """
    if not way.classes:
        left = left[1:2]
        totals = totals[1:2]
    found = np.zeros(rows.shape)
    others = np.zeros(rows.shape)
    for own, both in zip(left.astype(np.float64), totals.astype(np.float64), strict=True):
        found += own**2
        others += (both - own) ** 2
    found /= np.maximum(rows, 1)
    others /= np.maximum(total - rows, 1)
    found += others
    return found


def _next(level: _Level, split: _Split, nodes: Nodes) -> _Level:
    """Return the open nodes of the next level, and record the finished ones."""
    good = np.flatnonzero(split.feature >= 0)
    feature = split.feature[good]
    threshold = split.threshold[good]
    left = split.left[good]
    child = np.full((len(level), 2), -1)
    child[good] = nodes.split(
        level.number[good], feature, threshold, left, level.totals[good] - left
    )
    again = split.feature < 0
    child[again, 0] = level.number[again]
    ours = np.where(again[:, None], level.totals, split.left)
    totals = np.stack([ours, level.totals - split.left], 1)
    kept = split.keep.ravel()
    return _Level(
        child.ravel()[kept],
        totals.reshape(-1, totals.shape[-1])[kept],
        level.frontier.following(split.feature, split.threshold, split.keep),
    )


# ---------------------------------------------------------------------- a party's own ends

_MOST = 2.0
_FADES = 100
"""The most rows that are added to a leaf, and a party's rows at which it is one; chosen on
validation rows."""


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
    grown: Grown, roots: Keys, way: Growth, x: NDArray[np.float32], y: NDArray, lacks: Sequence[int], *, alone: bool,
    smoothing: float | None = None,
) -> tuple[Grown, NDArray[np.float32]]:  # fmt: skip
    """Return the trees of one party, and what each of their nodes predicts.

    Shares of classes are the m-estimate of Cestnik 1990 ("Estimating probabilities: a crucial task
    in machine learning", ECAI). Otherwise, leaves of one or two rows would be sure of their class,
    and so would a forest of few rows, whose trees are similar.

    Args:
        grown: the trees that all parties have.
        roots: the keys of their roots.
        way: how they were grown.
        x: (n, d) the rows of the party.
        y: (n,) the target of these rows.
        lacks: the positions of the columns that the party does not have.
        alone: whether the party goes on where the trees end, with its rows alone, and sends nothing
            about it.
        smoothing: m, the number of rows that are added to each leaf, with the shares of classes of
            all rows that were reported. If None, it is 0 unless the party goes on alone; then it is
            larger the fewer rows the party has, at most 2.

    Returns:
        The trees; and (nodes, outputs) shares of classes, or (nodes, 1) numbers. Only the values of
        leaves count.
    """
    keys = keys_of(grown, roots)
    grown = sided(grown, keys, lacks)
    told = np.maximum(grown.totals[grown.leaves], 0).sum(0) + 1.0
    if smoothing is None:
        smoothing = min(_MOST, _FADES / len(x)) if alone and len(x) else 0.0
    prior = smoothing * told / told.sum()
    values = _predicted(grown.totals, way, prior)
    if not alone or not len(x):
        return grown, values
    way = replace(way, exact=True, minimum=1, levels=None, summed=False)
    party = Party(x, y, way, lacks)
    found = find_leaves(x, grown.feature, grown.threshold, grown.child, np.arange(grown.roots))[
        party.order
    ].T.ravel()
    order = np.argsort(found, kind="stable")  # rows of a class stay together
    leaves, sizes = np.unique(found, return_counts=True)
    begun = party.start(keys[leaves], np.tile(party.order, grown.roots)[order], sizes)
    below = grow(asking([party]), [begun], keys[leaves], way)
    # measured on Covertype: what all found there, as a prior, makes its own ends worse, whatever
    # its weight
    own = _predicted(below.totals, way, prior)
    values = np.concatenate([values, own[len(leaves) :]])
    values[leaves] = own[: len(leaves)]
    return grown.with_below(leaves, below), values


def _predicted(
    totals: NDArray[np.int64], way: Growth, prior: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return means; or shares of classes, with ``prior`` (classes,) added to the counts. Without
    any rows, all classes have the same share.
    """
    if not way.classes:
        return (totals[:, 1:2] / SCALE / np.maximum(totals[:, :1], 1)).astype(np.float32)
    counts = np.maximum(totals, 0) + prior
    rows = counts.sum(1, keepdims=True)
    shares = np.where(rows > 0, counts / np.where(rows > 0, rows, 1), 1 / totals.shape[1])
    return shares.astype(np.float32)
