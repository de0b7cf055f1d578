"""Maps the values of clients' raw tables and converts their units, as ``values`` and ``convert``
say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedlit.data.note import Note, prefixed
from fedlit.data.reading import Raw
from fedlit.data.settings import ClientSettings

Raws = dict[str, tuple[Raw, ClientSettings]]
"""Client → its table and its settings."""


def converted(raw: Raw, settings: ClientSettings) -> Raw:
    """Return a table with numbers in other units, and notes on units that no cell has."""
    from fedlit.data.schema.convert import convert

    frame = raw.frame
    notes = list(raw.notes)
    options = settings.options
    marks = (options.decimal, options.thousands)
    for column, conversions in settings.convert.items():
        if column not in frame:
            continue
        numbers, column_notes = convert(
            frame[column], conversions, options.missing_in(column), marks
        )
        frame = frame.assign(**{column: numbers})
        head = f"{settings.client}: {column}"
        notes += [prefixed(head, note, column=column) for note in column_notes]
    return replace(raw, frame=frame, notes=tuple(notes))


def recoded(raws: Raws, *, together: bool) -> Raws:
    """Return the tables with mapped values, and notes on values that are mapped to nothing or that
    no cell has.

    Args:
        raws: maps each client to its table and its settings.
        together: whether the tables are the rows of one file: a value is missed only if no client
            has it.
    """
    from fedlit.data.schema.recode import recode

    tables: Raws = {}
    unused: dict[str, list[set[str]]] = {}
    for client, (raw, settings) in raws.items():
        frame = raw.frame
        notes = list(raw.notes)
        for column, recoding in settings.values.items():
            if column not in frame:
                continue
            mapped = recode(frame[column], recoding)
            frame = frame.assign(**{column: mapped.values})
            unused.setdefault(column, []).append(set(mapped.unused))
            column_notes = mapped.unmapped_notes if together else mapped.notes
            notes += [prefixed(f"{client}: {column}", note, column=column) for note in column_notes]
        tables[client] = (replace(raw, frame=frame, notes=tuple(notes)), settings)
    return _with_unused(tables, unused) if together else tables


def _with_unused(raws: Raws, unused: Mapping[str, list[set[str]]]) -> Raws:
    """Add notes on values that no client has to the first client's table."""
    from fedlit.data.schema.recode import unused_note

    notes = list[Note]()
    for column, missed in unused.items():
        everywhere = sorted(set.intersection(*missed))
        notes += [prefixed(column, note, column=column) for note in unused_note(everywhere)]
    client, (raw, settings) = next(iter(raws.items()))
    return {**raws, client: (replace(raw, notes=(*raw.notes, *notes)), settings)}
