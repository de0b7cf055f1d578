"""Deals rows into folds, so that each row is predicted by a model that has not seen it and all rows are used for
training.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd

from fedlit.data.encoding import Rows
from fedlit.data.table import ClientTable, Split
from fedlit.data.target import own_task
from fedlit.errors import DataError, expect
from fedlit.seeding import derive_seed

_NUMBERS = ("regression", "counts")
BINS = 10  # of equal counts, by which a number's rows are spread over folds


def check_folds(folds: object, key: str = "folds") -> None:
    """Refuse an invalid number of folds.

    Args:
        folds: the number of folds in the configuration; 0 for none.
        key: the key of the configuration.

    Raises:
        ConfigError: a fold alone, a negative number, or no whole number.
    """
    whole = isinstance(folds, int) and not isinstance(folds, bool) and (folds == 0 or folds >= 2)
    expect(whole, key, "2 folds or more, 0 for none", folds, "4 or 8 are usual")


def check_fold(folds: int, fold: int) -> None:
    """Refuse a fold that does not exist.

    Raises:
        ConfigError: one fold alone, or a fold outside of 0 to ``folds`` − 1.
    """
    check_folds(folds, "data.folds")
    known = f"0 to {folds - 1}" if folds else "0, for data.folds is 0"
    expect(not isinstance(fold, bool) and 0 <= fold < max(folds, 1), "data.fold", known, fold)


def together(train: Rows, validation: Rows) -> Rows:
    """Concatenate training and validation rows in ascending order of row number, as :func:`fold_of` expects them.

    Example:
        >>> import torch
        >>> def rows(*numbers: int) -> Rows:
        ...     return Rows(torch.tensor([[float(n)] for n in numbers]), torch.tensor(numbers), np.array(numbers))
        >>> together(rows(5, 1), rows(3)).y.tolist()
        [1, 3, 5]
    """
    import torch

    row = np.concatenate([train.row, validation.row])
    order = np.argsort(row, kind="stable")
    place = torch.from_numpy(order)
    return Rows(torch.cat([train.x, validation.x])[place], torch.cat([train.y, validation.y])[place], row[order])


def fold_of(y: np.ndarray, n: int, seed: int, client: str, groups: np.ndarray | None = None) -> np.ndarray:
    """Deal training and validation rows into folds, as a function of these arguments alone.

    Args:
        y: (rows,) or (rows, labels), the encoded target of a client's training and validation rows, in ascending order
            of row number (see :func:`together`). Whole numbers are classes, and each fold has its share of every one;
            of other numbers it has its share of each tenth; of several labels of each combination.
        n: the number of folds, at least 2.
        seed: the run's.
        client: the client's name; the folds of each client are drawn separately.
        groups: (rows,) of whom a row tells: rows of one stay in one fold. None for rows that stand for themselves.

    Returns:
        (rows,) int64, the fold of each row, 0 to n − 1; none is empty.

    Raises:
        ConfigError: fewer than two folds.
        DataError: fewer rows, or groups, than folds.

    Example:
        >>> folds = fold_of(np.array([0] * 8 + [1] * 4), 4, seed=8, client="a")
        >>> np.bincount(folds), np.bincount(folds[8:])
        (array([3, 3, 3, 3]), array([1, 1, 1, 1]))
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    check_folds(n or 1)
    several, what = (len(y), "rows") if groups is None else (len(np.unique(groups)), "groups of rows")
    if several < n:
        raise DataError(
            f"client {client!r}: expected {n} training and validation {what} or more, one for each of {n} folds, found "
            f"{several}; give it more rows, or fewer folds"
        )
    strata = _strata(y, n)
    state = derive_seed(seed, "folds", client, n) % 2**32
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = np.empty(len(y), np.int64)
    with warnings.catch_warnings():
        # of a class with fewer rows than folds: it is in as many folds as it has rows, which is all that can be
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        parts = kind(n, shuffle=True, random_state=state).split(np.zeros(len(y)), strata, groups)
        for fold, (_, rows) in enumerate(parts):
            if not len(rows):
                raise DataError(
                    f"client {client!r}: expected groups that fill {n} folds, found that one stays empty; give fewer "
                    "folds"
                )
            folds[rows] = fold
    return folds


def _strata(y: np.ndarray, n: int) -> np.ndarray:
    """Return the stratum (rows,) int64 of each row; each fold gets its share of every stratum."""
    if y.ndim > 1:
        values = np.where(np.isnan(y), -1.0, y) if y.dtype.kind == "f" else y
        strata = np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
    elif y.dtype.kind == "f":
        edges = np.quantile(y, np.arange(1, BINS) / BINS)
        strata = np.unique(np.searchsorted(np.unique(edges), y, side="right"), return_inverse=True)[1]
    else:
        strata = np.unique(y, return_inverse=True)[1]
    if np.bincount(strata).max(initial=0) < n:  # every class is rarer than that: nothing can be shared out
        strata = np.zeros(len(y), np.int64)
    return np.asarray(strata, np.int64)


def folded(table: ClientTable, folds: int, fold: int, seed: int) -> ClientTable:
    """Return the table with one fold of its training and validation rows for validation and all other folds for
    training. Test rows are unchanged, and rows of one group stay in one fold.

    Args:
        table: a client's, with the splits of its source.
        folds: the number of folds; :func:`fold_of` deals the rows.
        fold: the fold for validation.
        seed: the run's.

    Raises:
        DataError: fewer rows or groups than folds; names the client.
    """
    number = table.features.index.to_numpy()
    places = np.concatenate([table.splits["train"], table.splits["validation"]])
    places = places[np.argsort(number[places], kind="stable")]  # whatever the split that the source gives
    target, task = table.target.iloc[places], own_task(table.task, table.name)
    numbers = pd.to_numeric(target, errors="coerce") if task is not None and task["name"] in _NUMBERS else None
    y = pd.factorize(target)[0] if numbers is None or numbers.isna().any() else numbers.to_numpy(np.float64)
    groups = None if table.groups is None else table.groups[places]
    held = fold_of(y, folds, seed, table.name, groups) == fold
    splits: dict[Split, np.ndarray] = {**table.splits, "train": places[~held], "validation": places[held]}
    return replace(table, splits=splits)


def fold_note(folds: int, fold: int) -> list[str]:
    """Return a note on the folds: which one is held out, and which rows stay together."""
    said = (
        f"training and validation rows are dealt into {folds} folds; fold {fold} is for validation, the others for "
        "training; rows of one group (split: group) stay together, rows of one time need not"
    )
    return [said] if folds else []
