"""Chooses which columns clients have in common, by how strongly these are correlated with the
others (Mori et al. 2022, arXiv:2203.02108, Section V-C and Table IV).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from math import comb
from typing import Literal, get_args

import numpy as np

from fedlit.data.table import ClientTable

MOST_WAYS = 3_000_000
"""Ways of choosing common columns up to which all are compared: Helena's 27 columns have 2,220,075
choices of 8."""
DRAWN_WAYS = 100_000
"""Ways that are drawn and compared where there are more."""
_CHUNK = 50_000

Rank = Literal["maximum", "median", "minimum"]
RANKS: tuple[Rank, ...] = get_args(Rank)


def correlations(tables: Sequence[ClientTable]) -> np.ndarray:
    """Return the absolute correlations of columns, shape (columns, columns), over the training rows
    of all clients.

    Categories are correlated by their codes. A constant column is correlated with nothing.

    Args:
        tables: tables that have the same columns in the same order.
    """
    import pandas as pd

    rows = pd.concat([table.features.iloc[table.splits["train"]] for table in tables])
    for name in rows:
        if rows[name].dtype.kind not in "iufb":
            rows[name] = rows[name].astype("category").cat.codes
    related: np.ndarray = np.nan_to_num(rows.astype(np.float64).corr().abs().to_numpy())
    return related


def strengths(related: np.ndarray, ways: np.ndarray) -> np.ndarray:
    """Return for each way the sum of correlations between its common columns and all others, shape
    (ways,).

    Args:
        related: the correlations, shape (columns, columns), symmetric.
        ways: the positions of the common columns in each way, shape (ways, common).

    Example:
        >>> related = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]])
        >>> strengths(related, np.array([[0], [1], [2]])).round(3).tolist()
        [0.6, 0.7, 0.3]
    """
    totals = related.sum(axis=0)
    sums = []
    for start in range(0, len(ways), _CHUNK):
        chunk = ways[start : start + _CHUNK]
        within = related[chunk[:, :, None], chunk[:, None, :]].sum(axis=(1, 2))
        sums.append(totals[chunk].sum(axis=1) - within)
    return np.concatenate(sums)


def choose_common(
    related: np.ndarray, common: int, rank: Rank, rng: np.random.Generator
) -> np.ndarray:
    """Return the positions of the common columns in the way whose sum of correlations has a given
    rank.

    Args:
        related: the correlations, shape (columns, columns), symmetric.
        common: the number of common columns.
        rank: ``maximum``, ``median`` or ``minimum`` of the sums of all ways.
        rng: draws :data:`DRAWN_WAYS` ways where there are more than :data:`MOST_WAYS`.
    """
    columns = len(related)
    if comb(columns, common) <= MOST_WAYS:
        flat = chain.from_iterable(combinations(range(columns), common))
        ways = np.fromiter(flat, np.int16).reshape(-1, common)
    else:
        orders = [rng.permutation(columns) for _ in range(DRAWN_WAYS)]
        ways = np.array([np.sort(order[:common]) for order in orders], np.int16)
    sums = strengths(related, ways)
    positions = {"maximum": len(sums) - 1, "median": len(sums) // 2, "minimum": 0}
    order = np.argsort(sums, kind="stable")
    chosen: np.ndarray = ways[order[positions[rank]]].astype(np.int64)
    return chosen
