"""Nodes of trees: their keys, of which draws are functions; finished trees as arrays; and where
rows end up in them.

Whoever knows the seed draws the same numbers for (seed, tree, node), in any order, without asking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import RunError

Keys = NDArray[np.uint64]
"""(nodes,) one key for each node: a function of (seed, tree, the path from the root)."""

FEATURE = 1
THRESHOLD = 2
SIDE = 3
"""The purposes of draws: the rank of a column, a threshold, and the side of rows without the
column."""

LARGEST: Final = 255
"""The largest number of an attempt or a threshold."""

_U = np.uint64


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    z = z + _U(0x9E3779B97F4A7C15)
    z ^= z >> _U(30)
    z *= _U(0xBF58476D1CE4E5B9)
    z ^= z >> _U(27)
    z *= _U(0x94D049BB133111EB)
    z ^= z >> _U(31)
    return z


def root_keys(seed: int, trees: int) -> Keys:
    """Return the keys of the roots of trees 0, 1, ….

    Args:
        seed: the seed, at least 0.
        trees: the number of trees.
    """
    with np.errstate(over="ignore"):
        return _mix(_mix(np.asarray([seed], _U)) ^ np.arange(trees, dtype=_U))


def children(keys: Keys) -> Keys:
    """Return the keys of the left and the right child, (nodes, 2).

    Example:
        >>> children(root_keys(8, 1)).shape
        (1, 2)
        >>> bool((children(root_keys(8, 3))[2] == children(root_keys(8, 5))[2]).all())
        True
    """
    with np.errstate(over="ignore"):
        return np.stack([_mix(keys ^ _U(0xC0FFEE00)), _mix(keys ^ _U(0xC0FFEE01))], 1)


def uniform(
    keys: Keys, purpose: int, columns: int, number: int = 0, attempts: NDArray[np.int64] | int = 0
) -> NDArray[np.float64]:
    """Return numbers in [0, 1), (columns, nodes).

    Args:
        keys: (nodes,) the keys of the nodes.
        purpose: :data:`FEATURE`, :data:`THRESHOLD` or :data:`SIDE`.
        columns: the number of columns; column j draws the same numbers however many there are.
        number: the number of the draw, if there are several.
        attempts: (nodes,) how often the node was tried before.

    Example:
        >>> drawn = uniform(root_keys(8, 4), THRESHOLD, 3)
        >>> bool((drawn[:2] == uniform(root_keys(8, 4), THRESHOLD, 2)).all())
        True
        >>> bool(((drawn >= 0) & (drawn < 1)).all())
        True
    """
    tried = np.asarray(attempts)
    most = int(tried.max(initial=0))
    salt = np.arange(columns, dtype=_U)[:, None] | _U(purpose << 56) | _U(number << 40)
    with np.errstate(over="ignore"):
        salts = _mix(salt | (np.arange(most + 1, dtype=_U) << _U(48)))
        if most:  # Without earlier attempts, all nodes have the same salts.
            salts = salts.take(np.broadcast_to(tried, keys.shape), axis=1)
        drawn = _mix(keys[None] ^ salts)
    drawn >>= _U(11)
    shares = drawn.astype(np.float64)
    shares *= 2.0**-53
    return shares


@dataclass
class Grown:
    """Nodes of several trees, the roots first.

    Attributes:
        feature: (nodes,) int16, the column that splits a node; −1 for a leaf.
        threshold: (nodes,) float32; rows that are not above it go to the left child.
        child: (nodes,) int32, the left child; the right one follows it. The child of a leaf is the
            leaf itself.
        totals: (nodes, sums) int64, the sums over the rows that parties reported.
        roots: the number of trees.
    """

    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    child: NDArray[np.int32]
    totals: NDArray[np.int64]
    roots: int

    @property
    def leaves(self) -> NDArray[np.bool_]:
        """Whether each node is a leaf, (nodes,)."""
        return self.feature < 0

    def check(self, columns: int) -> None:
        """Refuse arrays that are no trees; following the children of their nodes might never end.

        Args:
            columns: d.

        Raises:
            RunError: arrays do not fit together, or nodes are not the children of one earlier node
                each.
        """
        count = len(self.feature)
        shapes = self.threshold.shape == self.child.shape == self.feature.shape == (count,)
        inner = np.flatnonzero(~self.leaves)
        if shapes and 1 <= self.roots <= count and bool((self.feature < columns).all()):
            left_children = self.child[inner]
            later = bool((left_children > inner).all())
            if later and np.array_equal(np.sort(left_children), np.arange(self.roots, count, 2)):
                return
        raise RunError(
            f"forest: expected {self.roots} trees over {columns} columns, whose nodes have one "
            f"parent each, found {count} nodes that are none. Do all sites run the same version?"
        )

    def with_below(self, leaves: NDArray[np.int64], below: Grown) -> Grown:
        """Return these trees with other trees in place of some leaves.

        Args:
            leaves: (k,) the numbers of the leaves.
            below: k trees.
        """
        new_numbers = np.arange(len(below.feature) - len(leaves)) + len(self.feature)
        number = np.concatenate([leaves, new_numbers])
        count = len(below.feature) - len(leaves)
        feature, threshold, child, totals = (
            np.concatenate([array, np.zeros((count, *array.shape[1:]), array.dtype)])
            for array in (self.feature, self.threshold, self.child, self.totals)
        )
        feature[number] = below.feature
        threshold[number] = below.threshold
        child[number] = number[below.child]
        totals[number] = below.totals
        return Grown(feature, threshold, child, totals, self.roots)


class Nodes:
    """Collects nodes while trees are grown.

    Args:
        totals: the sums of the roots.
    """

    def __init__(self, totals: NDArray[np.int64]) -> None:
        self._roots = len(totals)
        self._count = len(totals)
        self._totals = [totals]
        self._splits: list[tuple[NDArray, ...]] = []

    def __len__(self) -> int:
        return self._count

    def split(
        self,
        number: NDArray,
        feature: NDArray,
        threshold: NDArray,
        left_totals: NDArray,
        right_totals: NDArray,
    ) -> NDArray[np.int64]:
        """Add the two children of each node that is split, and return their numbers, (nodes, 2)."""
        first = self._count + 2 * np.arange(len(number))
        self._splits.append((number, feature, threshold, first))
        self._totals.append(
            np.stack([left_totals, right_totals], 1).reshape(-1, left_totals.shape[1])
        )
        self._count += 2 * len(number)
        return np.stack([first, first + 1], 1)

    def grown(self) -> Grown:
        """Return all nodes that were collected."""
        count = self._count
        feature = np.full(count, -1, np.int16)
        threshold = np.full(count, np.inf, np.float32)
        child = np.arange(count, dtype=np.int32)
        for number, split_feature, split_threshold, first in self._splits:
            feature[number] = split_feature
            threshold[number] = split_threshold
            child[number] = first
        return Grown(feature, threshold, child, np.concatenate(self._totals), self._roots)


def keys_of(grown: Grown, roots: Keys) -> Keys:
    """Return the key of every node, given the keys of the roots."""
    keys = np.zeros(len(grown.feature), np.uint64)
    keys[: grown.roots] = roots
    level = np.arange(grown.roots)
    while len(level := level[~grown.leaves[level]]):
        left_children = grown.child[level]
        keys[left_children], keys[left_children + 1] = children(keys[level]).T
        level = np.concatenate([left_children, left_children + 1])
    return keys


_TOGETHER = 3
"""The number of levels between two checks of which rows have arrived; a check costs as much as a
level."""


def find_leaves(
    x: NDArray[np.float32],
    feature: NDArray,
    threshold: NDArray,
    child: NDArray,
    roots: NDArray,
    chunk: int = 2048,
) -> NDArray[np.int64]:
    """Return the leaf of each row in each tree, (n, trees).

    Args:
        x: (n, d) the rows.
        feature: (nodes,) as in :class:`Grown`, like the next two; the values of a leaf do not
            count.
        threshold: (nodes,) as in :class:`Grown`.
        child: (nodes,) as in :class:`Grown`.
        roots: (trees,) the numbers of the roots.
        chunk: the number of rows that are processed at a time.
    """
    leaf = feature < 0
    feature = np.where(leaf, 0, feature).astype(np.int64)
    threshold = np.where(leaf, np.float32(np.inf), threshold)  # A row stays in its leaf.
    child = np.where(leaf, np.arange(len(child)), child)
    leaves = np.empty((len(x), len(roots)), np.int64)
    for start in range(0, len(x), chunk):
        rows = np.ascontiguousarray(x[start : start + chunk])
        cells = rows.ravel()
        width = rows.shape[1]
        end = node = np.tile(roots.astype(np.int64), len(rows))
        offset = np.repeat(np.arange(len(rows)) * width, len(roots))
        position = np.arange(len(node))
        while len(position):
            for _ in range(_TOGETHER):
                right = cells.take(feature.take(node) + offset) > threshold.take(node)
                node = child.take(node) + right
            end[position] = node
            going = np.flatnonzero(~leaf.take(node))
            node = node.take(going)
            offset = offset.take(going)
            position = position.take(going)
        leaves[start : start + chunk] = end.reshape(len(rows), -1)
    return leaves
