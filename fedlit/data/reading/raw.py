"""What reading gives, and what it says while it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlit.data.note import Note
from fedlit.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Notes", "Raw", "counted", "one_line"]


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before anything is known of its types.

    Attributes:
        frame: the rows, numbered from 0; names of columns are text, each once. Of delimited text and Excel every cell
            is text as it was written, and missing only where the cell is empty. Parquet, Feather and SQL keep types.
        notes: what was found, left out or doubtful, for a person; each names the client.
        where: whose table it is and where it was read, the start of messages.
        hint: where else a column may be that is not there; "" for nowhere.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    where: str
    hint: str = ""


class Notes:
    """What is said of one table: notes, and errors that start alike.

    Args:
        where: whose table it is and where it is read.

    Example:
        >>> notes = Notes("client 'north', file north.csv")
        >>> notes.add("fields are separated by ';'.")
        >>> notes.texts
        ["client 'north', file north.csv: fields are separated by ';'."]
    """

    def __init__(self, where: str) -> None:
        self.where, self.hint = where, ""
        self.texts: list[str] = []

    def add(self, text: str, **fix: Any) -> None:
        """Keep a note; ``fix`` are the keys of reading that say the same."""
        self.texts.append(Note(text, "read" if fix else "", fix=fix, head=self.where))

    def error(self, text: str, line: int | None = None) -> DataError:
        """The error to raise, which names client, file and line."""
        return DataError(f"{self.where}{f', line {line:,}' if line else ''}: {text}")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun.

    >>> counted(1, "row"), counted(1200, "row"), counted(2, "cell is", "cells are")
    ('1 row', '1,200 rows', '2 cells are')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def one_line(error: BaseException) -> str:
    """What another library says, in one line of bounded length without its full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return (text[:300] + " …" if len(text) > 300 else text) or type(error).__name__
