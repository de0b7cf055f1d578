"""Splits rows into training, validation and test rows: at random, by class, by group, by time, or by a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedlit.data.note import Note
from fedlit.data.table import SPLITS, Split, check_patterns, first_match, row_hashes
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.column import Column

SplitSettings = str | dict[str, str | dict[str, str]]
"""``stratified``, ``random``, ``{group: COLUMN}``, ``{time: COLUMN}`` or ``{column: COLUMN}``; or one of these for each
client, by its name or pattern."""

_BY = ("group", "time", "column")
_NAMES: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "fit"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "holdout", "hold-out", "held-out"), "test"),
}
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
    if not isinstance(split, dict) or not split or any(key in _BY or not _is_one(own) for key, own in split.items()):
        hint = did_you_mean(split, ("stratified", "random", *_BY)) if isinstance(split, str) else ""
        raise ConfigError(
            "split: expected stratified, random, {group: COLUMN}, {time: COLUMN} or {column: COLUMN}; or "
            f"{{CLIENT: one of these}}; found {split!r}." + hint
        )
    if clients is not None:
        check_patterns("split", split, clients)


def _is_one(split: Any) -> bool:
    """Return whether the setting is one split, rather than a mapping of clients to splits."""
    if isinstance(split, dict):
        return len(split) == 1 and all(way in _BY and isinstance(column, str) for way, column in split.items())
    return split in (None, "stratified", "random")


def own_split(split: SplitSettings | None, client: str) -> str | dict[str, str] | None:
    """Return the split of a client, where each client may have its own; None if the setting does not mention it.

    Example:
        >>> own_split({"north": {"group": "patient"}, "*": "random"}, "north")
        {'group': 'patient'}
    """
    if isinstance(split, dict) and not _is_one(split):
        split = first_match(split, client)
    return cast("str | dict[str, str] | None", split)


def split_column(split: str | dict[str, str] | None) -> str | None:
    """Return the column by which a client's rows are split, if there is one."""
    return next(iter(split.values())) if isinstance(split, dict) else None


def random_split(
    rows: int, seed: int, test: float, validation: float, client: str | None = None, labels: Any = None, least: int = 0
) -> dict[Split, np.ndarray]:
    """Draw the three splits by scikit-learn's ``train_test_split``, twice with the same seed.

    Args:
        rows: the number of rows.
        seed: the run's seed, the ``random_state`` of both draws.
        test: the share of all rows that are test rows, in (0, 1).
        validation: the share of the *other* rows that are validation rows, in (0, 1).
        client: the name of the client, for messages.
        labels: (n,) the labels of the rows; each split then gets the same share of each label. None for a plain random
            split.
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
        train, validation_rows = train_test_split(rest, test_size=validation, random_state=seed, stratify=own)
    except ValueError as error:
        raise DataError(
            f"{f'client {client!r}: ' if client else ''}{rows} rows cannot be split into training, validation and test "
            f"rows with test={test} and validation={validation}: {error} Give more rows or other shares, or leave the "
            "client out."
        ) from error
    return {"train": train, "validation": validation_rows, "test": test_rows}


def split_rows(
    client: str,
    split: str | dict[str, str] | None,
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
        split: the split of this client; None for stratified if there are classes, and random otherwise.
        target: the target of each row.
        by: the raw column that ``split`` names.
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
    if not isinstance(split, dict):
        if not classes or split == "random":
            return random_split(len(target), seed, test, validation, client), []
        return _stratified(client, target, seed, test, validation)  # type: ignore[arg-type]  # classes: a series
    assert by is not None
    where, way = f"client {client!r}, column {by.name!r}", next(iter(split))
    if way == "group":
        return _by_group(where, groups_of(by, where), seed, test, validation), []
    if way == "time":
        made, begin = _by_time(where, by, test, validation, column)
        first, last = (str(begin[split]).removesuffix(".0") for split in ("validation", "test"))
        said = f"by {by.name}, validation rows begin at {first}, test rows at {last}"
        return made, [Note(said, "split", column=str(by.name), head=client)]
    parts = by.astype(str).str.strip().str.casefold().where(by.notna(), "").map(_NAMES)
    if parts.isna().any():
        odd = by[parts.isna()]
        raise DataError(
            f"{where}: expected train, validation or test in each row, found {len(odd):,} others such as "
            f"{odd.iloc[0]!r}. Correct them, or split in another way."
        )
    return {split: np.flatnonzero((parts == split).to_numpy()).astype(np.int64) for split in SPLITS}, []


def _stratified(
    client: str, target: pd.Series, seed: int, test: float, validation: float
) -> tuple[dict[Split, np.ndarray], list[Note]]:
    codes, index = target.factorize()
    labels, counts = index.tolist(), np.bincount(codes, minlength=len(index))  # labels as Python has them
    rare, notes = counts < _FEWEST, list[Note]()
    if rare.any():
        shown = shorten([f"{labels[place]!r} ({counts[place]})" for place in np.flatnonzero(rare)])
        said = f"classes of fewer rows than there are splits are in training rows only and never scored: {shown}"
        notes.append(Note(said, "rare class", column=str(target.name), head=client))
    common = np.flatnonzero(~rare[codes])
    for labelled in (codes[common], None):
        try:
            drawn = random_split(len(common), seed, test, validation, client, labelled)
            break
        except DataError:
            if labelled is None and rare.any():  # of few rows: all together, at random
                return random_split(len(target), seed, test, validation, client), []
            if labelled is None:
                raise
            said = "too few rows of some class to split by class; rows are split at random"
            notes.append(Note(said, "split", column=str(target.name), head=client))
    made = {split: common[rows] for split, rows in drawn.items()}
    made["train"] = np.concatenate([made["train"], np.flatnonzero(rare[codes])]).astype(np.int64)
    return made, notes


def groups_of(by: pd.Series, where: str) -> np.ndarray:
    """Return the group of each row (n,) as text. " P1" and "p1" are one group, and so are 1 and 1.0.

    Raises:
        DataError: rows without one.
    """
    from fedlit.data.schema.cells import Cells

    cells, _ = Cells.of(by).without(())
    _refuse_gaps(where, cells.codes < 0, "a group")
    return cells.take(np.array([text.casefold().removesuffix(".0") for text in cells.texts], object))


def _refuse_gaps(where: str, gaps: np.ndarray, what: str) -> None:
    if gaps.any():
        raise DataError(
            f"{where}: expected {what} in each row, found {int(gaps.sum())} rows without one. Fill them in, or drop "
            "those rows."
        )


def _by_group(where: str, groups: np.ndarray, seed: int, test: float, validation: float) -> dict[Split, np.ndarray]:
    from sklearn.model_selection import GroupShuffleSplit

    try:
        rest, test_rows = next(GroupShuffleSplit(1, test_size=test, random_state=seed).split(groups, groups=groups))
        inner = GroupShuffleSplit(1, test_size=validation, random_state=seed)
        train, valid = next(inner.split(rest, groups=groups[rest]))
    except ValueError as error:
        raise DataError(
            f"{where}: expected groups enough for three splits, found {len(set(groups))}. Give more groups, or other "
            "shares."
        ) from error
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
    if not all(map(len, parts)):
        raise DataError(
            f"{where}: expected times that part the rows into three, found {len(np.unique(values))} different ones. "
            "Use another column or other shares."
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
            own = known or find(by, declared=declared_column(str(by.name), kind), where=where).column
            if own.kind == "date":
                return own.times(by)
            return pd.Series(own.apply(by, where)[0][str(by.name)], by.index, name=by.name)
        except (ConfigError, DataError):
            continue
    found = repr(str(by.dropna().iloc[0])) if by.notna().any() else "no value"
    raise DataError(
        f"{where}: expected dates or numbers to split by time, found {found}. Name another column, or say how dates "
        "are written."
    )


def same_rows(features: pd.DataFrame, target: pd.Series, splits: Mapping[Split, np.ndarray]) -> tuple[int, int]:
    """Count the rows that occur more than once in the table, and the validation or test rows that also occur among the
    training rows.
    """
    rows = row_hashes(features) * np.uint64(31) + target.factorize()[0].astype(np.uint64)
    doubled = len(rows) - len(np.unique(rows))
    if not doubled:
        return 0, 0
    train = rows[splits["train"]]
    return doubled, int(sum(np.isin(rows[splits[split]], train).sum() for split in ("validation", "test")))
