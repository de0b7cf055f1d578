"""Splits rows into training, validation and test rows: at random, by class, group or time, or by a
column; and deals rows into folds, so that each row is predicted by a model that has not seen it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.note import Note
from fedlit.data.table import (
    SPLITS,
    ClientTable,
    Split,
    check_patterns,
    first_match,
    outcome_at,
    row_hashes,
)
from fedlit.errors import ConfigError, DataError, Told, did_you_mean, expect, told_as
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.column import Column

SplitSettings = str | dict[str, str | dict[str, str]]
"""``stratified``, ``random``, ``{group: COLUMN}``, ``{time: COLUMN}`` or ``{column: COLUMN}``; or
one of these for each client, by its name or pattern."""

_BY = ("group", "time", "column")
_BINS = 10  # of equal counts, by which a number's rows are spread over folds
_FEW_DIFFERENT = 0.3  # of the rows: a case that was entered twice or thrice leaves more
_SHARE_OF_TWINS = 0.5
_TIMES_CHANCE = 3  # pairs of equal rows, of those that independent columns would have
_MOST_COMPARED = 20_000  # rows that are compared with each other in all columns but one
_FEWEST = 3  # rows of a class of which one can be in each split


def check_split(split: SplitSettings | None, clients: Iterable[str] | None = None) -> None:
    """Refuse an invalid split setting.

    Args:
        split: the split setting of the configuration.
        clients: the clients that it may name; None if they are not known yet.

    Raises:
        ConfigError: another word, not one column, or a pattern that matches no client.
    """
    if _is_one(split):
        return
    if (
        not isinstance(split, dict)
        or not split
        or any(key in _BY or not _is_one(own) for key, own in split.items())
    ):
        hint = did_you_mean(split, ("stratified", "random", *_BY)) if isinstance(split, str) else ""
        raise ConfigError(
            f"split: expected stratified, random, {{group: COLUMN}}, {{time: COLUMN}} or {{column: "
            f"COLUMN}}; or {{CLIENT: one of these}}; found {split!r}." + hint
        )
    if clients is not None:
        check_patterns("split", split, clients)


def _is_one(split: Any) -> bool:
    """Return whether the setting is one split, rather than a mapping of clients to splits."""
    if isinstance(split, dict):
        return len(split) == 1 and all(
            way in _BY and isinstance(column, str) for way, column in split.items()
        )
    return split in (None, "stratified", "random")


def own_split(split: SplitSettings | None, client: str) -> tuple[str, str]:
    """Return how a client's rows are split, where each client may have its own way, and by which
    column; empty texts where the setting says neither.

    Example:
        >>> own_split({"north": {"group": "patient"}, "*": "random"}, "north"), own_split(None, "north")
        (('group', 'patient'), ('', ''))
    """
    own: Any = (
        first_match(split, client) if isinstance(split, dict) and not _is_one(split) else split
    )
    return next(iter(own.items())) if isinstance(own, dict) else (own or "", "")


def random_split(
    rows: int,
    seed: int,
    test: float,
    validation: float,
    client: str | None = None,
    labels: Any = None,
    least: int = 0,
) -> dict[Split, np.ndarray]:
    """Draw the three splits by scikit-learn's ``train_test_split``, twice with the same seed.

    Args:
        rows: the number of rows.
        seed: the run's seed, the ``random_state`` of both draws.
        test: the share of all rows that are test rows, in (0, 1).
        validation: the share of the *other* rows that are validation rows, in (0, 1).
        client: the name of the client, for messages.
        labels: (n,) the labels of the rows; each split then gets the same share of each label. None
            for a plain random split.
        least: the least number of test rows, if the table has at least twice as many rows.

    Returns:
        Positions (int64) per split, in the order drawn.

    Raises:
        DataError: if there are too few rows to fill all three.

    Example:
        >>> {split: len(rows) for split, rows in random_split(303, seed=8, test=0.33, validation=0.1).items()}
        {'train': 182, 'validation': 21, 'test': 100}
    """
    from sklearn.model_selection import train_test_split

    size = least if test * rows < least <= rows / 2 else test
    try:
        rest, test_rows = train_test_split(
            np.arange(rows, dtype=np.int64), test_size=size, random_state=seed, stratify=labels
        )
        own = None if labels is None else np.asarray(labels)[rest]
        train, validation_rows = train_test_split(
            rest, test_size=validation, random_state=seed, stratify=own
        )
    except ValueError as error:
        raise DataError(
            f"{f'client {client!r}: ' if client else ''}{rows} rows cannot be split into training, "
            f"validation and test rows with test={test} and validation={validation}: {error} Give "
            "more rows or other shares, or leave the client out."
        ) from error
    return {"train": train, "validation": validation_rows, "test": test_rows}


def split_rows(
    client: str,
    way: str,
    target: pd.Series | pd.DataFrame,
    by: pd.Series | None,
    seed: int,
    test: float,
    validation: float,
    classes: bool,
    column: Column | None = None,
) -> tuple[dict[Split, np.ndarray], list[Note]]:
    """Split a client's rows.

    Args:
        client: the name of the client, for messages.
        way: how this client's rows are split (see :func:`own_split`); if it is empty, stratified if
            there are classes, and random otherwise.
        target: the target of each row.
        by: the raw column by which rows are split, if there is one.
        seed: the seed of random draws.
        test: the share of all rows that are test rows.
        validation: the share of the others that are validation rows.
        classes: whether the target is one class per row.
        column: the description of ``by``, if it is known.

    Returns:
        Positions (int64) per split, and notes.

    Raises:
        DataError: rows cannot be split so.
    """
    if by is None:
        if not classes or way == "random":
            return random_split(len(target), seed, test, validation, client), []
        return _stratified(client, target, seed, test, validation)  # type: ignore[arg-type]  # classes: a series
    where = f"client {client!r}, column {by.name!r}"
    if way == "group":
        return _by_group(where, groups_of(by, where), seed, test, validation), []
    if way == "time":
        made, begin = _by_time(where, by, test, validation, column)
        first, last = (str(begin[split]).removesuffix(".0") for split in ("validation", "test"))
        said = f"by {by.name}, validation rows begin at {first}, test rows at {last}"
        return made, [Note(said, "split", column=str(by.name), head=client)]
    parts = parts_of(by)
    odd = by[~parts.isin(SPLITS)]
    advice = "correct them, or split in another way"
    found = Told(f"{len(odd):,} others: {shorten([*map(repr, odd.unique())])}")
    expect(odd.empty, where, "train, validation or test in each row", found, advice, DataError)
    return {
        split: np.flatnonzero((parts == split).to_numpy()).astype(np.int64) for split in SPLITS
    }, []


def parts_of(column: pd.Series) -> pd.Series:
    """Return which split each row of a column names, in lower case; ``val`` is short for
    ``validation``.
    """
    return column.astype(str).str.strip().str.casefold().replace("val", "validation")


def names_parts(column: pd.Series) -> bool:
    """Return whether a column says of each row in which split it is, and each split has rows.

    Example:
        >>> import pandas as pd
        >>> names_parts(pd.Series(["Train", "val", "test"])), names_parts(pd.Series(["train", "test"]))
        (True, False)
    """
    first = {*parts_of(column.head(100))}  # most columns are ruled out by their first rows
    return first <= {*SPLITS} and {*parts_of(column)} == {*SPLITS}


def _stratified(
    client: str, target: pd.Series, seed: int, test: float, validation: float
) -> tuple[dict[Split, np.ndarray], list[Note]]:
    codes, index = target.factorize()
    # labels as Python has them
    labels = index.tolist()
    counts = np.bincount(codes, minlength=len(index))
    rare = counts < _FEWEST
    notes = list[Note]()
    if rare.any():
        shown = shorten([f"{labels[place]!r} ({counts[place]})" for place in np.flatnonzero(rare)])
        said = (
            "classes of fewer rows than there are splits are in training rows only and never "
            f"scored: {shown}"
        )
        notes.append(Note(said, "rare class", column=str(target.name), head=client))
    common = np.flatnonzero(~rare[codes])
    try:
        drawn = random_split(len(common), seed, test, validation, client, codes[common])
    except DataError:
        said = "too few rows of some class to split by class; rows are split at random"
        note = Note(said, "split", column=str(target.name), head=client)
        return random_split(len(target), seed, test, validation, client), [note]
    made = {split: common[rows] for split, rows in drawn.items()}
    made["train"] = np.concatenate([made["train"], np.flatnonzero(rare[codes])]).astype(np.int64)
    return made, notes


def groups_of(by: pd.Series, where: str) -> np.ndarray:
    """Return the group of each row (n,) as text. " P1" and "p1" are one group, and so are 1 and
    1.0.

    Raises:
        DataError: rows without one.
    """
    from fedlit.data.schema.cells import Cells

    cells, _ = Cells.of(by).without(())
    _refuse_gaps(where, cells.codes < 0, "a group")
    return cells.take(
        np.array([text.casefold().removesuffix(".0") for text in cells.texts], object)
    )


def _refuse_gaps(where: str, gaps: np.ndarray, what: str) -> None:
    found = Told(f"{gaps.sum()} rows without one")
    advice = "fill them in, or drop those rows"
    expect(not gaps.any(), where, f"{what} in each row", found, advice, DataError)


def _by_group(
    where: str, groups: np.ndarray, seed: int, test: float, validation: float
) -> dict[Split, np.ndarray]:
    from sklearn.model_selection import GroupShuffleSplit

    found = f"{len(set(groups))}; give more groups, or other shares"
    with told_as(
        lambda _: DataError(f"{where}: expected groups enough for three splits, found {found}")
    ):
        rest, test_rows = next(
            GroupShuffleSplit(1, test_size=test, random_state=seed).split(groups, groups=groups)
        )
        inner = GroupShuffleSplit(1, test_size=validation, random_state=seed)
        train, valid = next(inner.split(rest, groups=groups[rest]))
    return {"train": rest[train], "validation": rest[valid], "test": test_rows}


def _by_time(
    where: str, by: pd.Series, test: float, validation: float, column: Column | None
) -> tuple[dict[Split, np.ndarray], dict[Split, Any]]:
    times = _times(where, by, column)
    _refuse_gaps(where, times.isna().to_numpy(), "a time")
    ordered = np.argsort(times.to_numpy(), kind="stable").astype(np.int64)
    values = times.to_numpy()[ordered]

    def begin(rows: int, share: float) -> int:
        """Where the latest share of the first rows begins: rows of one time are never parted."""
        latest = min(max(rows - round(share * rows), 0), rows - 1)
        return int(np.searchsorted(values, values[latest], side="left")) if rows else 0

    first_test = begin(len(values), test)
    parts = np.split(ordered, [begin(first_test, validation), first_test])
    found = Told(f"{len(np.unique(values))} different ones")
    advice = "use another column or other shares"
    expect(
        all(map(len, parts)), where, "times that part the rows into three", found, advice, DataError
    )
    made: dict[Split, np.ndarray] = dict(zip(SPLITS, parts, strict=True))
    return made, {split: times.iloc[rows[0]] for split, rows in made.items()}


def _times(where: str, by: pd.Series, column: Column | None) -> pd.Series:
    """Read a column as numbers or as times."""
    import pandas as pd

    from fedlit.data.schema.find import declared_column, find

    for kind in ("numeric", "date"):
        known = column if column is not None and column.kind == kind else None
        try:
            own = known or find(by, declared=declared_column(str(by.name), kind), head=where).column
            if own.kind == "date":
                return own.times(by)
            return pd.Series(own.apply(by, where)[0][str(by.name)], by.index, name=by.name)
        except (ConfigError, DataError):
            continue
    found = repr(str(by.dropna().iloc[0])) if by.notna().any() else "no value"
    raise DataError(
        f"{where}: expected dates or numbers to split by time, found {found}. Name another column, "
        "or say how dates are written."
    )


def same_rows(
    features: pd.DataFrame, target: pd.Series, splits: Mapping[Split, np.ndarray]
) -> tuple[int, int]:
    """Count the rows that occur more than once in the table, and the validation or test rows that
    also occur among the training rows.
    """
    rows = row_hashes(features) * np.uint64(31) + target.factorize()[0].astype(np.uint64)
    doubled = len(rows) - len(np.unique(rows))
    if not doubled:
        return 0, 0
    train = rows[splits["train"]]
    return doubled, int(
        sum(np.isin(rows[splits[split]], train).sum() for split in ("validation", "test"))
    )


def twins_are_ordinary(features: pd.DataFrame, target: pd.Series) -> bool:
    """Return whether equal rows come about by chance: then still more pairs of rows are equal in
    all columns but one, which is seldom so where a case was entered twice.

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
    for place, column in enumerate(columns):
        codes = column.iloc[:_MOST_COMPARED].factorize(use_na_sentinel=False)[0].astype(np.uint64)
        hashes.append(pd.util.hash_array(codes, categorize=False) * np.uint64(2 * place + 1))
    rows = np.zeros(len(hashes[0]), np.uint64)
    for own in hashes:
        rows += own
    if len(np.unique(rows)) < _FEW_DIFFERENT * len(rows):
        return True
    twins = _pairs(rows)
    nearly = sorted(_pairs(rows - own) - twins for own in hashes)
    every = len(rows) * (len(rows) - 1) / 2
    # of pairs of rows, by the pairs of equal cells in other rows
    chance = every * float(np.prod([(_pairs(own) - twins) / every for own in hashes]))
    if twins <= _TIMES_CHANCE * chance:
        return True
    # all rows are nearly equal without the one column that tells them apart
    return sum(nearly[:-1]) >= _SHARE_OF_TWINS * twins


def _pairs(rows: np.ndarray) -> int:
    """Return the number of pairs of equal values (n,)."""
    counts = np.unique(rows, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


# ---------------------------------------------------------------------- folds


def check_fold(folds: int, fold: int) -> None:
    """Refuse a number of folds, or a fold, that cannot be.

    Args:
        folds: the number of folds in the configuration; 0 for none.
        fold: the fold for validation, counted from 0.

    Raises:
        ConfigError: one fold alone, or a fold outside of 0 to ``folds`` − 1.
    """
    whole = isinstance(folds, int) and not isinstance(folds, bool) and (folds == 0 or folds >= 2)
    expect(whole, "data.folds", "2 folds or more, 0 for none", folds, "4 or 8 are usual")
    known = f"0 to {folds - 1}" if folds else "0, for data.folds is 0"
    expect(not isinstance(fold, bool) and 0 <= fold < max(folds, 1), "data.fold", known, fold)


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
        seed: the run's.
        client: the client's name; the folds of each client are drawn separately.
        groups: (rows,) of whom a row tells: rows of one stay in one fold. None for rows that stand
            for themselves.

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

    several, what = (
        (len(y), "rows") if groups is None else (len(np.unique(groups)), "groups of rows")
    )
    told = f"{n} training and validation {what} or more, one for each fold"
    advice = "give it more rows, or fewer folds"
    expect(several >= n, f"client {client!r}", told, several, advice, DataError)
    strata = _strata(y, n)
    state = derive_seed(seed, "folds", client, n) % 2**32
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = np.empty(len(y), np.int64)
    with warnings.catch_warnings():
        # of a class with fewer rows than folds: it is in as many folds as it has rows, which is all
        # that can be
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        parts = kind(n, shuffle=True, random_state=state).split(np.zeros(len(y)), strata, groups)
        for fold, (_, rows) in enumerate(parts):
            told = f"groups that fill {n} folds"
            found = Told("that one stays empty")
            expect(len(rows) > 0, f"client {client!r}", told, found, "give fewer folds", DataError)
            folds[rows] = fold
    return folds


def _strata(y: np.ndarray, n: int) -> np.ndarray:
    """Return the stratum (rows,) int64 of each row; each fold gets its share of every stratum."""
    if y.ndim > 1:
        values = np.where(np.isnan(y), -1.0, y) if y.dtype.kind == "f" else y
        strata = np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
    elif y.dtype.kind == "f":
        edges = np.quantile(y, np.arange(1, _BINS) / _BINS)
        strata = np.unique(np.searchsorted(np.unique(edges), y, side="right"), return_inverse=True)[
            1
        ]
    else:
        strata = np.unique(y, return_inverse=True)[1]
    # every class is rarer than that: nothing can be shared out
    if np.bincount(strata).max(initial=0) < n:
        strata = np.zeros(len(y), np.int64)
    return np.asarray(strata, np.int64)


def folded(table: ClientTable, folds: int, fold: int, seed: int) -> ClientTable:
    """Return the table with one fold of its training and validation rows for validation and all
    other folds for training. Test rows are unchanged, and rows of one group stay in one fold.

    Args:
        table: a client's, with the splits of its source.
        folds: the number of folds; :func:`fold_of` deals the rows.
        fold: the fold for validation.
        seed: the run's.

    Raises:
        DataError: fewer rows or groups than folds; names the client.
    """
    import pandas as pd

    number = table.features.index.to_numpy()
    places = np.concatenate([table.splits["train"], table.splits["validation"]])
    # whatever the split that the source gives
    places = places[np.argsort(number[places], kind="stable")]
    target = table.target.iloc[places]
    numbers = pd.to_numeric(target, errors="coerce") if outcome_at(table).number else None
    y = (
        pd.factorize(target)[0]
        if numbers is None or numbers.isna().any()
        else numbers.to_numpy(np.float64)
    )
    groups = None if table.groups is None else table.groups[places]
    held = fold_of(y, folds, seed, table.name, groups) == fold
    splits: dict[Split, np.ndarray] = {
        **table.splits,
        "train": places[~held],
        "validation": places[held],
    }
    return replace(table, splits=splits)
