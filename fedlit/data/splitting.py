"""Splits rows into training, validation and test rows: at random, by class, group or time, or by a
column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.draws import two_parts
from fedlit.data.note import Note
from fedlit.data.table import SPLITS, Split, check_patterns, first_match
from fedlit.errors import ConfigError, DataError, Told, did_you_mean, expect, told_as
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.reading.options import Declared
    from fedlit.data.schema.column import Column

SplitSettings = str | dict[str, str | dict[str, str]]
"""``stratified``, ``random``, ``{group: COLUMN}``, ``{time: COLUMN}`` or ``{column: COLUMN}``; or
one of these for each client, by its name or pattern."""

_BY = ("group", "time", "column")
_FEWEST = 3
"""Fewest rows of a class that all three splits can have."""


@dataclass(frozen=True)
class ClientSplit:
    """How the rows of one client are split.

    Attributes:
        method: ``stratified``, ``random``, ``group``, ``time`` or ``column``; if it is empty,
            stratified if there are classes, and random otherwise.
        column: the column by which rows are split; "" if there is none.
        test: the share of all rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
    """

    method: str = ""
    column: str = ""
    test: float = 0.2
    validation: float = 0.1

    @property
    def types(self) -> dict[str, Declared]:
        """The declared type of the column by which rows are split: new rows come without groups and
        splits, whereas a time may be a feature.
        """
        if self.method == "group":
            return {self.column: "identifier"}
        if self.method == "column":
            return {self.column: "drop"}
        return {}


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
    if not isinstance(split, dict) or not _is_by_client(split):
        hint = ""
        if isinstance(split, str):
            hint = did_you_mean(split, ("stratified", "random", *_BY))
        raise ConfigError(
            "split: expected stratified, random, {group: COLUMN}, {time: COLUMN} or {column: "
            f"COLUMN}}; or {{CLIENT: one of these}}; found {split!r}.{hint}"
        )
    if clients is not None:
        check_patterns("split", split, clients)


def _is_by_client(split: Mapping[str, Any]) -> bool:
    """Return whether the setting has one split for each client or pattern."""
    return bool(split) and not {*split} & {*_BY} and all(map(_is_one, split.values()))


def _is_one(split: Any) -> bool:
    """Return whether the setting is one split, rather than a mapping of clients to splits."""
    if isinstance(split, dict):
        if len(split) != 1:
            return False
        ((kind, column),) = split.items()
        return kind in _BY and isinstance(column, str)
    return split in (None, "stratified", "random")


def split_for(split: SplitSettings | None, client: str) -> tuple[str, str]:
    """Return how a client's rows are split, where each client may have its own way, and by which
    column; empty texts where the setting says neither.

    Example:
        >>> split_for({"north": {"group": "patient"}, "*": "random"}, "north"), split_for(None, "north")
        (('group', 'patient'), ('', ''))
    """
    setting: Any = split
    if isinstance(split, dict) and not _is_one(split):
        setting = first_match(split, client)
    if isinstance(setting, dict):
        (entry,) = setting.items()
        return entry
    return setting or "", ""


def random_split(
    rows: int,
    seed: int,
    test: float,
    validation: float,
    client: str | None = None,
    labels: Any = None,
    least: int = 0,
) -> dict[Split, np.ndarray]:
    """Draw the three splits as scikit-learn's ``train_test_split`` does, twice with the same seed.

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
    size = test
    if test * rows < least <= rows / 2:
        size = least
    try:
        rest, test_rows = two_parts(rows, size, seed, labels)
        rest_labels = None
        if labels is not None:
            rest_labels = np.asarray(labels)[rest]
        train, validation_rows = two_parts(len(rest), validation, seed, rest_labels)
    except ValueError as error:
        subject = f"client {client!r}: " if client else ""
        raise DataError(
            f"{subject}{rows} rows cannot be split into training, "
            f"validation and test rows with test={test} and validation={validation}: {error} Give "
            "more rows or other shares, or leave the client out."
        ) from error
    return {"train": rest[train], "validation": rest[validation_rows], "test": test_rows}


def split_rows(
    client: str,
    split: ClientSplit,
    target: pd.Series | pd.DataFrame,
    by: pd.Series | None,
    seed: int,
    classes: bool,
    column: Column | None = None,
) -> tuple[dict[Split, np.ndarray], list[Note]]:
    """Split a client's rows.

    Args:
        client: the name of the client, for messages.
        split: how this client's rows are split.
        target: the target of each row.
        by: the raw column by which rows are split, if there is one.
        seed: the seed of random draws.
        classes: whether the target is one class per row.
        column: the description of ``by``, if it is known.

    Returns:
        Positions (int64) per split, and notes.

    Raises:
        DataError: rows cannot be split so.
    """
    shares = (split.test, split.validation)
    if by is None:
        if not classes or split.method == "random":
            return random_split(len(target), seed, *shares, client), []
        return _stratified(client, target, seed, *shares)  # type: ignore[arg-type]  # classes: a series
    subject = f"client {client!r}, column {by.name!r}"
    if split.method == "group":
        return _by_group(subject, groups_of(by, subject), seed, *shares), []
    if split.method == "time":
        splits, begin = _by_time(subject, by, *shares, column)
        first, last = (str(begin[part]).removesuffix(".0") for part in ("validation", "test"))
        sentence = f"by {by.name}, validation rows begin at {first}, test rows at {last}"
        return splits, [Note(sentence, "split", column=str(by.name), head=client)]
    return _by_column(subject, by), []


def _by_column(where: str, by: pd.Series) -> dict[Split, np.ndarray]:
    """Return the splits that a column names for each row."""
    parts = parts_of(by)
    invalid = by[~parts.isin(SPLITS)]
    if not invalid.empty:
        raise DataError(
            f"{where}: expected train, validation or test in each row, found {len(invalid):,} "
            f"others: {shorten([*map(repr, invalid.unique())])}; correct them, or split in another "
            "way"
        )
    return {split: np.flatnonzero((parts == split).to_numpy()).astype(np.int64) for split in SPLITS}


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
    first = {*parts_of(column.head(100))}  # The first rows rule out most columns.
    return first <= {*SPLITS} and {*parts_of(column)} == {*SPLITS}


def _stratified(
    client: str, target: pd.Series, seed: int, test: float, validation: float
) -> tuple[dict[Split, np.ndarray], list[Note]]:
    codes, index = target.factorize()
    counts = np.bincount(codes, minlength=len(index))
    rare = counts < _FEWEST
    notes = list[Note]()
    if rare.any():
        labels = index.tolist()
        rare_labels = shorten(
            [f"{labels[code]!r} ({counts[code]})" for code in np.flatnonzero(rare)]
        )
        sentence = (
            "classes of fewer rows than there are splits are in training rows only and never "
            f"scored: {rare_labels}"
        )
        notes.append(Note(sentence, "rare class", column=str(target.name), head=client))
    common = np.flatnonzero(~rare[codes])
    try:
        drawn = random_split(len(common), seed, test, validation, client, codes[common])
    except DataError:
        sentence = "too few rows of some class to split by class; rows are split at random"
        note = Note(sentence, "split", column=str(target.name), head=client)
        return random_split(len(target), seed, test, validation, client), [note]
    splits = {split: common[rows] for split, rows in drawn.items()}
    splits["train"] = np.concatenate([splits["train"], np.flatnonzero(rare[codes])]).astype(
        np.int64
    )
    return splits, notes


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


def _refuse_gaps(where: str, gaps: np.ndarray, noun: str) -> None:
    gaps_text = Told(f"{gaps.sum()} rows without one")
    advice = "fill them in, or drop those rows"
    expect(not gaps.any(), where, f"{noun} in each row", gaps_text, advice, DataError)


def _by_group(
    where: str, groups: np.ndarray, seed: int, test: float, validation: float
) -> dict[Split, np.ndarray]:
    from sklearn.model_selection import GroupShuffleSplit

    groups_text = f"{len(set(groups))}; give more groups, or other shares"
    with told_as(
        lambda _: DataError(
            f"{where}: expected groups enough for three splits, found {groups_text}"
        )
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
        """Return where the latest share of the first rows begins. Rows of one time stay together."""
        if not rows:
            return 0
        latest = min(max(rows - round(share * rows), 0), rows - 1)
        return int(np.searchsorted(values, values[latest], side="left"))

    first_test = begin(len(values), test)
    parts = np.split(ordered, [begin(first_test, validation), first_test])
    if not all(map(len, parts)):
        raise DataError(
            f"{where}: expected times that part the rows into three, found "
            f"{len(np.unique(values))} different ones; use another column or other shares"
        )
    splits: dict[Split, np.ndarray] = dict(zip(SPLITS, parts, strict=True))
    return splits, {split: times.iloc[rows[0]] for split, rows in splits.items()}


def _times(where: str, by: pd.Series, column: Column | None) -> pd.Series:
    """Read a column as numbers or as times."""
    import pandas as pd

    from fedlit.data.schema.find import declared_column, find

    for kind in ("numeric", "date"):
        try:
            if column is not None and column.kind == kind:
                time_column = column
            else:
                declared = declared_column(str(by.name), kind)
                time_column = find(by, declared=declared, head=where).column
            if time_column.kind == "date":
                return time_column.times(by)
            return pd.Series(time_column.apply(by, where)[0][str(by.name)], by.index, name=by.name)
        except (ConfigError, DataError):
            continue
    example = "no value"
    if by.notna().any():
        example = repr(str(by.dropna().iloc[0]))
    raise DataError(
        f"{where}: expected dates or numbers to split by time, found {example}. Name another column, "
        "or say how dates are written."
    )
