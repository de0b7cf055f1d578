"""The options for reading a client's table, and the result of reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from fedlit.data.note import Note
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


def _texts(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(own, str) and own.strip() for own in value)
        and len(set(value)) == len(value)
    )


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _tokens(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_tokens(own if isinstance(own, list) else [own]) for own in value.values())
    return isinstance(value, list | tuple) and all(type(own) in (str, int, float) for own in value)


_LEFT_OUT = " Write drop of fedlit.Tables, or data.columns, to leave out columns."
_COUNT = (lambda own: _whole(own, 1), "a whole number, 1 or more")
_EXPECTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sep": (
        lambda own: len(own) == 1 and own.isascii() and own not in '"\r\n',
        "one ASCII character that ends no line and is no quote",
    ),
    "decimal": (lambda own: own in (".", ","), "'.' or ','"),
    "thousands": (lambda own: isinstance(own, str) and len(own) == 1, "one character"),
    "encoding": (lambda own: "a".encode(own), "the name of a text encoding such as utf-8, cp1252 or utf-16"),
    "names": (_texts, "a list of texts, each once (numbers and yes/no in quotes)"),
    "skiprows": (lambda own: _whole(own, 0), "a whole number of lines, 0 or more"),
    "sheet": (lambda own: (isinstance(own, str) and own) or _whole(own, 0), "a sheet's name, or its place from 0"),
    "missing": (_tokens, "a list of texts and numbers, or one for each column's name"),
    "rename": (lambda own: _texts([*own.values()]), "old names to new names, each new name once"),
    "max_rows": _COUNT,
    "max_bytes": _COUNT,
    "query": (lambda own: own.strip(), "a SELECT or a table's name"),
}


@dataclass(frozen=True)
class ReadOptions:
    r"""How a table is read. Options that are not given are detected, and a note names what was detected.

    Attributes:
        sep: the character between two fields of delimited text; found among comma, semicolon, tab and bar.
        decimal: the decimal mark of numbers, ``.`` or ``,``; used where types are found.
        thousands: the character between groups of digits; used where types are found.
        encoding: the encoding of the text, for example ``latin-1``; detected if the file is not UTF-8.
        names: the names of the columns of a file without a header.
        skiprows: lines (of Excel: rows) above the header.
        sheet: the Excel sheet, by name or counted from 0; the first.
        missing: further texts or numbers for a missing value, of all columns or per column; used where types are found.
        rename: old name to new name.
        max_rows: a table of more rows is refused.
        max_bytes: a table of more bytes, decompressed, is refused.
        query: what to read from a database: a SELECT, or the name of a table.

    Raises:
        ConfigError: if a value cannot be used.

    Example:
        >>> ReadOptions(sep=";", decimal=",").to_dict()
        {'sep': ';', 'decimal': ','}
        >>> ReadOptions.from_dict({"seperator": ";"}, "client 'north'")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: client 'north': expected one of sep, ...; found 'seperator'.
    """

    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    names: list[str] | None = None
    skiprows: int = 0
    sheet: str | int | None = None
    missing: list[Any] | dict[str, Any] | None = None
    rename: dict[str, str] | None = None
    max_rows: int = 20_000_000
    max_bytes: int = 4 * 2**30
    query: str | None = None

    def __post_init__(self) -> None:
        if self.sep == r"\t":  # what 'single quotes' of YAML make of a tab
            object.__setattr__(self, "sep", "\t")
        for key, value in self.to_dict().items():
            fits, expected = _EXPECTED[key]
            try:
                good = bool(fits(value))
            except (TypeError, ValueError, AttributeError, LookupError):
                good = False
            if not good:
                raise ConfigError(f"{key}: expected {expected}, found {value!r}.")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ConfigError(f"thousands: expected another character than decimal, found {self.thousands!r} for both.")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], where: str) -> ReadOptions:
        """Make the options from a configuration.

        Args:
            given: maps each option to its value.
            where: the beginning of messages.

        Returns:
            The options.

        Raises:
            ConfigError: if there is no such option, or a value cannot be used.
        """
        for key in given:
            if key not in _EXPECTED:
                gone = key in ("drop", "keep")
                hint = _LEFT_OUT if gone else did_you_mean(str(key), _EXPECTED)
                raise ConfigError(f"{where}: expected one of {', '.join(_EXPECTED)}; found {key!r}.{hint}")
        try:
            return cls(**given)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain data."""
        values = ((own.name, getattr(self, own.name), own.default) for own in fields(self))
        return {name: value for name, value, default in values if value != default or type(value) is not type(default)}


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before its types are known.

    Attributes:
        frame: the rows, numbered from 0; names of columns are text, each once. Of delimited text and Excel every cell
            is text as it was written, and missing only where the cell is empty. Parquet and SQL keep types.
        notes: what was detected, dropped or doubtful; each note names the client.
        where: the client and the file; the beginning of messages.
        hint: where a missing column may be instead; "" if unknown.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    where: str
    hint: str = ""


class Notes:
    """Collects the notes on one table and makes its errors; both start with the same words.

    Args:
        where: the client and the file; the beginning of messages.
        options: how the table is read.

    Example:
        >>> notes = Notes("client 'north', file north.csv", ReadOptions())
        >>> notes.add("fields are separated by ';'.")
        >>> notes.texts
        ["client 'north', file north.csv: fields are separated by ';'."]
    """

    def __init__(self, where: str, options: ReadOptions) -> None:
        self.where, self.options, self.hint = where, options, ""
        self.texts: list[str] = []

    def add(self, text: str, **fix: Any) -> None:
        """Add a note; ``fix`` holds the reading options that settle it."""
        self.texts.append(Note(text, "read" if fix else "", fix=fix, head=self.where))

    def error(self, text: str, line: int | None = None) -> DataError:
        """Return an error that names the client, the file and the line."""
        return DataError(f"{self.where}{f', line {line:,}' if line else ''}: {text}")

    def check_size(self, rows: int, size: int = 0) -> None:
        """Refuse a table with more rows, or more bytes in memory, than the options allow."""
        for key, found, what in (("max_rows", rows, "rows"), ("max_bytes", size, "bytes")):
            if found > (most := getattr(self.options, key)):
                raise self.error(f"expected at most {most:,} {what}, found more. Raise {key}, or give a smaller table.")
