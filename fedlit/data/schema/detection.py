"""The description of a column that was detected, and the reasons for leaving a column out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedlit.data.note import Note
from fedlit.data.reading.options import DEFAULTS, ReadOptions
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.column import Column, Typed
from fedlit.show.text import counted

_ID_NAME = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|identifier|mrn|ssn|rownum|row_number|row\.?names?|pid|patid|phone|telephone)$"
    r"|^(index|unnamed: ?\d+)$|^(patient|case|hospital|subject|customer|account)([_\s.-]?(id|no|nr|num|number))?$",
    re.I,
)
_ID_CAMEL = re.compile(r"[a-z](ID|Id|NR|Nr|No)$")
ROWS_THAT_TELL = 20
"""The number of rows from which it is no chance that all values differ."""


@dataclass(frozen=True)
class Detection:
    """What was detected in a column.

    Attributes:
        column: The description of the column.
        typed: Its typed cells; none if the column is left out.
        notes: Notes for a person, without the column's name.
        gaps: Maps each word that counts as missing to its number of cells.
        unique: Whether it holds whole numbers that differ in every row and are kept.
    """

    column: Column
    typed: Typed = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    gaps: Mapping[str, int] = field(default_factory=dict)
    unique: bool = False


@dataclass(frozen=True)
class TextColumn:
    """A column of texts, as detectors see it.

    Attributes:
        cells: The cells that have a value.
        column: What is known of the column: words for a missing value, spellings, and the kind if
            it is declared.
        options: How the file is written.
        head: The text with which messages begin.
    """

    cells: Cells
    column: Column
    options: ReadOptions = DEFAULTS
    head: str = ""

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.cells.name

    @property
    def filled(self) -> int:
        """The number of cells that have a value."""
        return int(self.cells.counts.sum())

    @property
    def gaps(self) -> int:
        """The number of cells without a value."""
        return len(self.cells.codes) - self.filled


Detector = Callable[[TextColumn], Detection | None]
"""Returns what a column is, or None if it is not what this detector looks for."""


def first_detection(detectors: Iterable[Detector], texts: TextColumn) -> Detection | None:
    """Return what the first of the detectors that recognises a column says, or None."""
    for detector in detectors:
        detection = detector(texts)
        if detection is not None:
            return detection
    return None


def converted(
    cells: Cells, column: Column, notes: Sequence[Note] = (), head: str = ""
) -> Detection:
    """Convert cells to the typed columns of a description."""
    typed, further_notes = column.take(cells, head)
    return Detection(column, typed, (*notes, *further_notes))


def left_out(why: str, reason: str, notes: Sequence[Note] = ()) -> Detection:
    """Leave a column out.

    Args:
        why: A short word for the reason, see :class:`~fedlit.data.schema.column.Column`.
        reason: The predicate of a sentence about the column.
        notes: Further notes.
    """
    note = Note(f"left out: it {reason}", "left out")
    return Detection(Column("left out", why=why), notes=(note, *notes))


def left_out_group(name: str, reason: str, gaps: int) -> Detection:
    """Leave out an identifier whose values occur in several rows. To split by it, each row needs a
    value.
    """
    text = f"left out: it {reason}. Rows of one belong in one split: split: {{group: {name}}}"
    if gaps:
        text += f", once {counted(gaps, 'row')} without a value are gone"
        note = Note(text, "group", alternatives=[{"types": {name: "identifier"}}])
    else:
        note = Note(text, "group", fix={"split": {"group": name}})
    return Detection(Column("left out", why="identifier"), notes=(note,))


def single_value(value: str, gaps: int) -> str:
    """Say that a column has one value, and how many gaps."""
    text = f"has the single value {value}"
    return f"{text} and {counted(gaps, 'gap')}" if gaps else text


def quoted(text: str) -> str:
    """Quote a text of a cell, shortened to 40 letters."""
    return repr(text) if len(text) <= 40 else f"{text[:37]!r}..."


def names_rows(name: str) -> bool:
    """Return whether the name of a column is that of an identifier."""
    return bool(_ID_NAME.search(name) or _ID_CAMEL.search(name))
