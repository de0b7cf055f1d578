"""Makes clients' tables of raw ones, as their settings say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.note import Note, prefixed
from fedlit.data.reading import Raw
from fedlit.data.reading.options import Declared
from fedlit.data.settings import ClientSettings
from fedlit.data.sources.base import check_tables
from fedlit.data.sources.recoded import Raws, converted, recoded
from fedlit.data.sources.table_checks import check_table
from fedlit.data.sources.table_notes import with_row_notes
from fedlit.data.splitting import groups_of, split_rows
from fedlit.data.table import ClientTable
from fedlit.data.targets import strata_of

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.labels import Labels
    from fedlit.data.schema.parts_of_file import FileRows
    from fedlit.data.schema.schema import Schema


def client_tables(
    raws: Raws, seed: int, file_rows: pd.DataFrame | None = None
) -> list[ClientTable]:
    """Return the checked table of each client.

    Args:
        raws: Maps each client to its raw table and its settings. They are taken out, so that the
            memory of each is free once its table is made.
        seed: The seed of the splits.
        file_rows: The raw rows of all clients, in the order of the file, if they are in one file.
            Its columns are then the same at all clients.
    """
    from fedlit.data.labels import Labels, read_target
    from fedlit.data.schema.parts_of_file import FileRows

    mapped = recoded(raws, together=file_rows is not None)
    raws.clear()
    for client, (raw, settings) in mapped.items():
        mapped[client] = (converted(raw, settings), settings)
    notes = list[Note]()
    schema = None
    if file_rows is not None:
        file_rows = _with_mapped(file_rows, mapped)
        clients = [settings for _, settings in mapped.values()]
        schema, _, notes = _find_schema(clients, file_rows)
    labels = dict[str, Labels]()
    for client, (raw, settings) in mapped.items():
        check_table(raw, settings)
        labels[client] = read_target(settings, raw.frame)
    common = None
    if file_rows is not None and schema is not None:
        number = file_rows.index.to_numpy()
        positions = dict[str, np.ndarray]()
        for client, (raw, _) in mapped.items():
            labelled = raw.frame.index.to_numpy()[labels[client].labelled]
            positions[client] = np.searchsorted(number, labelled)
        common = _Common(schema, FileRows.of(schema, file_rows, positions))
    tables = []
    for client in list(mapped):
        raw, settings = mapped.pop(client)
        tables.append(_client_table(raw, settings, labels[client], seed, common))
    tables[0] = replace(tables[0], notes=(*notes, *tables[0].notes))
    return check_tables(with_row_notes(tables))


@dataclass(frozen=True)
class _Common:
    """The columns of one file, which hold the same at all clients, and its rows, converted once."""

    schema: Schema
    rows: FileRows


def _with_mapped(file_rows: pd.DataFrame, raws: Raws) -> pd.DataFrame:
    """Return the rows of a file, without the columns that are a feature of no client, and with the
    values that were mapped, and the units that were converted, client by client.
    """
    import pandas as pd

    clients = [settings for _, settings in raws.values()]
    unused = set.intersection(*({*settings.drop} for settings in clients))
    changed = set[str]()
    for settings in clients:
        unused.update(settings.targets, [settings.weight or ""])
        changed.update(settings.values, settings.convert)
    names = [name for name in file_rows if name not in unused]
    columns = dict[str, pd.Series]()
    for name in changed.intersection(names):
        columns[name] = pd.concat([raw.frame[name] for raw, _ in raws.values()])
    return file_rows[names].assign(**columns)


def _find_schema(
    clients: Sequence[ClientSettings], rows: pd.DataFrame
) -> tuple[Schema, pd.DataFrame, list[Note]]:
    """Return the schema of columns, the typed rows, and notes.

    Args:
        clients: The settings of the clients whose rows they are; their file is read in one way.
        rows: The raw rows, with the columns that become features.
    """
    from fedlit.data.schema.recode import words_as_values
    from fedlit.data.schema.schema import Schema

    types: dict[str, Declared] = {**clients[0].types}
    for settings in clients:
        types |= settings.split.types
    types = {name: declared for name, declared in types.items() if name in rows}
    not_missing = dict[str, dict[str, str]]()
    for settings in clients:
        for column, recoding in settings.values.items():
            not_missing.setdefault(column, {}).update(words_as_values(recoding))
    # The target's words are its own, and the options of all files need not fit each.
    options = clients[0].options.of_columns(rows)
    head = f"client {clients[0].client!r}"
    return Schema.find(rows, {**types, **clients[0].file_types}, options, head, not_missing)


def _client_table(
    raw: Raw, settings: ClientSettings, labels: Labels, seed: int, common: _Common | None
) -> ClientTable:
    """Return one client's table. ``common`` says what the columns of all clients hold, if they were
    examined together.
    """
    from fedlit.data.labels import read_weights
    from fedlit.data.sources.keys import hashed_keys

    client = settings.client
    head = f"client {client!r}"
    rows = raw.frame if labels.labelled.all() else raw.frame[labels.labelled]
    schema, features, column_notes = _features(settings, rows, common)
    split = settings.split
    split_column = rows[split.column] if split.column else None
    strata = strata_of(labels.target, settings.outcome)
    drawn_by = labels.target if strata is None else strata
    splits, split_notes = split_rows(
        client,
        split,
        drawn_by,
        split_column,
        seed,
        strata is not None,
        schema.columns.get(split.column),
    )
    groups = None
    if split_column is not None and split.method == "group":
        groups = groups_of(split_column, head)
    weights = None
    if settings.weight is not None:
        weights = read_weights(head, rows[settings.weight], settings.options)
    table = ClientTable(
        name=client,
        features=features,
        target=labels.target,
        splits=splits,
        groups=groups,
        categorical=schema.categorical(features),
        positive=labels.positive,
        task=settings.task,
        schema=schema,
        keys=hashed_keys(schema, rows, settings.options),
        unit=labels.unit,
        weights=weights,
    )
    notes = [*filter(None, [settings.note]), *raw.notes]
    notes += [prefixed(client, note) for note in column_notes]
    notes += [*labels.notes, *split_notes]
    return replace(table, notes=tuple(notes))


def _features(
    settings: ClientSettings, rows: pd.DataFrame, common: _Common | None
) -> tuple[Schema, pd.DataFrame, list[Note]]:
    """Return the schema of a client's columns, the typed rows, and notes.

    Args:
        settings: The settings of the client.
        rows: The raw rows.
        common: What the columns of all clients hold, if they were examined together.
    """
    names = [name for name in rows if name not in settings.no_features]
    if common is None:
        schema, features, notes = _find_schema([settings], rows[names])
    else:
        columns = {name: column for name, column in common.schema.columns.items() if name in names}
        schema = replace(common.schema, columns=columns)
        features, notes = common.rows.rows_of(settings.client, schema.used)
    # New rows have the values and the units of the file.
    return schema.with_values(settings.values, settings.convert), features, notes
