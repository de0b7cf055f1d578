"""Maps the values of a column to others before its type is found: codes to words, a blank cell to a
class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        unmapped: Lists the values that are mapped to nothing and that no other value is mapped to,
            with their cells; "" if there are none.
        unused: The values that no cell has, if some cell is mapped or is no target of the mapping.
    """

    values: pd.Series
    unmapped: str
    unused: tuple[str, ...]

    @property
    def unmapped_notes(self) -> list[Note]:
        """A note on values that stay as they are."""
        if not self.unmapped:
            return []
        return [Note(f"not in values, so kept as they are: {self.unmapped}", "recoded")]

    @property
    def notes(self) -> list[Note]:
        """Notes on values that stay as they are, and on those that no cell has."""
        return [*self.unmapped_notes, *unused_note(self.unused)]


def recode(values: pd.Series, recoding: Recoding) -> Recoded:
    """Map the values of a column.

    A value is looked up as it is written, then without regard to case, then as the same number:
    ``1`` also means ``1.0``.

    Args:
        values: (n,), text or typed as a file has it.
        recoding: maps values to others; ``""`` stands for an empty cell, None for no value.

    Example:
        >>> recode(pd.Series([1.0, 2.0, None]), {"1": "M", "2": "F", "": "unknown"}).values.tolist()
        ['M', 'F', 'unknown']
    """
    cells = Cells.of(values)
    keys = [_key_of(text, recoding) for text in cells.texts]
    mapped = np.array(cells.texts, dtype=object)
    targets = {text.casefold() for text in recoding.values() if text is not None}
    is_unmapped = np.zeros(len(keys), bool)
    for position, (text, key) in enumerate(zip(cells.texts, keys, strict=True)):
        if key is None:
            is_unmapped[position] = text.casefold() not in targets
        else:
            mapped[position] = _cell(recoding[key])
    series = pd.Series(
        cells.take(mapped, _cell(recoding.get(BLANK))), values.index, name=values.name
    )
    used = {key for key in keys if key is not None}
    if (cells.codes < 0).any():
        used.add(BLANK)
    unmapped = ""
    # If only blanks are mapped, all other values are to stay.
    if is_unmapped.any() and set(recoding) != {BLANK}:
        unmapped = cells.shown(is_unmapped)
    unused = [value for value in recoding if value not in used]
    # A column whose cells are all targets needs no mapping.
    if not used and not is_unmapped.any():
        unused = []
    return Recoded(series, unmapped, tuple(unused))


def _cell(target: str | None) -> object:
    """Return the cell that a target of a mapping becomes."""
    return np.nan if target is None else target


def unused_note(values: Sequence[str]) -> list[Note]:
    """Return a note on values that are mapped, but that no cell has; none without such values."""
    if not values:
        return []
    names = ["no value" if value == BLANK else repr(value) for value in values]
    return [Note(f"no cell is {shorten(names)}, which values maps", "recoded")]


def words_as_values(recoding: Recoding) -> dict[str, str]:
    """Return the words, by lower case, that mean missing elsewhere, but are values here: some value
    is mapped to them.

    Example:
        >>> words_as_values({"": "none", "1": "gravel"})
        {'none': 'none'}
    """
    return {
        text.casefold(): text
        for text in recoding.values()
        if text is not None and text.casefold() in MISSING
    }


def recoded_label(label: Any, recoding: Recoding) -> Any:
    """Return a label as it is called after the mapping: a file's spelling becomes the target's.

    Example:
        >>> recoded_label("yes", {"no": "0_no", "yes": "1_yes"})
        '1_yes'
        >>> recoded_label("1_yes", {"no": "0_no", "yes": "1_yes"})
        '1_yes'
    """
    text = str(label)
    targets = {value.casefold() for value in recoding.values() if value is not None}
    if label is None or text.casefold() in targets:
        return label
    key = _key_of(text, recoding)
    target = None if key is None else recoding[key]
    return label if target is None else target


def _key_of(text: str, recoding: Recoding) -> str | None:
    """Return which value of a mapping a cell's text is, or None."""
    if text in recoding:
        return text
    for key in recoding:
        if key.casefold() == text.casefold():
            return key
    number = _number(text)
    if number is None:
        return None
    for key in recoding:
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
