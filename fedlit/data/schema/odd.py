"""What is odd about a table's columns, seen together."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from fedlit.data.schema.column import ColumnType, is_text

__all__ = ["grouped_by_points", "second_header"]

_SAMPLE = 5_000
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")


def grouped_by_points(raw: pd.DataFrame, types: Mapping[str, ColumnType]) -> dict[str, tuple[str, str]]:
    """Columns of numbers that may have a point between thousands: 1.583 beside 950.

    Args:
        raw: the cells.
        types: what was found of each column.

    Returns:
        Column → a number with a point, and one without.

    Example:
        >>> grouped_by_points(pd.DataFrame({"a": ["1.583", "950"]}), {"a": ColumnType("numeric")})
        {'a': ('1.583', '950')}
    """
    found = {}
    for name, own in types.items():
        if own.kind != "numeric" or own.notation.decimal != "." or not is_text(cells := raw[name]):
            continue
        marked = plain = ""
        for cell in cells.iloc[:_SAMPLE]:
            text = cell.strip() if isinstance(cell, str) else ""
            if "." in text:
                if not _GROUPED.fullmatch(text):
                    break
                marked = marked or text
            elif not plain and len(text) == 3 and text.isdecimal():
                plain = text
        else:
            if marked and plain:
                found[name] = (marked, plain)
    return found


def second_header(raw: pd.DataFrame, types: Mapping[str, ColumnType]) -> list[str]:
    """The first row's cells, if they look like units below the names: words where all other rows have numbers."""
    first = list[str]()
    for name, own in types.items():
        if own.kind != "numeric" or len(raw) < 2 or not is_text(cells := raw[name]):
            continue
        text = str(cells.iloc[0]).strip()
        if text.casefold() not in own.missing or not text[:1].isalpha():
            return []
        first.append(text)
    return first
