"""Converts the columns of one file whose rows belong to several clients, each column at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlit.data.note import Note, prefixed
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.column import Column, Typed
from fedlit.data.schema.schema import Schema


@dataclass(frozen=True, eq=False)
class FileRows:
    """The typed rows of a file, and where those of each client are.

    Attributes:
        frame: the typed rows, one client's below the other's; the index holds the numbers of rows.
        slices: maps each client to its rows in the frame.
        typed: maps each raw column that is used to the typed columns that it becomes.
        notes: maps each client to the notes on its cells, by raw column.
    """

    frame: pd.DataFrame
    slices: Mapping[str, slice]
    typed: Mapping[str, Sequence[str]]
    notes: Mapping[str, Mapping[str, Sequence[Note]]]

    @classmethod
    def of(cls, schema: Schema, rows: pd.DataFrame, clients: Mapping[str, np.ndarray]) -> FileRows:
        """Convert raw rows.

        Args:
            schema: what the columns hold.
            rows: the raw rows of all clients, in the order of the file.
            clients: maps each client to the positions of its rows that are used, ascending.

        Raises:
            DataError: a client's column does not hold what the schema says.
        """
        columns = Typed()
        typed = dict[str, list[str]]()
        notes: dict[str, dict[str, list[Note]]] = {client: {} for client in clients}
        for name in schema.used:
            converted, notes_of_clients = convert_parts(schema.columns[name], rows[name], clients)
            columns |= converted
            typed[name] = [*converted]
            for client, client_notes in notes_of_clients.items():
                notes[client][name] = client_notes
        order = np.concatenate([*clients.values()])
        frame = pd.DataFrame(columns, index=rows.index, copy=True).iloc[order]
        slices = dict[str, slice]()
        start = 0
        for client, positions in clients.items():
            slices[client] = slice(start, start + len(positions))
            start += len(positions)
        return cls(frame, slices, typed, notes)

    def rows_of(self, client: str, columns: Sequence[str]) -> tuple[pd.DataFrame, list[Note]]:
        """Return a client's typed rows, and notes that name their column.

        Args:
            client: the client.
            columns: the raw columns that it uses.
        """
        frame = self.frame.iloc[self.slices[client]]
        if len(columns) < len(self.typed):
            names = list[str]()
            for column in columns:
                names += self.typed[column]
            frame = frame[names]
        notes = list[Note]()
        for column in columns:
            for note in self.notes[client].get(column, ()):
                notes.append(prefixed(column, note, column=column))
        return frame, notes


def convert_parts(
    column: Column, values: pd.Series, clients: Mapping[str, np.ndarray]
) -> tuple[Typed, dict[str, list[Note]]]:
    """Convert the cells of all clients to typed columns, as :meth:`Column.apply` converts those of
    one.

    Args:
        column: what the column holds.
        values: (n,) the raw cells.
        clients: maps each client to the positions of its cells, ascending.

    Returns:
        The typed columns, and the notes on the cells of each client that has any.

    Raises:
        DataError: most cells of a client cannot be read.

    Example:
        >>> from fedlit.data.schema.numbers import Notation
        >>> dose = pd.Series(["1.5", "2 mg", "3"], name="dose")
        >>> clients = {"bern": np.array([0, 2]), "thun": np.array([1])}
        >>> typed, notes = convert_parts(Column("numeric", notation=Notation(unit="mg")), dose, clients)
        >>> typed["dose"].tolist(), [*notes]
        ([1.5, 2.0, 3.0], ['bern', 'thun'])
    """
    name = str(values.name)
    numbers = column.plain_numbers(values)
    if numbers is not None:
        return {name: numbers}, {}
    cells, _ = Cells.of(values).without(column.missing, column.not_missing)
    stored = column.of_stored(values)
    parsed = stored.read(cells.texts)
    typed = stored.typed_cells(cells, parsed)
    notes = dict[str, list[Note]]()
    # Nothing to say of all cells is nothing to say of some of them.
    is_silent = not stored.notes_on(cells, parsed)
    for client, rows in clients.items():
        # The cells of one client may be plain where those of others are not.
        plain = column.plain_numbers(values.iloc[rows]) if column.has_numbers else None
        if plain is not None:
            typed[name][rows] = plain
        elif not is_silent:
            part, texts = cells.part(rows)
            head = f"client {client!r}, column {name!r}"
            part_notes = stored.checked_notes(part, parsed[texts], head)
            if part_notes:
                notes[client] = part_notes
    return typed, notes
