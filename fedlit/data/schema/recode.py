"""Maps the values of a column to others before its type is found: codes to words, a blank cell to a
class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import MISSING, Recoding
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.codes import is_code
from fedlit.show.text import shorten

BLANK = ""
"""The value that stands for an empty cell."""


@dataclass(frozen=True)
class Recoded:
    """A column whose values were mapped.

    Attributes:
        values: (n,) texts, missing where a cell has no value.
        kept: lists the values that are mapped to nothing and that no other value is mapped to, with
            their cells; "" if there are none.
        unused: the values that no cell has, though some cell is not what it should become.
    """

    values: pd.Series
    kept: str
    unused: tuple[str, ...]

    @property
    def kept_notes(self) -> list[Note]:
        """A note on values that stay as they are."""
        return (
            [Note(f"not in values, so kept as they are: {self.kept}", "recoded")]
            if self.kept
            else []
        )

    @property
    def notes(self) -> list[Note]:
        """Notes on values that stay as they are, and on those that no cell has."""
        return [*self.kept_notes, *unused_note(self.unused)]


def recode(values: pd.Series, recoding: Recoding) -> Recoded:
    """Map the values of a column.

    A value is met as it is written, else without regard to case, else as the same number: ``1``
    also means ``1.0``.

    Args:
        values: (n,), text or typed as a file has it.
        recoding: maps values to others; ``""`` stands for an empty cell, None for no value.

    Example:
        >>> recode(pd.Series([1.0, 2.0, None]), {"1": "M", "2": "F", "": "unknown"}).values.tolist()
        ['M', 'F', 'unknown']
    """
    cells = Cells.of(values)
    keys = [_key_of(text, recoding) for text in cells.texts]
    texts = [
        text if key is None else recoding[key] for text, key in zip(cells.texts, keys, strict=True)
    ]
    made = np.array([np.nan if text is None else text for text in texts], dtype=object)
    blank = recoding.get(BLANK)
    series = pd.Series(
        cells.take(made, np.nan if blank is None else blank), values.index, name=values.name
    )
    met = {key for key in keys if key is not None}
    if (cells.codes < 0).any():
        met.add(BLANK)
    targets = {text.casefold() for text in recoding.values() if text is not None}
    plain = [
        key is None and text.casefold() not in targets
        for text, key in zip(cells.texts, keys, strict=True)
    ]
    others = np.array(plain, bool)
    # where only blanks are mapped, all else is to stay
    listed = bool(others.any()) and set(recoding) != {BLANK}
    unused = [value for value in recoding if value not in met]
    # all cells are what others are mapped to: the column needs no mapping
    if not met and not others.any():
        unused = []
    return Recoded(series, cells.shown(others) if listed else "", tuple(unused))


def unused_note(values: Sequence[str]) -> list[Note]:
    """Return a note on values that are mapped, but that no cell has; none without such values."""
    names = ["no value" if value == BLANK else repr(value) for value in values]
    return [Note(f"no cell is {shorten(names)}, which values maps", "recoded")] if names else []


def kept_words(recoding: Recoding) -> dict[str, str]:
    """Return the words, by lower case, that mean missing elsewhere, but are values here: some value
    is mapped to them.

    Example:
        >>> kept_words({"": "none", "1": "gravel"})
        {'none': 'none'}
    """
    return {
        text.casefold(): text
        for text in recoding.values()
        if text is not None and text.casefold() in MISSING
    }


def _key_of(text: str, recoding: Recoding) -> str | None:
    """Return which value of a mapping a cell's text is, or None."""
    if text in recoding:
        return text
    for key in recoding:
        if key.casefold() == text.casefold():
            return key
    number = _number(text)
    for key in recoding if number is not None else ():
        if _number(key) == number:
            return key
    return None


def _number(text: str) -> float | None:
    if is_code(text):
        return None
    try:
        return float(text)
    except ValueError:
        return None
