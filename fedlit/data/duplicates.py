"""Finds equal rows of a table, and decides whether they are ordinary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.table import Split

if TYPE_CHECKING:
    import pandas as pd


_FEW_DIFFERENT = 0.3
"""Share of different rows below which equal rows are ordinary. Entering cases twice or thrice leaves
more."""
_SHARE_OF_TWINS = 0.5
_TIMES_CHANCE = 3
"""Least ratio of pairs of equal rows to those that independent columns would have."""
_MOST_COMPARED = 20_000
"""Largest number of rows that are compared in all columns but one."""


def same_rows(
    hashes: np.ndarray, target: pd.Series, splits: Mapping[Split, np.ndarray]
) -> tuple[int, int]:
    """Count the rows that occur more than once in the table, and the validation or test rows that
    also occur among the training rows.

    Args:
        hashes: (n,) uint64 of the features, see :func:`fedlit.data.table.row_hashes`.
        target: (n,) the target.
        splits: the positions of each split.
    """
    if len(np.unique(hashes)) == len(hashes):
        return 0, 0
    rows = hashes * np.uint64(31) + target.factorize()[0].astype(np.uint64)
    doubled = len(rows) - len(np.unique(rows))
    if not doubled:
        return 0, 0
    train = rows[splits["train"]]
    return doubled, int(
        sum(np.isin(rows[splits[split]], train).sum() for split in ("validation", "test"))
    )


def twins_are_ordinary(features: pd.DataFrame, target: pd.Series) -> bool:
    """Return whether equal rows occur by chance. Then even more pairs of rows are equal in all
    columns but one, which is rare if cases were entered twice.

    Example:
        >>> import pandas as pd
        >>> coins = np.random.default_rng(1).integers(0, 2, (100, 8))
        >>> twins_are_ordinary(pd.DataFrame(coins), pd.Series(coins[:, 0]))
        True
        >>> numbers = np.repeat(np.random.default_rng(1).normal(size=(50, 8)), 2, axis=0)
        >>> twins_are_ordinary(pd.DataFrame(numbers), pd.Series(numbers[:, 0]))
        False
    """
    import pandas as pd

    columns = [target, *(features[name] for name in features)]
    hashes = list[np.ndarray]()
    for position, column in enumerate(columns):
        codes = column.iloc[:_MOST_COMPARED].factorize(use_na_sentinel=False)[0].astype(np.uint64)
        hashes.append(pd.util.hash_array(codes, categorize=False) * np.uint64(2 * position + 1))
    rows = np.zeros(len(hashes[0]), np.uint64)
    for column_hashes in hashes:
        rows += column_hashes
    if len(np.unique(rows)) < _FEW_DIFFERENT * len(rows):
        return True
    twins = _pairs(rows)
    nearly = sorted(_pairs(rows - column_hashes) - twins for column_hashes in hashes)
    every = len(rows) * (len(rows) - 1) / 2
    # Pairs of equal rows that independent columns would have, by their pairs of equal cells.
    chance = every * float(
        np.prod([(_pairs(column_hashes) - twins) / every for column_hashes in hashes])
    )
    if twins <= _TIMES_CHANCE * chance:
        return True
    # The last value is left out: without a column that numbers the rows, all are nearly equal.
    return sum(nearly[:-1]) >= _SHARE_OF_TWINS * twins


def _pairs(rows: np.ndarray) -> int:
    """Return the number of pairs of equal values (n,)."""
    counts = np.unique(rows, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())
