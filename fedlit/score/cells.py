"""New rows as an encoder takes them: which columns are used, which cells are text that stands for something else, and
what a person should know of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
from pandas.api.types import infer_dtype, is_numeric_dtype, is_object_dtype, is_string_dtype

from fedlit.data.columns import NUMBERS, ColumnEncoder
from fedlit.data.row_encoder import RowEncoder
from fedlit.errors import DataError, did_you_mean
from fedlit.show.text import shorten

__all__ = ["check_frame", "missing_and_unseen", "typed"]

_TRUTHS = {"true": True, "false": False}


def check_frame(frame: pd.DataFrame, encoder: RowEncoder) -> pd.DataFrame:
    """The frame with names of columns as text, and as training called them where they were renamed.

    Raises:
        DataError: it is no frame, or two columns have one name.
    """
    client = encoder.client
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"client {client!r}: expected rows as a pandas DataFrame, found {type(frame).__name__}; its columns need "
            "names, as in pandas.DataFrame(rows, columns=names)"
        )
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    renamed = (encoder.schema.reading.get("rename") or {}) if encoder.schema is not None else {}
    frame = frame.rename(columns={old: new for old, new in renamed.items() if new not in frame})
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataError(f"client {client!r}: expected each column once, found {twice!r} twice; rename or drop one")
    return frame


def typed(frame: pd.DataFrame, encoder: RowEncoder, keys: Iterable[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """The columns that an encoder without a schema takes, text read as the type that was trained on.

    Args:
        frame: raw rows: typed, or text.
        encoder: of the client.
        keys: columns that are not said to be left out, for they are handed on.

    Returns:
        The features, and what a person should know.

    Raises:
        DataError: a column is missing, or cells are not of its type; names the column, a cell and its row.
    """
    _check_columns(list(frame.columns), list(encoder.columns), encoder.client)
    notes, read, converted = list[str](), dict[str, pd.Series](), dict[str, int]()
    for name, column in encoder.columns.items():
        cells = frame[name]
        if isinstance(cells.dtype, pd.CategoricalDtype):
            cells = cells.astype(object).infer_objects()
        read[name] = cells
        if _is_to_be_read(cells, column):
            read[name] = _as_trained(cells, column, encoder.client)
            converted[name] = int(cells.notna().sum())
    if converted and not all(_is_text(frame[name]) for name in encoder.columns):  # else it is a file's text
        notes.append(f"text read as what was trained on: {_counts(converted)}")
    extra = [str(name) for name in frame if name not in {*encoder.columns, *keys, encoder.target_name}]
    if encoder.target_name in frame and encoder.target_name not in encoder.columns:
        notes.append(f"column {encoder.target_name!r} is what is predicted, and was not looked at")
    if extra:
        notes.append(f"columns that the client does not use: {shorten(extra)}")
    return pd.DataFrame(read, index=frame.index), notes


def _check_columns(found: Sequence[str], expected: Sequence[str], client: str) -> None:
    absent = [name for name in expected if name not in found]
    if not absent:
        return
    free = [name for name in found if name not in expected]
    more = f" (nor {shorten([repr(name) for name in absent[1:]])})" if len(absent) > 1 else ""
    raise DataError(
        f"client {client!r}: expected the column {absent[0]!r}, found none of this name{more}; rename the column that "
        "is meant. If it is not there at all, add it: empty cells are allowed." + did_you_mean(absent[0], free)
    )


def _is_text(values: pd.Series) -> bool:
    return is_string_dtype(values.dtype) or is_object_dtype(values.dtype)


def _is_to_be_read(values: pd.Series, column: ColumnEncoder) -> bool:
    """Whether cells are text, of what was no text in training."""
    if column.kind == "categorical" or not _is_text(values):
        return False
    # what is typed already, its encoder judges
    return infer_dtype(values, skipna=True) not in ("boolean", "datetime", "date", "empty")


def _as_trained(values: pd.Series, column: ColumnEncoder, client: str) -> pd.Series:
    text = values.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    text = text.mask(text.eq(""))
    if column.kind == "boolean":
        read = text.map(lambda cell: _TRUTHS.get(str(cell).lower()), na_action="ignore").astype("boolean")
        expected = "true or false"
    else:
        read = pd.to_numeric(text, errors="coerce")
        expected = "numbers"
    wrong = read.isna() & text.notna()
    if wrong.any():
        raise DataError(
            f"client {client!r}, column {column.name!r}: expected {expected}, found {int(wrong.sum())} other cells of "
            f"{len(values)}, such as {text[wrong].iloc[0]!r} in row {values.index[wrong][0]!r}; correct these "
            "cells, or leave them empty"
        )
    return read if is_numeric_dtype(read) else read.astype(float)


_FAR = 8  # standard deviations


def missing_and_unseen(features: pd.DataFrame, encoder: RowEncoder) -> list[str]:
    """What is said of cells without a value, and of categories that training did not have."""
    missing, unseen = dict[str, int](), []
    for name, column in encoder.columns.items():
        if name not in features:
            continue
        empty = int(features[name].isna().sum())
        if empty:
            missing[name] = empty
        if column.kind == NUMBERS and column.moments is not None and column.moments.variance > 0:
            away = (features[name] - column.moments.mean).abs() / column.moments.variance**0.5
            if far := int((away > _FAR).sum()):
                shown = f"{features[name][away > _FAR].iloc[0]:g}"
                unseen.append(
                    f"{name}: {far:,} cells are over {_FAR} standard deviations from training, such as {shown}"
                )
        count, new = column.unseen(features[name])
        if count:
            such = shorten([*map(repr, new[:3])])
            unseen.append(f"{name}: {count:,} cells are of categories that training did not have, such as {such}")
    notes = [f"cells without a value: {_counts(missing)}"] if missing else []
    return [*notes, *unseen]


def _counts(cells: dict[str, int]) -> str:
    return shorten([f"{name} {count}" for name, count in cells.items()])
