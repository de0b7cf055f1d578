"""What a configuration may say about columns. It imports nothing heavy, because it is checked before
tables are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlit.errors import ConfigError, did_you_mean

Declared = str | list[Any] | Mapping[str, Any]
"""A kind, the values of an ordinal column in their order, or ``{date: '%d/%m/%Y'}``."""

KINDS = ("numeric", "categorical", "boolean", "date", "identifier", "text", "drop")
"""Words for what a column may hold; the last three are left out."""


def check_declared(column: str, said: Declared, owner: str = "types") -> None:
    """Refuse an invalid declaration of a column.

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


@dataclass(frozen=True)
class Dialect:
    """How a file is written, as far as the configuration says.

    Attributes:
        decimal: the decimal mark.
        thousands: the mark between groups of digits.
        missing: further words and numbers that mean missing: in all columns, or by column (``*`` for all).

    Example:
        >>> Dialect(missing={"weight": [-999, "Unknown"], "*": "lost"}).words("weight")
        ('lost', -999.0, 'unknown')
    """

    decimal: str | None = None
    thousands: str | None = None
    missing: Sequence[Any] | Mapping[str, Any] | None = None

    @property
    def by_column(self) -> Mapping[str, Any]:
        """Maps a column, or ``*`` for all, to the values that mean missing."""
        return self.missing if isinstance(self.missing, Mapping) else {"*": self.missing or ()}

    def words(self, column: str) -> tuple[str | float, ...]:
        """Return what means a missing value in a column: words in lower case, and numbers."""
        given = [self.by_column.get(own, ()) for own in ("*", column)]
        words = [word for own in given for word in (own if isinstance(own, list | tuple) else [own])]
        return tuple(str(own).casefold().strip() if isinstance(own, str | bool) else float(own) for own in words)

    @property
    def plain(self) -> bool:
        """Whether numbers may be written as programs write them."""
        return self.decimal in (None, ".") and self.thousands in (None, ",")


NO_DIALECT = Dialect()
