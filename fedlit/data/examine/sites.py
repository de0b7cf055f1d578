"""One table whose rows are of many sites."""

from __future__ import annotations

from typing import Any

from fedlit.data.reading import Raw
from fedlit.errors import ConfigError, did_you_mean

__all__ = ["by_client"]

FEWEST_ROWS = 20
"""Rows of a site from which it takes part by default: below, its test rows are two or three."""


def by_client(raw: Raw, client_column: str, target: str) -> tuple[dict[str, Any], int, list[str]]:
    """The keys of :class:`fedlit.Tables` that make a client of each value of a column.

    Args:
        raw: the whole table.
        client_column: the column that names the client of each row.
        target: what is predicted.

    Returns:
        The keys, the rows of the smallest client that takes part, and notes.

    Raises:
        ConfigError: there is no such column, or it names one client.
    """
    frame = raw.frame
    if client_column not in frame:
        raise ConfigError(
            f"--client-column: expected a column of {raw.where}, found {client_column!r}."
            + did_you_mean(client_column, map(str, frame))
        )
    if client_column == target:
        raise ConfigError(f"--client-column: {client_column!r} is what is predicted. Name another column.")
    sizes = frame[frame[target].notna()].groupby(client_column).size()
    if len(sizes) < 2:
        raise ConfigError(f"--client-column: {client_column!r} has {len(sizes)} values, so there is no federation.")
    keys: dict[str, Any] = {"client_column": client_column}
    notes = [f"{client_column} makes {len(sizes):,} clients of {sizes.min():,} to {sizes.max():,} rows"]
    large = sizes[sizes >= FEWEST_ROWS]
    if 2 <= len(large) < len(sizes):
        keys["least_rows"] = FEWEST_ROWS
        notes[0] += f"; {len(sizes) - len(large):,} of them have fewer than {FEWEST_ROWS} rows and are left out"
        sizes = large
    return keys, int(sizes.min()), notes
