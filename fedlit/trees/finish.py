"""What a party makes of trees that were grown together: ends of branches of its own, and predictions of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedlit.trees.grow import Way, asking, grow
from fedlit.trees.nodes import SIDE, Grown, Keys, find_leaves, keys_of, uniform
from fedlit.trees.party import SCALE, Party

_MOST, _FADES = 2.0, 100
"""The most rows that are added to a leaf, and a party's rows at which it is one; chosen on validation rows."""


def sided(grown: Grown, keys: Keys, lacks: Sequence[int]) -> Grown:
    """Return the trees of a party that lacks columns: at their splits, all its rows take the side that was drawn.

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
    grown: Grown, roots: Keys, way: Way, x: NDArray[np.float32], y: NDArray, lacks: Sequence[int], *, alone: bool,
    smoothing: float | None = None,
) -> tuple[Grown, NDArray[np.float32]]:  # fmt: skip
    """Return the trees of one party, and what each of their nodes predicts.

    Shares of classes are the m-estimate of Cestnik 1990 ("Estimating probabilities: a crucial task in machine
    learning", ECAI). Otherwise, leaves of one or two rows would be sure of their class, and so would a forest of few
    rows, whose trees are similar.

    Args:
        grown: the trees that all parties have.
        roots: the keys of their roots.
        way: how they were grown.
        x: (n, d) the rows of the party.
        y: (n,) the target of these rows.
        lacks: the positions of the columns that the party does not have.
        alone: whether the party goes on where the trees end, with its rows alone, and sends nothing about it.
        smoothing: m, the number of rows that are added to each leaf, with the shares of classes of all rows that were
            reported. If None, it is 0 unless the party goes on alone; then it is larger the fewer rows the party has,
            at most 2.

    Returns:
        The trees; and (nodes, outputs) shares of classes, or (nodes, 1) numbers. Only the values of leaves count.
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
    party = Party(x, y, way.classes, lacks)
    found = find_leaves(x, grown.feature, grown.threshold, grown.child, np.arange(grown.roots))[party.order].T.ravel()
    order = np.argsort(found, kind="stable")  # rows of a class stay together
    leaves, sizes = np.unique(found, return_counts=True)
    begun = party.start(keys[leaves], np.tile(party.order, grown.roots)[order], sizes)
    below = grow(asking([party]), [begun], keys[leaves], replace(way, exact=True))
    # measured on Covertype: what all found there, as a prior, makes its own ends worse, whatever its weight
    own = _predicted(below.totals, way, prior)
    values = np.concatenate([values, own[len(leaves) :]])
    values[leaves] = own[: len(leaves)]
    return grown.with_below(leaves, below), values


def _predicted(totals: NDArray[np.int64], way: Way, prior: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return means; or shares of classes, with ``prior`` (classes,) added to the counts. Without any rows, all classes
    have the same share.
    """
    if not way.classes:
        return (totals[:, 1:2] / SCALE / np.maximum(totals[:, :1], 1)).astype(np.float32)
    counts = np.maximum(totals, 0) + prior
    rows = counts.sum(1, keepdims=True)
    shares = np.where(rows > 0, counts / np.where(rows > 0, rows, 1), 1 / totals.shape[1])
    return shares.astype(np.float32)
