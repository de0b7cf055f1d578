"""Splits the rows of one table by the column that names the client of each row."""

from __future__ import annotations

from dataclasses import replace

from fedlit.data.note import Note
from fedlit.data.reading import Raw
from fedlit.data.sources.base import check_names, owners_of
from fedlit.data.sources.places import Place
from fedlit.errors import DataError, expect
from fedlit.show.text import counted, shorten


def rows_by_client(
    raw: Raw, column: str, location: Place, least_rows: int
) -> dict[str, tuple[Raw, Place]]:
    """Return each client's rows. Clients with fewer than ``least_rows`` rows are left out.

    Raises:
        ConfigError: There is no such column, or no client has so many rows.
        DataError: A row names no client.
    """
    names = raw.frame.columns.tolist()
    expected = f"a column of {raw.head}"
    expect(column in names, "tables: client_column", expected, column, known=names)
    gaps = int(raw.frame[column].isna().sum())
    if gaps:
        raise DataError(
            f"{raw.head}, column {column!r}: expected a client in each row, found "
            f"{counted(gaps, 'gap')}; fill them in, or leave those rows out"
        )
    owner = owners_of(raw.frame[column])
    sizes = owner.value_counts()
    small = sorted(sizes.index[sizes < least_rows])
    expected = f"at most {sizes.max():,}, the largest client"
    expect(len(small) < len(sizes), "tables: least_rows", expected, least_rows)
    notes = list(raw.notes)
    if small:
        text = f"clients of fewer than {least_rows:,} rows are left out: {shorten(small)}"
        notes.append(Note(text, "small clients"))
    raws = dict[str, tuple[Raw, Place]]()
    for client, rows in raw.frame.groupby(owner):
        if client in small:
            continue
        name = str(client)
        spellings = [str(value) for value in rows[column].unique()]
        note = ""
        if spellings != [name]:
            text = f"is {column} {' and '.join(map(repr, spellings))}"
            note = Note(text, "read", head=name)
        head = f"client {name!r}, {column} of {raw.head}"
        part = Raw(rows.drop(columns=column), tuple(notes), head)
        raws[name] = (part, replace(location, client=name, note=note))
        notes = []  # The notes stand at the first client alone.
    check_names(list(raws))
    return raws
