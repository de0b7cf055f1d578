"""Reading a client's table, and what is said where it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlit.data.reading import Raw, ReadOptions, read_table
from fedlit.errors import DataError


def read(place: str | Path, **options: object) -> Raw:
    return read_table(place, ReadOptions(**options), "north")  # type: ignore[arg-type]


def refused(path: str | Path, **options: object) -> str:
    """One message, in one line, that names client and file."""
    with pytest.raises(DataError) as caught:
        read(path, **options)
    message = str(caught.value)
    assert message.startswith("client 'north', file ") and "\n" not in message and len(message) < 1500
    return message
