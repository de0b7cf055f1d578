"""What a party makes of trees that were grown together: its own ends of branches, and what leaves predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedlit.trees import keys as drawn
from fedlit.trees.grow import Way, asking, grow
from fedlit.trees.nodes import Grown, find_leaves, keys_of
from fedlit.trees.party import SCALE, Party

__all__ = ["finished", "sided"]

_MOST, _FADES = 2.0, 100
"""The most rows that a leaf counts more, and the rows of a party at which it is one: settled on validation rows."""


def sided(grown: Grown, keys: drawn.Keys, lacks: Sequence[int]) -> Grown:
    """The trees as a party has them that lacks columns: all its rows go to the side that was drawn.

    Args:
        grown: the trees.
        keys: of all nodes.
        lacks: positions of the columns.
    """
    nodes = np.flatnonzero(np.isin(grown.feature, sorted(lacks)))
    if not len(nodes):
        return grown
    columns = int(grown.feature.max()) + 1
    sides = drawn.uniform(keys[nodes], drawn.SIDE, columns)[grown.feature[nodes], np.arange(len(nodes))] < 0.5
    threshold = grown.threshold.copy()
    threshold[nodes] = np.where(sides, np.inf, -np.inf)
    return replace(grown, threshold=threshold)


def finished(
    grown: Grown, roots: drawn.Keys, way: Way, x: NDArray[np.float32], y: NDArray, lacks: Sequence[int], *, alone: bool,
    smoothing: float | None = None,
) -> tuple[Grown, NDArray[np.float32]]:  # fmt: skip
    """The trees of one party, and what each of their nodes predicts.

    Shares of classes are the m-estimate of Cestnik 1990 ("Estimating probabilities: a crucial task in machine
    learning", ECAI): leaves of one row or two are sure of its class otherwise, and so is a forest of few rows, whose
    trees are alike.

    Args:
        grown: the trees that all have.
        roots: their keys.
        way: how they were grown.
        x: (n, d) the party's rows.
        y: (n,) their target.
        lacks: positions of columns that the party does not have.
        alone: whether it goes on where the trees end, with rows of its own, and tells nobody.
        smoothing: m, how many rows more a leaf counts, with the shares of classes of all rows that were told. If None,
            none but where the party goes on alone: the fewer rows it has, the more, at most 2.

    Returns:
        The trees; and (nodes, outputs) shares of classes, or (nodes, 1) numbers, of which those of leaves count.
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
    """Means; or shares of classes with ``prior`` (classes,) rows more; where there are none, all classes alike."""
    if not way.classes:
        return (totals[:, 1:2] / SCALE / np.maximum(totals[:, :1], 1)).astype(np.float32)
    counts = np.maximum(totals, 0) + prior
    rows = counts.sum(1, keepdims=True)
    shares = np.where(rows > 0, counts / np.where(rows > 0, rows, 1), 1 / totals.shape[1])
    return shares.astype(np.float32)
