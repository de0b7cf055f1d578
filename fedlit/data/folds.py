"""Deals rows into folds, so that each row is predicted by a model that has not seen it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from fedlit.data.table import ClientTable, Split
from fedlit.data.targets import outcome_at, strata_of
from fedlit.errors import DataError, expect

_BINS = 10
"""Number of bins with equal counts, by which the rows of a number are spread over folds."""


def check_fold(folds: int, fold: int) -> None:
    """Refuse an impossible number of folds, or an impossible fold.

    Args:
        folds: the number of folds in the configuration; 0 for none.
        fold: the fold for validation, counted from 0.

    Raises:
        ConfigError: one fold alone, or a fold outside of 0 to ``folds`` − 1.
    """
    whole = isinstance(folds, int) and not isinstance(folds, bool) and (folds == 0 or folds >= 2)
    expect(whole, "data.folds", "2 folds or more, 0 for none", folds, "4 or 8 are usual")
    expected = "0, because data.folds is 0"
    if folds:
        expected = f"0 to {folds - 1}"
    expect(not isinstance(fold, bool) and 0 <= fold < max(folds, 1), "data.fold", expected, fold)


def fold_of(
    y: np.ndarray, n: int, seed: int, client: str, groups: np.ndarray | None = None
) -> np.ndarray:
    """Deal training and validation rows into folds, as a function of these arguments alone.

    Args:
        y: (rows,) or (rows, labels), the encoded target of a client's training and validation rows,
            in ascending order of row number (see :meth:`fedlit.data.encoding.Rows.merged`). Whole
            numbers are classes, and each fold has its share of every one; of other numbers it has
            its share of each tenth; of several labels of each combination.
        n: the number of folds, at least 2.
        seed: the run's seed.
        client: the client's name; the folds of each client are drawn separately.
        groups: (rows,) the group of each row: rows of one group stay in one fold. None if rows are
            independent.

    Returns:
        (rows,) int64, the fold of each row, 0 to n − 1; none is empty.

    Raises:
        DataError: fewer rows, or groups, than folds.

    Example:
        >>> folds = fold_of(np.array([0] * 8 + [1] * 4), 4, seed=8, client="a")
        >>> np.bincount(folds), np.bincount(folds[8:])
        (array([3, 3, 3, 3]), array([1, 1, 1, 1]))
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    from fedlit.seeding import derive_seed

    size = len(y)
    unit = "rows"
    kind = StratifiedKFold
    if groups is not None:
        size = len(np.unique(groups))
        unit = "groups of rows"
        kind = StratifiedGroupKFold
    expected = f"{n} training and validation {unit} or more, one for each fold"
    advice = "give it more rows, or fewer folds"
    expect(size >= n, f"client {client!r}", expected, size, advice, DataError)
    strata = _strata(y, n)
    state = derive_seed(seed, "folds", client, n) % 2**32
    folds = np.empty(len(y), np.int64)
    with warnings.catch_warnings():
        # A class with fewer rows than folds can only be in as many folds as it has rows.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        parts = kind(n, shuffle=True, random_state=state).split(np.zeros(len(y)), strata, groups)
        for fold, (_, rows) in enumerate(parts):
            if not len(rows):
                raise DataError(
                    f"client {client!r}: expected groups that fill {n} folds, found that one stays "
                    "empty; give fewer folds"
                )
            folds[rows] = fold
    return folds


def _strata(y: np.ndarray, n: int) -> np.ndarray:
    """Return the stratum (rows,) int64 of each row; each fold gets its share of every stratum."""
    if y.ndim > 1:
        values = y
        if y.dtype.kind == "f":
            values = np.where(np.isnan(y), -1.0, y)
        strata = np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
    elif y.dtype.kind == "f":
        edges = np.quantile(y, np.arange(1, _BINS) / _BINS)
        bins = np.searchsorted(np.unique(edges), y, side="right")
        strata = np.unique(bins, return_inverse=True)[1]
    else:
        strata = np.unique(y, return_inverse=True)[1]
    # If every class has fewer rows than there are folds, no class can be in all of them.
    if np.bincount(strata).max(initial=0) < n:
        strata = np.zeros(len(y), np.int64)
    return np.asarray(strata, np.int64)


def folded(table: ClientTable, folds: int, fold: int, seed: int) -> ClientTable:
    """Return the table with one fold of its training and validation rows for validation and all
    other folds for training. Test rows are unchanged, and rows of one group stay in one fold.

    Args:
        table: a client's table with the splits of its source.
        folds: the number of folds; :func:`fold_of` deals the rows.
        fold: the fold for validation.
        seed: the run's seed.

    Raises:
        DataError: fewer rows or groups than folds; names the client.
    """
    import pandas as pd

    number = table.features.index.to_numpy()
    positions = np.concatenate([table.splits["train"], table.splits["validation"]])
    # Folds depend on the order of rows in the source, and not on the source's split.
    positions = positions[np.argsort(number[positions], kind="stable")]
    target = table.target.iloc[positions]
    outcome = outcome_at(table)
    strata = strata_of(target, outcome)
    y = pd.factorize(target if strata is None else strata)[0]
    if outcome.number and strata is None:
        numbers = pd.to_numeric(target, errors="coerce")
        if not numbers.isna().any():
            y = numbers.to_numpy(np.float64)
    groups = None if table.groups is None else table.groups[positions]
    is_validation = fold_of(y, folds, seed, table.name, groups) == fold
    splits: dict[Split, np.ndarray] = {
        **table.splits,
        "train": positions[~is_validation],
        "validation": positions[is_validation],
    }
    return replace(table, splits=splits)
