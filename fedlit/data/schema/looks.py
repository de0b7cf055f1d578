"""Asks about values that may be more than they look like: days as numbers, several values in a
cell, garbled letters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedlit.data.note import Note
from fedlit.data.schema.dates import parse_dates
from fedlit.show.text import shorten

_DATE_NAME = re.compile(
    r"date|datum|fecha|day|dob|birth|admi|discharge|visit|created|updated|timestamp|(^|_)(dt|at)$",
    re.I,
)
_RANGES = {"excel": (20_000, 60_000), "unix": (4e8, 4e9), "unix_ms": (4e11, 4e12)}
"""Form of dates that are numbers → the range of most dates of today."""
_TOLERANCE = re.compile(r"\d ?(?:±|\+/-|\+-) ?\d")
_NEARLY_ALL = 0.9
_MOST_MAPPED = 20
_SAMPLE = 1000


def day_notes(name: str, numbers: np.ndarray) -> list[Note]:
    """Ask whether whole numbers (n,) of a column whose name is that of a date are days as Excel or
    Unix counts them.

    Example:
        >>> day_notes("admit_date", np.array([43831.0, 43905.0]))[0].alternatives[0]
        {'types': {'admit_date': {'date': 'excel'}}}
        >>> day_notes("income", np.array([43831.0, 43905.0]))
        []
    """
    if _DATE_NAME.search(name) is None:
        return []
    for form, (low, high) in _RANGES.items():
        if numbers.min() >= low and numbers.max() <= high:
            (day,) = parse_dates([f"{numbers[0]:.0f}"], form)
            text = (
                f"is {numbers[0]:.0f} the {day:%Y-%m-%d}? "
                f"Then write types: {{{name}: {{date: {form}}}}}"
            )
            either: list[dict[str, Any]] = [
                {"types": {name: {"date": form}}},
                {"types": {name: "numeric"}},
            ]
            return [Note(text, "date", alternatives=either)]
    return []


def text_notes(name: str, texts: Sequence[str]) -> list[Note]:
    """Ask about distinct texts that are read as categories: is there more than one value in a cell,
    or are letters garbled?

    Example:
        >>> text_notes("dose", ['{"mg": 5}', '{"mg": 7}'])[0].kind, text_notes("town", ["Köln"])
        ('several values', [])
        >>> text_notes("town", ["KÃ¶ln"])[0].alternatives
        ({'values': {'town': {'KÃ¶ln': 'Köln'}}},)
    """
    some = texts[:_SAMPLE]
    notes = list[Note]()
    count = sum(map(_holds_several, some))
    if count >= _NEARLY_ALL * len(some):
        text = f"each cell holds several values, such as {some[0][:40]!r}: split it into columns"
        either: list[dict[str, Any]] = [{"drop": [name]}, {"types": {name: "categorical"}}]
        notes.append(Note(text, "several values", alternatives=either))
    meant = {text: plain for text in some if (plain := _ungarbled(text))}
    if meant:
        examples = shorten([f"{text!r} for {plain!r}" for text, plain in meant.items()], 3)
        text = f"letters are garbled, as UTF-8 is that was read as cp1252: {examples}"
        choice: dict[str, Any] = {"drop": [name]}
        if len(meant) <= _MOST_MAPPED:
            choice = {"values": {name: meant}}
        notes.append(Note(text, "garbled", alternatives=[choice]))
    return notes


def _holds_several(text: str) -> bool:
    """Return whether a text is JSON or a list, or a number with its tolerance."""
    is_nested = text[0] + text[-1] in ("[]", "{}")
    return is_nested or _TOLERANCE.search(text) is not None


def _ungarbled(text: str) -> str:
    """Return a text whose UTF-8 was read as cp1252 as it was meant; "" for other texts."""
    if text.isascii():
        return ""
    try:
        return text.encode("cp1252").decode()
    except UnicodeError:
        return ""
