"""What a configuration may say of columns. Imports nothing heavy: it is looked at before tables are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlit.errors import ConfigError, did_you_mean

__all__ = ["KINDS", "Declared", "check_declared"]

Declared = str | list[Any] | Mapping[str, Any]
"""A kind, the values of an ordinal column in their order, or ``{date: '%d/%m/%Y'}``."""

KINDS: dict[str, str] = {
    "numeric": "a number",
    "categorical": "one of several values without an order",
    "ordinal": "one of several values in a declared order",
    "boolean": "yes or no",
    "date": "a date or time",
    "identifier": "names a row: left out, and a key in predictions",
    "text": "free text: left out",
    "drop": "left out",
}
"""What a column may be said to hold, and what it means."""


def check_declared(column: str, said: Declared, owner: str = "types") -> None:
    """Refuse what says nothing that is known of a column.

    Raises:
        ConfigError: another word, an order of fewer than two values or with one twice.
    """
    if isinstance(said, list):
        if len(set(map(str, said))) != len(said) or len(said) < 2:
            raise ConfigError(f"{owner}: {column}: expected the different values of an order, found {said}.")
        return
    if isinstance(said, Mapping) and set(said) == {"date"} and isinstance(said["date"], str):
        return
    if not isinstance(said, str) or said not in KINDS or said == "ordinal":
        kinds = ", ".join(kind for kind in KINDS if kind != "ordinal")
        raise ConfigError(
            f"{owner}: {column}: expected one of {kinds}, a list of values in their order, or {{date: FORMAT}}; found "
            f"{said!r}." + (did_you_mean(said, KINDS) if isinstance(said, str) else "")
        )
