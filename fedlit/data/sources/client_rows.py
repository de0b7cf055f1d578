"""Splits the rows of one table by the column that names the client of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedlit.data.note import Note
from fedlit.data.reading import Raw
from fedlit.data.sources.base import check_names, owners_of
from fedlit.data.sources.places import Place
from fedlit.errors import DataError, expect
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd


def rows_by_client(
    raw: Raw, column: str, location: Place, least_rows: int
) -> tuple[dict[str, tuple[Raw, Place]], pd.DataFrame]:
    """Split the rows of a file. Clients with fewer than ``least_rows`` rows are left out.

    Returns:
        Each client's rows, and the rows of all of them, in the order of the file.

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
    left_out = set(small)
    expected = f"at most {sizes.max():,}, the largest client"
    expect(len(small) < len(sizes), "tables: least_rows", expected, least_rows)
    notes = list(raw.notes)
    if small:
        text = f"clients of fewer than {least_rows:,} rows are left out: {shorten(small)}"
        notes.append(Note(text, "small clients"))
    raws = dict[str, tuple[Raw, Place]]()
    spellings_of = _spellings(owner, raw.frame[column])
    frame = raw.frame.drop(columns=column)
    for client, rows in frame.groupby(owner):
        if client in left_out:
            continue
        name = str(client)
        spellings = spellings_of[name]
        note = ""
        if spellings != [name]:
            text = f"is {column} {' and '.join(map(repr, spellings))}"
            note = Note(text, "read", head=name)
        head = f"client {name!r}, {column} of {raw.head}"
        part = Raw(rows, tuple(notes), head)
        raws[name] = (part, replace(location, client=name, note=note))
        notes = []  # The notes stand at the first client alone.
    check_names(list(raws))
    if small:
        frame = frame[~owner.isin(left_out)]
    return raws, frame


def _spellings(owner: pd.Series, values: pd.Series) -> dict[str, list[str]]:
    """Map each client to the values (n,) that name it, in the order of the file."""
    import pandas as pd

    is_first = ~pd.DataFrame({"client": owner, "value": values}).duplicated()
    spellings = dict[str, list[str]]()
    for client, value in zip(owner[is_first].tolist(), values[is_first].tolist(), strict=True):
        spellings.setdefault(client, []).append(str(value))
    return spellings
