"""Rows as a user hands them over: their columns, and what is odd about their cells."""

from __future__ import annotations

import pandas as pd

from fedlit.data.columns import NUMBERS
from fedlit.data.reading.frames import frame_of
from fedlit.data.row_encoder import RowEncoder
from fedlit.errors import DataError
from fedlit.show.text import shorten


def check_frame(frame: pd.DataFrame, encoder: RowEncoder) -> pd.DataFrame:
    """Return the frame with the names of columns as text; a column that training renamed gets its
    new name.

    Raises:
        DataError: it is not a frame, or two columns have one name.
    """
    frame = frame_of(frame)
    who = f"client {encoder.client!r}"
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"{who}: expected rows as a DataFrame, found {type(frame).__name__}; its columns need "
            "names, as in pandas.DataFrame(rows, columns=names)"
        )
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    renamed = encoder.schema.reading.get("rename") or {}
    frame = frame.rename(columns={old: new for old, new in renamed.items() if new not in frame})
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataError(
            f"{who}: expected each column once, found {twice!r} twice; rename or drop one"
        )
    return frame


_FAR = 8  # standard deviations


def missing_and_unseen(features: pd.DataFrame, encoder: RowEncoder) -> list[str]:
    """Return notes on cells without a value, numbers far from those of training, and categories
    that training did not have.
    """
    missing = dict[str, int]()
    unseen = []
    for name, column in encoder.columns.items():
        if name not in features:
            continue
        empty = int(features[name].isna().sum())
        if empty:
            missing[name] = empty
        if column.kind == NUMBERS and column.moments is not None and column.moments.variance > 0:
            away = (features[name] - column.moments.mean).abs() / column.moments.variance**0.5
            if far := int((away > _FAR).sum()):
                example = f"{features[name][away > _FAR].iloc[0]:g}"
                unseen.append(
                    f"{name}: {far:,} cells are over {_FAR} standard deviations from training, "
                    f"such as {example}"
                )
        count, new = column.unseen(features[name])
        if count:
            examples = shorten([*map(repr, new[:3])])
            unseen.append(
                f"{name}: {count:,} cells are of categories that training did not have, such as "
                f"{examples}"
            )
    if missing:
        counts = shorten([f"{name} {count}" for name, count in missing.items()])
        return [f"cells without a value: {counts}", *unseen]
    return unseen
