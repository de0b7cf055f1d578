"""Refuses settings of tables that name columns which no table has, or its target."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

from fedlit.data.reading import Raw
from fedlit.data.settings import ClientSettings
from fedlit.data.sources.places import MOVE_PREDICTIONS, are_predictions
from fedlit.errors import DataError, did_you_mean, expect


def check_named(
    columns: Mapping[str, Sequence[str]], named: Iterable[tuple[str, str, Iterable[str]]]
) -> None:
    """Refuse settings for columns that no client has.

    Args:
        columns: Maps each client to the names of its columns.
        named: Each setting, the name or pattern of its clients, and the columns that it names.

    Raises:
        ConfigError: No such client has a column.
    """
    for key, pattern, names in named:
        of_clients = dict[str, None]()
        for client in fnmatch.filter(columns, pattern):
            of_clients.update(dict.fromkeys(columns[client]))
        expected = f"columns of clients {pattern}"
        for name in names:
            expect(name in of_clients, f"tables: {key}", expected, name, known=of_clients)


def check_table(raw: Raw, settings: ClientSettings) -> None:
    """Refuse a table that lacks a column, and contradictory settings of its target.

    Raises:
        ConfigError: A setting names the target.
        DataError: The target, the column to split by or that of weights is absent.
    """
    split_column = settings.split.column
    targets = settings.targets
    required = [("target", target) for target in targets]
    required += [("split", split_column), ("weight", settings.weight or "")]
    for key, column in required:
        if column and column not in raw.frame:
            raise _lacks_column(raw, key, column)
    columns_of: dict[str, Iterable[str]] = {
        "drop": settings.drop,
        "types": [*settings.types, *settings.file_types],
        "split": [split_column],
        "weight": [settings.weight or ""],
    }
    expected = f"other columns than the target of client {settings.client!r}"
    for key, columns in columns_of.items():
        both = {*columns} & {*targets}
        expect(not both, f"tables: {key}", expected, min(both, default=""), "take it out")


def _lacks_column(raw: Raw, key: str, column: str) -> DataError:
    names = raw.frame.columns.tolist()
    message = f"expected a column {column!r}, the {key}, found {', '.join(names[:20])}."
    message += did_you_mean(column, names)
    if column in [str(cell).strip() for cell in raw.frame.iloc[0]]:
        message += " The first row holds it: if that is the header, write skiprows: 1."
    if raw.notes:
        message += f" Noted while reading: {'; '.join(note.text for note in raw.notes)}."
    if key == "target" and are_predictions(names):
        message += f" {MOVE_PREDICTIONS.capitalize()}."
    return DataError(f"{raw.head}: {message}")
