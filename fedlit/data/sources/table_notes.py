"""Notes on the rows, splits and tasks of clients' tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedlit.data.duplicates import same_rows, twins_are_ordinary
from fedlit.data.grouped import grouped_rows
from fedlit.data.note import Note
from fedlit.data.table import ClientTable, row_hashes
from fedlit.data.targets import outcome_at, task_for
from fedlit.outcomes import NUMBER_TASK
from fedlit.show.text import counted, shorten

_FEW_TWINS = 2
_ORDINARY = 0.02
"""The share of the rows that may be equal to others without a note."""
_FEW_ROWS = 10
"""The number of validation rows below which a choice by their scores is chance."""


def with_row_notes(tables: Sequence[ClientTable]) -> list[ClientTable]:
    """Return the tables with notes on equal rows and small splits."""
    notes: list[list[Note]] = [[] for _ in tables]
    frames = [table.features for table in tables]
    for group in grouped_rows(frames, [()] * len(frames)):
        hashes = row_hashes(group.frame)
        for member, rows in group.slices:
            notes[member] = _row_notes(tables[member], hashes[rows])
    return [
        replace(table, notes=(*table.notes, *table_notes))
        for table, table_notes in zip(tables, notes, strict=True)
    ]


def _row_notes(table: ClientTable, hashes: np.ndarray) -> list[Note]:
    """Return notes on equal rows, by the hashes of their features (n,), and on small splits."""
    notes = _twin_notes(table, hashes)
    rows = len(table.splits["validation"])
    if rows < _FEW_ROWS:
        text = f"{counted(rows, 'validation row')}: what is chosen by so few is chosen by chance"
        notes.append(Note(text, "few rows", head=table.name))
    return notes


def _twin_notes(table: ClientTable, hashes: np.ndarray) -> list[Note]:
    """Return a note on equal rows. A few among all rows are ordinary, and so are many if columns have
    few values.
    """
    rows = len(table.features)
    judged = len(table.splits["validation"]) + len(table.splits["test"])
    twins, across = same_rows(hashes, table.target, table.splits)
    few = max(_FEW_TWINS, _ORDINARY * rows)
    few_across = max(_FEW_TWINS, _ORDINARY * judged)
    if twins <= few and across <= few_across:
        return []
    if twins_are_ordinary(table.features, table.target):
        text = (
            f"{counted(twins, 'row')} equal to others, as chance makes them, for there are few "
            "different ones"
        )
        return [Note(text, "twins", head=table.name)]
    text = f"duplicate rows: {twins:,} of {rows:,}"
    if across:
        text += (
            f", and {across:,} in validation or test with a twin in training: scores are too good"
        )
    text += ". Are they the same cases? Then drop them"
    if table.groups is None:
        text += ", or split by group"
    return [Note(text, "duplicate", head=table.name)]


def with_task_notes(tables: list[ClientTable]) -> list[ClientTable]:
    """Return the tables, with a note at each client that predicts classes by default while others
    predict a number.
    """
    numbers = [table.name for table in tables if outcome_at(table).number]
    if not numbers:
        return tables
    return [_with_task_note(table, numbers) for table in tables]


def _with_task_note(table: ClientTable, numbers: list[str]) -> ClientTable:
    column = table.target.name
    if task_for(table.task, table.name) is not None or isinstance(column, tuple):
        return table
    text = (
        f"is predicted as one of {table.target.nunique()} classes, but a number is predicted at "
        f"{shorten(numbers)}; say task: {{{table.name}: classification}} if that is meant, else "
        "regression"
    )
    fix = {"task": NUMBER_TASK} if table.target.dtype.kind in "iu" else None
    note = Note(text, "task", column=str(column), fix=fix, head=f"{table.name}: {column}")
    return replace(table, notes=(*table.notes, note))
