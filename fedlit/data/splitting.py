"""Which rows are for training, validation and test: at random, by class, by group, by time, or as a column says."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedlit.data.table import SPLITS, Split
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.column import ColumnType

__all__ = [
    "WAYS",
    "SplitSettings",
    "check_split",
    "own_split",
    "random_split",
    "same_rows",
    "split_column",
    "split_rows",
]

SplitSettings = str | dict[str, str | dict[str, str]]
"""``stratified``, ``random``, ``{group: COLUMN}``, ``{time: COLUMN}`` or ``{column: COLUMN}``; or one of these for each
client, by its name or pattern."""

WAYS = ("stratified", "random", "group", "time", "column")
_BY = ("group", "time", "column")
_NAMES: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "fit"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "holdout", "hold-out", "held-out"), "test"),
}
_FEWEST = 3  # rows of a class of which one can be in each split


def check_split(split: SplitSettings | None, clients: Iterable[str] | None = None) -> None:
    """Refuse a setting that cannot be meant.

    Args:
        split: as in a configuration.
        clients: whom it may name; None where they are not known yet.

    Raises:
        ConfigError: another word, not one column, or a pattern that matches no client.
    """
    if _is_one(split):
        return
    if isinstance(split, dict) and split and all(_is_one(own) and key not in _BY for key, own in split.items()):
        for pattern in split if clients is not None else ():
            if not fnmatch.filter(names := list(clients or ()), pattern):
                raise ConfigError(
                    f"split: expected the name or pattern of a client, found {pattern!r}; clients are "
                    f"{', '.join(names)}." + did_you_mean(pattern, names)
                )
        return
    hint = did_you_mean(split, WAYS) if isinstance(split, str) else ""
    raise ConfigError(
        "split: expected stratified, random, {group: COLUMN}, {time: COLUMN} or {column: COLUMN}; or "
        f"{{CLIENT: one of these}}; found {split!r}." + hint
    )


def _is_one(split: Any) -> bool:
    """Whether it is the split of one client, or of all alike."""
    if isinstance(split, dict):
        return len(split) == 1 and all(way in _BY and isinstance(column, str) for way, column in split.items())
    return split in (None, "stratified", "random")


def own_split(split: SplitSettings | None, client: str) -> str | dict[str, str] | None:
    """A client's split, where each may have its own; None where nothing is said.

    Example:
        >>> own_split({"north": {"group": "patient"}, "*": "random"}, "north")
        {'group': 'patient'}
    """
    if isinstance(split, dict) and not _is_one(split):
        return next((own for pattern, own in split.items() if fnmatch.fnmatchcase(client, pattern)), None)
    return cast("str | dict[str, str] | None", split)


def split_column(split: str | dict[str, str] | None) -> str | None:
    """The column by which a client's rows are split, if one is."""
    return next(iter(split.values())) if isinstance(split, dict) else None


def random_split(
    rows: int, seed: int, test: float, validation: float, client: str | None = None, labels: Any = None, least: int = 0
) -> dict[Split, np.ndarray]:
    """Draw the three splits by scikit-learn's ``train_test_split``, twice with the same seed.

    Args:
        rows: how many rows there are.
        seed: the run's seed, the ``random_state`` of both draws.
        test: the share of all rows that are test rows, in (0, 1).
        validation: the share of the *other* rows that are validation rows, in (0, 1).
        client: whose rows they are; messages name it.
        labels: of each row, (n,): then each split has each of them in the same share; None for no such care.
        least: how many test rows there are at least, where the table has twice as many rows.

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
        whose, of = f"client {client!r}: " if client else "", ""
        if labels is not None and rows:
            each, counts = np.unique(np.asarray(labels).astype(str), return_counts=True)
            of = f" of {len(each)} classes (of {each[counts.argmin()]} {counts.min()})"
        raise DataError(
            f"{whose}{rows} rows{of} cannot be split into training, validation and test rows with test={test} and "
            f"validation={validation}: they are too few. Give more rows or other shares, or leave the client out."
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
    type_: ColumnType | None = None,
) -> tuple[dict[Split, np.ndarray], list[str]]:
    """Split a client's rows.

    Args:
        client: whose; messages name it.
        split: how; None for by class where there are classes, else at random.
        target: of each row.
        by: the raw column that ``split`` names.
        seed: draws what is random.
        test: the share of all rows that are test rows.
        validation: the share of the others that are validation rows.
        classes: whether the target is one class a row.
        type_: what that column holds, where it is known.

    Returns:
        Positions (int64) per split, and notes.

    Raises:
        DataError: rows cannot be split so.
    """
    if isinstance(split, dict):
        assert by is not None
        way = next(iter(split))
        if way == "column":
            return _as_told(client, by), []
        if way == "time":
            return _by_time(client, by, test, validation, type_)
        return _by_group(client, by, seed, test, validation), []
    if not classes or split == "random":
        return random_split(len(target), seed, test, validation, client), []
    return _stratified(client, target, seed, test, validation)  # type: ignore[arg-type]  # classes: a series


def _stratified(
    client: str, target: pd.Series, seed: int, test: float, validation: float
) -> tuple[dict[Split, np.ndarray], list[str]]:
    codes, index = target.factorize()
    labels = index.tolist()  # as Python has them
    counts = np.bincount(codes, minlength=len(labels))
    rare = counts < _FEWEST
    notes = [
        f"{client}: class {labels[place]!r} has {counts[place]} rows, fewer than there are splits: it is in training "
        "rows only and never scored"
        for place in map(int, np.flatnonzero(rare))
    ][:5]
    if (more := int(rare.sum()) - 5) > 0:
        notes.append(f"{client}: so do {more} further classes")
    common = np.flatnonzero(~rare[codes])
    for labelled in (codes[common], None):
        try:
            drawn = random_split(len(common), seed, test, validation, client, labelled)
            break
        except DataError:
            if labelled is None:
                if rare.any():  # of few rows: all together, at random
                    return random_split(len(target), seed, test, validation, client), []
                raise
            notes.append(f"{client}: too few rows of some class to split by class; rows are split at random")
    made = {split: common[rows] for split, rows in drawn.items()}
    made["train"] = np.concatenate([made["train"], np.flatnonzero(rare[codes])]).astype(np.int64)
    return made, notes


def _by_group(client: str, by: pd.Series, seed: int, test: float, validation: float) -> dict[Split, np.ndarray]:
    from sklearn.model_selection import GroupShuffleSplit

    from fedlit.data.schema.missing import blank, plain_text

    plain = plain_text(by)  # " P1" and p1 are one, and so are 1 and 1.0
    groups = plain.map(lambda text: text.casefold().removesuffix(".0"), na_action="ignore").mask(blank(plain), None)
    if groups.isna().any():
        raise DataError(
            f"client {client!r}, column {by.name!r}: expected a group in each row, found {int(groups.isna().sum())} "
            "rows without one. Fill them in, or drop those rows."
        )
    values = groups.to_numpy(object)
    try:
        rest, test_rows = next(GroupShuffleSplit(1, test_size=test, random_state=seed).split(values, groups=values))
        inner = GroupShuffleSplit(1, test_size=validation, random_state=seed)
        train, valid = next(inner.split(values[rest], groups=values[rest]))
    except ValueError as error:
        raise DataError(
            f"client {client!r}, column {by.name!r}: expected groups enough for three splits, found "
            f"{groups.nunique()}. Give more groups, or other shares."
        ) from error
    return {"train": rest[train], "validation": rest[valid], "test": test_rows}


def _by_time(
    client: str, by: pd.Series, test: float, validation: float, type_: ColumnType | None
) -> tuple[dict[Split, np.ndarray], list[str]]:
    times = _times(by, type_)
    if times is None:
        found = repr(str(by.dropna().iloc[0])) if by.notna().any() else "no value"
        raise DataError(
            f"client {client!r}, column {by.name!r}: expected dates or numbers to split by time, found {found}. Name "
            "another column, or say how its dates are written."
        )
    if times.isna().any():
        raise DataError(
            f"client {client!r}, column {by.name!r}: expected a time in each row, found {int(times.isna().sum())} rows "
            "without one. Fill them in, or drop those rows."
        )
    ordered = np.argsort(times.to_numpy(), kind="stable").astype(np.int64)
    values = times.to_numpy()[ordered]
    first_test = _boundary(values, len(values) - round(test * len(values)))
    first_valid = _boundary(values[:first_test], first_test - round(validation * first_test))
    made: dict[Split, np.ndarray] = {
        "train": ordered[:first_valid],
        "validation": ordered[first_valid:first_test],
        "test": ordered[first_test:],
    }
    if any(len(rows) == 0 for rows in made.values()):
        raise DataError(
            f"client {client!r}, column {by.name!r}: expected times that part the rows into three, found "
            f"{len(np.unique(values))} different ones. Use another column or other shares."
        )
    starts = {split: times.iloc[rows[0]] for split, rows in made.items()}
    return made, [
        f"{client}: by {by.name}, validation rows begin at {starts['validation']}, test rows at {starts['test']}"
    ]


def _times(by: pd.Series, known: ColumnType | None) -> pd.Series | None:
    """As numbers or times; None where they are neither."""
    import pandas as pd

    from fedlit.data.schema.column import is_text
    from fedlit.data.schema.dates import parse_dates
    from fedlit.data.schema.find import find_type
    from fedlit.data.schema.missing import plain_text

    if known is not None and known.kind == "date":
        return known.times(by)
    if known is not None and known.kind == "numeric":
        return pd.Series(known.apply(by, f"column {by.name!r}").columns[str(by.name)], index=by.index, name=by.name)
    text = is_text(by)
    numbers = pd.to_numeric(by, errors="coerce") if text or by.dtype.kind in "iuf" else None
    if numbers is not None and int(numbers.notna().sum()) == int(by.notna().sum()) > 0:
        return numbers
    type_ = find_type(by).type
    if type_.kind != "date" and by.dtype.kind != "M":
        return None
    return parse_dates(plain_text(by) if text else by, type_.form)


def _boundary(values: np.ndarray, place: int) -> int:
    """Where the later part begins: rows of one time are never parted."""
    if not len(values):
        return 0
    return int(np.searchsorted(values, values[min(max(place, 0), len(values) - 1)], side="left"))


def _as_told(client: str, by: pd.Series) -> dict[Split, np.ndarray]:
    words = by.astype(str).str.strip().str.casefold().where(by.notna(), "")
    parts = words.map(_NAMES)
    if parts.isna().any():
        odd = by[parts.isna()].iloc[0]
        raise DataError(
            f"client {client!r}, column {by.name!r}: expected train, validation or test in each row, found "
            f"{int(parts.isna().sum())} others such as {odd!r}. Correct them, or split in another way."
        )
    return {split: np.flatnonzero((parts == split).to_numpy()).astype(np.int64) for split in SPLITS}


def same_rows(
    features: pd.DataFrame, target: pd.Series | pd.DataFrame, splits: Mapping[Split, np.ndarray]
) -> tuple[int, int]:
    """How many rows stand elsewhere in the table word for word, and how many validation or test rows stand in training
    rows too.
    """
    import pandas as pd

    own = pd.util.hash_pandas_object(features, index=False).to_numpy() * np.uint64(31)
    answers = target if isinstance(target, pd.DataFrame) else target.to_frame()
    own = (
        own
        + pd.util.hash_pandas_object(
            answers if all(own.kind in "iufb" for own in answers.dtypes) else answers.astype(str), index=False
        ).to_numpy()
    )
    doubled = len(own) - len(np.unique(own))
    if not doubled:
        return 0, 0
    train = own[splits["train"]]
    return doubled, int(sum(np.isin(own[splits[split]], train).sum() for split in ("validation", "test")))
