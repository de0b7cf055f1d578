"""Detects free text, identifiers and categories among texts that are neither dates nor numbers."""

from __future__ import annotations

import re

import numpy as np

from fedlit.data.note import Note
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.column import Column
from fedlit.data.schema.dates import look_like_dates
from fedlit.data.schema.detection import (
    ROWS_THAT_TELL,
    Detection,
    Detector,
    TextColumn,
    converted,
    first_detection,
    left_out,
    left_out_group,
    names_rows,
    quoted,
)
from fedlit.data.schema.looks import text_notes
from fedlit.show.text import shorten

_WORDS = re.compile(r"[^\W\d_]{2,}")
_WORDS_OF_A_SENTENCE = 4
"""The mean number of words from which texts are sentences."""
_SAMPLE = 1000


def name_or_category(texts: TextColumn) -> Detection:
    """Describe texts that are neither dates nor numbers."""
    return first_detection(NAMES, texts) or categories(texts)


def _has_few_values(texts: TextColumn) -> bool:
    """Return whether a column has too few different values, or too few rows, for a name of rows."""
    rows = texts.filled
    return rows < ROWS_THAT_TELL or len(texts.cells.texts) <= max(2, rows / 10)


def _different_values(texts: TextColumn) -> str:
    """Say how many different values a column has."""
    different = texts.cells.texts
    rows = texts.filled
    return (
        f"has {len(different):,} different values in {rows:,} rows, such as {quoted(different[0])}"
    )


def free_text(texts: TextColumn) -> Detection | None:
    """Leave out sentences."""
    if _has_few_values(texts):
        return None
    some = texts.cells.texts[:_SAMPLE]
    if np.mean([len(_WORDS.findall(text)) for text in some]) < _WORDS_OF_A_SENTENCE:
        return None
    return left_out("free text", f"is free text, such as {quoted(some[0])}")


def unread_dates(texts: TextColumn) -> Detection | None:
    """Leave out dates that are written in several formats."""
    different = len(texts.cells.texts)
    if _has_few_values(texts) or different <= max(ROWS_THAT_TELL, texts.filled / 2):
        return None
    if not look_like_dates(texts.cells.texts):
        return None
    message = (
        f"left out: it {_different_values(texts)}, which look like dates, but of no one format. "
        "Write them in one"
    )
    note = Note(message, "formats", alternatives=[{"drop": [texts.name]}])
    return Detection(Column("left out", why="unread dates"), notes=(note,))


def identifier(texts: TextColumn) -> Detection | None:
    """Leave out texts that differ in each row."""
    if _has_few_values(texts) or len(texts.cells.texts) < texts.filled:
        return None
    return left_out("identifier", _different_values(texts))


def group_name(texts: TextColumn) -> Detection | None:
    """Leave out names of people or things that have several rows."""
    if _has_few_values(texts) or not names_rows(texts.name):
        return None
    return left_out_group(texts.name, _different_values(texts), texts.gaps)


NAMES: tuple[Detector, ...] = (free_text, unread_dates, identifier, group_name)
"""Detectors of texts that are left out."""


def categories(texts: TextColumn) -> Detection:
    """Describe texts as categories."""
    cells = texts.cells
    column = texts.column
    rows = texts.filled
    is_declared = column.kind == "categorical"
    usual_spelling, notes = spellings(cells)
    spelling = usual_spelling if notes else column.spelling
    if not is_declared and look_like_dates(cells.texts):
        message = "looks like dates, but of no one format, and is treated as categories"
        notes.append(Note(message, "formats"))
    if len(cells.texts) > max(ROWS_THAT_TELL, rows / 2):
        message = (
            f"has {len(cells.texts):,} different texts in {rows:,} cells, so its categories say "
            "next to nothing. Split it into columns, or drop it"
        )
        notes.append(Note(message, "different", alternatives=[{"drop": [cells.name]}]))
    if not is_declared:
        notes += text_notes(cells.name, cells.texts)
    column = Column("categorical", missing=column.missing, spelling=spelling)
    return converted(cells, column, notes)


def spellings(cells: Cells) -> tuple[dict[str, str], list[Note]]:
    """Map each text in lower case to its most frequent spelling; return a note if a text has
    several.

    Example:
        >>> import pandas as pd
        >>> spellings(Cells.of(pd.Series(["yes", "no", "yes", "Yes"])))[0]
        {'yes': 'yes', 'no': 'no'}
    """
    by_folded: dict[str, list[str]] = {}
    for position in np.argsort(-cells.counts, kind="stable"):
        text = cells.texts[position]
        by_folded.setdefault(text.casefold(), []).append(text)
    usual = {folded: texts[0] for folded, texts in by_folded.items()}
    equal = [" = ".join(map(repr, texts)) for texts in by_folded.values() if len(texts) > 1]
    if not equal:
        return usual, []
    message = f"spellings that are treated as one value: {shorten(equal)}"
    return usual, [Note(message, "spelling")]
