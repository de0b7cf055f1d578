"""A table as it was read: its rows before their types are known, the names of its columns, and notes on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlit.data.note import Note
from fedlit.data.reading.options import ReadOptions
from fedlit.errors import DataError, did_you_mean
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
"""Letters that nobody sees, and that part what looks alike; not those that join or part letters of Persian or Hindi."""
_NO_NAME = "unnamed_"


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before its types are known.

    Attributes:
        frame: the rows, numbered from 0; names of columns are text, each once. Of delimited text and Excel every cell
            is text as it was written, and missing only where the cell is empty. Parquet and SQL keep types.
        notes: what was detected, dropped or doubtful; each note names the client.
        where: the client and the file; the beginning of messages.
        hint: where a missing column may be instead; "" if unknown.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    where: str
    hint: str = ""


class Notes:
    """Collects the notes on one table and makes its errors; both start with the same words.

    Args:
        where: the client and the file; the beginning of messages.
        options: how the table is read.

    Example:
        >>> notes = Notes("client 'north', file north.csv", ReadOptions())
        >>> notes.add("fields are separated by ';'.")
        >>> notes.texts
        ["client 'north', file north.csv: fields are separated by ';'."]
    """

    def __init__(self, where: str, options: ReadOptions) -> None:
        self.where, self.options, self.hint = where, options, ""
        self.texts: list[str] = []

    def add(self, text: str, **fix: Any) -> None:
        """Add a note; ``fix`` holds the reading options that settle it."""
        self.texts.append(Note(text, "read" if fix else "", fix=fix, head=self.where))

    def error(self, text: str, line: int | None = None) -> DataError:
        """Return an error that names the client, the file and the line."""
        return DataError(f"{self.where}{f', line {line:,}' if line else ''}: {text}")

    def check_size(self, rows: int, size: int = 0) -> None:
        """Refuse a table with more rows, or more bytes in memory, than the options allow."""
        for key, found, what in (("max_rows", rows, "rows"), ("max_bytes", size, "bytes")):
            if found > (most := getattr(self.options, key)):
                raise self.error(f"expected at most {most:,} {what}, found more. Raise {key}, or give a smaller table.")


def named(header: Iterable[object], notes: Notes) -> list[str]:
    """Return the names of all columns without surrounding blanks; a column without a name is called ``unnamed_N``.

    Args:
        header: the names as they stand in the file.
        notes: takes what was changed.

    Raises:
        DataError: two columns have one name, or none has any.
    """
    texts = [str(name) for name in header]
    names = [re.sub("[\u00a0\u2007\u202f]", " ", INVISIBLE.sub("", text)).strip() for text in texts]
    if not any(names):
        raise notes.error("expected a header with the names of columns, found only empty cells. Write them, or names.")
    if changed := sum(name != text for name, text in zip(names, texts, strict=True) if name):
        said = counted(changed, "name of a column", "names of columns")
        notes.add(f"blanks around {said}, or invisible letters in them, were left out.")
    names = [name or f"{_NO_NAME}{place}" for place, name in enumerate(names, 1)]
    return _each_once(names, notes, "Rename all but one, or write skiprows: 1 and names.")


def _each_once(names: list[str], notes: Notes, advice: str) -> list[str]:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise notes.error(f"{times} columns are called {name!r}. {advice}")
    return names


def mostly_numbers(names: Iterable[str]) -> bool:
    """Return whether a header looks like a row of data.

    >>> mostly_numbers(["63.0", "1", "-1", "?"]), mostly_numbers(["age", "sex", "2019"])
    (True, False)
    """
    given = [name for name in names if name]
    return 2 * sum(map(_is_number, given)) > len(given)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return text.lower() not in ("nan", "inf", "infinity")


def finished(frame: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Rename the columns, and drop those with neither a name nor a value.

    Raises:
        DataError: there is no row, ``rename`` names no column, or two columns would have one name.
    """
    if not len(frame):
        raise notes.error("expected rows of data, found none. Fetch or write the file again.")
    unnamed = [name for name in map(str, frame) if name.startswith(_NO_NAME)]
    nothing = [name for name in unnamed if frame[name].isna().all()]
    for name in unnamed:
        if name not in nothing:
            notes.add(f"column {name.removeprefix(_NO_NAME)} has no name and is called {name!r}. drop leaves it out.")
    if nothing:
        what = counted(len(nothing), "column without name and values was", "columns without name and values were")
        notes.add(f"{what} left out (a separator too many at the end of each line?).")
        frame = frame.drop(columns=nothing)
    if empty := int(frame.isna().all(axis=1).sum()):
        notes.add(f"{counted(empty, 'row holds', 'rows hold')} no value at all; they are kept.")
    rename, names = notes.options.rename or {}, [str(name) for name in frame]
    for old in rename:
        if old not in names:
            known = shorten([own[:80] for own in names])
            raise notes.error(f"rename: expected a column among {known}; found {old!r}.{did_you_mean(old, names)}")
    frame.columns = _each_once([rename.get(name, name) for name in names], notes, "Write another name in rename.")
    return frame
