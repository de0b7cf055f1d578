"""Maps the values of clients' raw tables and converts their units, as ``values`` and ``convert``
say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fedlit.data.note import Note, prefixed
from fedlit.data.reading import Raw
from fedlit.data.reading.options import Conversions, Recoding

if TYPE_CHECKING:
    from fedlit.data.sources.places import Place

Raws = dict[str, "tuple[Raw, Place]"]


def converted(raws: Raws, conversions_of: Callable[[str], Mapping[str, Conversions]]) -> Raws:
    """Return the tables with numbers in other units, and notes on units that no cell has.

    Args:
        raws: maps each client to its table.
        conversions_of: returns how the numbers of a client's columns are converted.
    """
    from fedlit.data.schema.convert import convert

    tables: Raws = {}
    for client, (raw, location) in raws.items():
        frame = raw.frame
        notes = list(raw.notes)
        options = location.options
        for column, conversions in conversions_of(client).items():
            if column not in frame:
                continue
            marks = options.decimal, options.thousands
            numbers, column_notes = convert(
                frame[column], conversions, options.missing_in(column), marks
            )
            frame = frame.assign(**{column: numbers})
            notes += [prefixed(f"{client}: {column}", note, column=column) for note in column_notes]
        tables[client] = (replace(raw, frame=frame, notes=tuple(notes)), location)
    return tables


def recoded(
    raws: Raws, values_of: Callable[[str], Mapping[str, Recoding]], *, together: bool
) -> Raws:
    """Return the tables with mapped values, and notes on values that are mapped to nothing or that
    no cell has.

    Args:
        raws: maps each client to its table.
        values_of: returns what the values of a client's columns become.
        together: whether the tables are the rows of one file: a value is missed only if no client
            has it.
    """
    from fedlit.data.schema.recode import recode

    tables: Raws = {}
    unused: dict[str, list[set[str]]] = {}
    for client, (raw, location) in raws.items():
        frame = raw.frame
        notes = list(raw.notes)
        for column, recoding in values_of(client).items():
            if column not in frame:
                continue
            mapped = recode(frame[column], recoding)
            frame = frame.assign(**{column: mapped.values})
            unused.setdefault(column, []).append(set(mapped.unused))
            column_notes = mapped.unmapped_notes if together else mapped.notes
            notes += [prefixed(f"{client}: {column}", note, column=column) for note in column_notes]
        tables[client] = (replace(raw, frame=frame, notes=tuple(notes)), location)
    return _with_unused(tables, unused) if together else tables


def _with_unused(raws: Raws, unused: Mapping[str, list[set[str]]]) -> Raws:
    """Add notes on values that no client has to the first client's table."""
    from fedlit.data.schema.recode import unused_note

    notes = list[Note]()
    for column, missed in unused.items():
        everywhere = sorted(set.intersection(*missed))
        notes += [prefixed(column, note, column=column) for note in unused_note(everywhere)]
    client, (raw, location) = next(iter(raws.items()))
    return {**raws, client: (replace(raw, notes=(*raw.notes, *notes)), location)}
