"""The checks of clients' tables, alone and together. Each check is a small function that makes
notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.examine.between import kinds, names, scales, spellings, units
from fedlit.data.examine.facts import ClientFacts, is_number, sampled
from fedlit.data.examine.leaks import leaks
from fedlit.data.examine.observed import observed
from fedlit.data.examine.roles import event_times, sampling_weights
from fedlit.data.note import Note
from fedlit.data.schema.detection import ROWS_THAT_TELL, names_rows
from fedlit.data.table import ClientTable, row_hashes
from fedlit.data.targets import outcome_at, task_for, task_name
from fedlit.errors import DataError
from fedlit.show.text import counted

MOST_PAIRS = 300
"""The largest number of pairs of clients whose rows and identifiers are compared."""
_FEWEST_COLUMNS = 3
_BEYOND_CHANCE = 5
_LEAST_SHARED = 0.02  # Scores hardly change if two tables share fewer of the smaller one's rows.
# Small clients are examined together if there are enough of them.
_FEWEST_TOGETHER = 5
_MOST_TOGETHER = 200


def noted(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Yield the notes of reading, schema, labels and splitting."""
    for table in tables:
        for note in table.notes:
            if not isinstance(note, Note):
                note = Note(note.removeprefix(f"{table.name}: "), head=table.name)
            # A note on a whole file with a column of clients names no client.
            of_file = note == note.text
            if note.column:
                of_file = note.startswith(f"{note.column}: ")
            yield note.copied(clients=() if of_file else (table.name,), column=note.column)


def untrainable(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find training rows from which nothing can be learnt."""
    for table in tables:
        rows = table.target.iloc[table.splits["train"]].dropna()
        labels: Iterable[Iterable[Any]] = [rows]
        name = table.target_title
        if isinstance(table.target.name, tuple):
            cells = list(zip(*rows, strict=True))
            positions = outcome_at(table).label_cells or range(len(cells))
            labels = [cells[position] for position in positions if cells]
        if all(len({*column} - {None}) < 2 for column in labels):
            text = (
                f"{name} has one value or none in all {len(rows):,} training rows, from which "
                "nothing can be learnt alone: leave the client out, or say why it takes part"
            )
            # Without names, leave_out means the clients of the note.
            either: list[dict[str, Any]] = [{"leave_out": []}]
            yield Note(text, "untrainable", clients=(table.name,), alternatives=either)


def rows(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find rows of two clients that are equal in all columns that both have. This works only if one
    process sees both.
    """
    counts_of: dict[tuple[str, tuple[str, ...]], tuple[np.ndarray, np.ndarray]] = {}
    types = [_are_numbers(table) for table in tables]
    pairs = combinations(zip(tables, types, strict=True), 2)
    for (first, first_types), (second, second_types) in islice(pairs, MOST_PAIRS):
        columns = tuple(
            name for name, number in first_types.items() if second_types.get(name) is number
        )
        if len(columns) < _FEWEST_COLUMNS:
            continue
        for table in (first, second):
            if (table.name, columns) not in counts_of:
                counts_of[table.name, columns] = _row_counts(table, columns)
        shared = _shared_rows(counts_of[first.name, columns], counts_of[second.name, columns])
        if shared:
            text = (
                f"{counted(shared, 'row')} of both are equal in all {len(columns)} common columns; "
                "if they are the same people, scores are too good: leave them out at one client"
            )
            yield Note(text, "rows", clients=(first.name, second.name))


def _are_numbers(table: ClientTable) -> dict[str, bool]:
    """Map each column to whether it holds numbers."""
    return {str(name): is_number(column) for name, column in table.features.items()}


def _row_counts(table: ClientTable, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of the different rows that have enough cells, and how often each occurs."""
    features = table.features[[*columns]]
    enough = features.notna().sum(axis=1).to_numpy() >= _FEWEST_COLUMNS
    return np.unique(row_hashes(features)[enough], return_counts=True)


def _shared_rows(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> int:
    """Return how many different rows two tables share, or 0 if these could be equal by chance."""
    first_hashes, first_counts = first
    second_hashes, second_counts = second
    _, in_first, in_second = np.intersect1d(
        first_hashes, second_hashes, assume_unique=True, return_indices=True
    )
    first_rows = int(first_counts.sum())
    second_rows = int(second_counts.sum())
    equal_pairs = int((first_counts[in_first] * second_counts[in_second]).sum())
    # Two rows of one table are equal by chance: as often are rows of two tables.
    equal_within = 0
    pairs_within = 0
    for counts in (first_counts, second_counts):
        equal_within += int((counts * (counts - 1)).sum())
        pairs_within += max(int(counts.sum()), 2) ** 2
    chance = (1 + equal_within) / pairs_within
    if len(in_first) < _LEAST_SHARED * min(first_rows, second_rows):
        return 0
    if equal_pairs <= _BEYOND_CHANCE * chance * first_rows * second_rows:
        return 0
    return len(in_first)


def people(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find values of an identifier that two clients have. This works only if one process sees
    both.
    """
    for first, second in islice(combinations(tables, 2), MOST_PAIRS):
        for name, keys in first.keys.items():
            both = len(np.intersect1d(keys, second.keys.get(name, ()), assume_unique=True))
            if both > 1:
                text = (
                    f"both clients have {counted(both, 'value')}; if they are the same people, "
                    "leave them out at one client; if each client counts its own, nothing is wrong"
                )
                yield Note(text, "people", clients=(first.name, second.name), column=name)


def identifiers(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find columns that have a different value in each row of clients that have too few rows to
    tell on their own.
    """
    small = [
        table
        for table in tables
        if table.schema is not None and len(table.features) < ROWS_THAT_TELL
    ]
    if len(small) < _FEWEST_TOGETHER:
        return
    chosen = [small[index] for index in sampled(np.arange(len(small)), _MOST_TOGETHER).tolist()]
    for name, columns in _possible_identifiers(chosen).items():
        rows = sum(map(len, columns))
        enough = len(columns) >= _FEWEST_TOGETHER and rows >= 2 * ROWS_THAT_TELL
        if not enough or pd.concat(columns).nunique() != rows:
            continue
        text = (
            f"has a different value in each of {rows:,} rows of {len(columns):,} small "
            "clients, as an identifier has"
        )
        holders = [table.name for table in tables if name in table.features]
        fix = {"types": {name: "identifier"}}
        yield Note(text, "identifier", clients=holders, column=name, fix=fix)


def _possible_identifiers(tables: Iterable[ClientTable]) -> Mapping[str, list[pd.Series]]:
    """Map each column that could be an identifier to its cells at each client."""
    cells = dict[str, list[pd.Series]]()
    for table in tables:
        for name, column in table.features.items():
            if str(name) in table.categorical or names_rows(str(name)):
                cells.setdefault(str(name), []).append(column.dropna())
    return cells


def unreadable(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find targets of several roles, such as a time and an event, that their task cannot read."""
    for table in tables:
        questions = any(getattr(note, "kind", "") == "event" for note in table.notes)
        if outcome_at(table).roles and not questions:
            from fedlit.tasks import task_named

            settings = task_for(table.task, table.name) or {}
            try:
                task_named(task_name(table)).facts(table.target.dropna(), settings)
            except DataError as error:
                yield Note(str(error), "target", clients=(table.name,))


Check = Callable[[Sequence[ClientTable]], Iterable[Note]]
Comparison = Callable[[Sequence[ClientFacts]], Iterable[Note]]
CHECKS: tuple[Check, ...] = (
    untrainable,
    unreadable,
    leaks,
    rows,
    people,
    identifiers,
    sampling_weights,
    event_times,
    noted,
)
BLOCKING: tuple[Check, ...] = (leaks,)
"""The checks whose findings can forbid a verdict."""
COMPARISONS: tuple[Comparison, ...] = (names, scales, units, kinds, spellings, observed)
"""Checks of tables that need not have the same columns. They find nothing in one table with a column
of clients."""
