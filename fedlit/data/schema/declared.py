"""What a configuration may say of columns. Imports nothing heavy: it is looked at before tables are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlit.errors import ConfigError, did_you_mean

__all__ = ["KINDS", "Declared", "check_declared"]

Declared = str | list[Any] | Mapping[str, Any]
"""A kind, the values of an ordinal column in their order, or ``{date: '%d/%m/%Y'}``."""

KINDS = ("numeric", "categorical", "boolean", "date", "identifier", "text", "drop")
"""Words for what a column may hold; the last three are left out."""


def check_declared(column: str, said: Declared, owner: str = "types") -> None:
    """Refuse what says nothing that is known of a column.

    Raises:
        ConfigError: another word, an order of fewer than two values or with one twice.
    """
    if isinstance(said, list):
        if len(set(map(str, said))) != len(said) or len(said) < 2:
            raise ConfigError(f"{owner}: {column}: expected the different values of an order, found {said}.")
    elif isinstance(said, Mapping) and set(said) == {"date"} and isinstance(said["date"], str):
        return
    elif said not in KINDS:
        raise ConfigError(
            f"{owner}: {column}: expected one of {', '.join(KINDS)}, a list of values in their order, or "
            f"{{date: FORMAT}}; found {said!r}." + (did_you_mean(said, KINDS) if isinstance(said, str) else "")
        )
