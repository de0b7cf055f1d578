"""Draws as functions of (seed, tree, node): whoever knows the seed draws the same, in any order, without asking."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
"""(nodes,) one key for each node: a function of (seed, tree, the path from the root)."""

FEATURE, THRESHOLD, SIDE = 1, 2, 3
"""The purposes of draws: the rank of a column, a threshold, and the side of rows without the column."""

LARGEST: Final = 255
"""The largest number of an attempt or a threshold."""

_U = np.uint64


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    z = z + _U(0x9E3779B97F4A7C15)
    z = (z ^ (z >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _U(27))) * _U(0x94D049BB133111EB)
    return z ^ (z >> _U(31))


def roots(seed: int, trees: int) -> Keys:
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
        >>> children(roots(8, 1)).shape, bool((children(roots(8, 3))[2] == children(roots(8, 5))[2]).all())
        ((1, 2), True)
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
        >>> drawn = uniform(roots(8, 4), THRESHOLD, 3)
        >>> bool((drawn[:2] == uniform(roots(8, 4), THRESHOLD, 2)).all()), bool(((drawn >= 0) & (drawn < 1)).all())
        (True, True)
    """
    tried = np.asarray(attempts)
    salt = np.arange(columns, dtype=_U)[:, None] | _U(purpose << 56) | _U(number << 40)
    salts = salt | (np.arange(int(tried.max(initial=0)) + 1, dtype=_U) << _U(48))
    with np.errstate(over="ignore"):
        drawn = _mix(keys[None] ^ _mix(salts)[:, np.broadcast_to(tried, keys.shape)])
    return (drawn >> _U(11)).astype(np.float64) * 2.0**-53
