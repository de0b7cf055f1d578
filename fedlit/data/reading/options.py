"""What a configuration says about a client's table: how it is read, words for a missing value,
types of columns.

It imports nothing heavy, because it is checked before tables are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedlit.errors import ConfigError, DataError, Told, expect

Add = Callable[..., None]
"""Takes a note on a table, its kind, and the reading options that settle it: ``alternatives`` of
them, or one set as further arguments.
"""

INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
"""Letters that nobody sees, and that part what looks alike; not those that join or part letters of
Persian or Hindi."""

LABEL_MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "nan", "null", "<na>", "\\n"})
"""Of labels: any other word may be a class."""

_WORDS = """
    . .. - -- --- – — * ** ?? ??? n.a. k.a. nil none nul missing unknown unk undefined keine unbekannt fehlt inconnu
    desconocido sconosciuto #div/0! #value! #ref! #name? #num! #null! #error! 1.#qnan -1.#qnan 1.#ind -1.#ind -nan nat
    (null) (none) (blank)
"""
_PHRASES = (
    "n. a.",
    "k. a.",
    "not available",
    "not applicable",
    "not known",
    "no data",
    "keine angabe",
    "#n/a n/a",
)
MISSING = LABEL_MISSING.union(_WORDS.split(), _PHRASES)
"""In lower case; in a column of text such a word may be a category too, so a note says how many
there are."""


def _texts(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(own, str) for own in value)
    )


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _tokens(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_tokens(own if isinstance(own, list) else [own]) for own in value.values())
    return isinstance(value, list | tuple) and all(type(own) in (str, int, float) for own in value)


_COUNT = (lambda own: _whole(own, 1), "a whole number, 1 or more")
_EXPECTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sep": (
        lambda own: len(own) == 1 and own.isascii() and own not in '"\r\n',
        "one ASCII character that ends no line and is no quote",
    ),
    "decimal": (lambda own: own in (".", ","), "'.' or ','"),
    "thousands": (lambda own: isinstance(own, str) and len(own) == 1, "one character"),
    "encoding": (
        lambda own: "a".encode(own),
        "the name of a text encoding such as utf-8, cp1252 or utf-16",
    ),
    "names": (_texts, "a list of texts (numbers and yes/no in quotes)"),
    "skiprows": (lambda own: _whole(own, 0), "a whole number of lines, 0 or more"),
    "footer": (lambda own: _whole(own, 0), "a whole number of lines, 0 or more"),
    "sheet": (
        lambda own: (isinstance(own, str) and own) or _whole(own, 0),
        "a sheet's name, or its place from 0",
    ),
    "missing": (_tokens, "a list of texts and numbers, or one for each column's name"),
    "rename": (lambda own: _texts([*own.values()]), "old names to new names"),
    "max_rows": _COUNT,
    "max_bytes": _COUNT,
    "query": (lambda own: own.strip(), "a SELECT or a table's name"),
}


@dataclass(frozen=True)
class ReadOptions:
    r"""How a table is read. Options that are not given are detected, and a note names what was
    detected. Those that do not concern a kind of file, such as ``sep`` of Parquet, are ignored.

    Attributes:
        sep: the character between two fields of delimited text; found among comma, semicolon, tab
            and bar.
        decimal: the decimal mark of numbers, ``.`` or ``,``; used where types are found.
        thousands: the character between groups of digits; used where types are found.
        encoding: the encoding of the text, for example ``latin-1``; detected if the file is not
            UTF-8.
        names: the names of the columns of a file without a header.
        skiprows: lines (of Excel: rows) above the header.
        footer: rows at the end to leave out; if None, those that are clearly totals, with a note.
        sheet: the Excel sheet, by name or counted from 0; the first.
        missing: further texts or numbers for a missing value, of all columns or per column; used
            where types are found.
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
        fedlit.errors.ConfigError: client 'north': expected one of sep, ..., found 'seperator'
    """

    sep: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    names: list[str] | None = None
    skiprows: int = 0
    footer: int | None = None
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
            expect(good, key, expected, value)
        apart = self.thousands is None or self.thousands != self.decimal
        expect(apart, "thousands", "another character than decimal", self.thousands)

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
            expect(key in _EXPECTED, where, f"one of {', '.join(_EXPECTED)}", key, known=_EXPECTED)
        try:
            return cls(**given)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error

    @property
    def missing_by_column(self) -> Mapping[str, Any]:
        """Maps a column, or ``*`` for all, to the values that mean missing."""
        return self.missing if isinstance(self.missing, Mapping) else {"*": self.missing or ()}

    def missing_in(self, column: str) -> tuple[str | float, ...]:
        """Return what means a missing value in a column: words in lower case, and numbers.

        Example:
            >>> ReadOptions(missing={"weight": [-999, "Unknown"], "*": "lost"}).missing_in("weight")
            ('lost', -999.0, 'unknown')
        """
        given = [self.missing_by_column.get(own, ()) for own in ("*", column)]
        words = [
            word for own in given for word in (own if isinstance(own, list | tuple) else [own])
        ]
        return tuple(
            str(own).casefold().strip() if isinstance(own, str | bool) else float(own)
            for own in words
        )

    def check_size(self, rows: int = 0, size: int = 0) -> None:
        """Refuse a table with more rows, or more bytes in memory, than the options allow."""
        for key, found, most in (
            ("max_rows", rows, self.max_rows),
            ("max_bytes", size, self.max_bytes),
        ):
            expect(
                found <= most,
                key,
                f"at most {most:,}",
                Told("more"),
                "raise it, or give less",
                DataError,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain data."""
        values = ((own.name, getattr(self, own.name), own.default) for own in fields(self))
        return {
            name: value
            for name, value, default in values
            if value != default or type(value) is not type(default)
        }


DEFAULTS = ReadOptions()

Recoding = Mapping[str, str | None]
"""Value of a column, as text → the text that it becomes; None for no value."""

Values = Mapping[str, Mapping[str, Any]]
"""Column → the :data:`Recoding` of its values; or client's name or pattern → such a mapping."""


def values_by_client(given: Values) -> dict[str, dict[str, Recoding]]:
    """Return the recodings of columns by client's name or pattern, with all values as text.

    Raises:
        ConfigError: something else than a mapping of values for each column.

    Example:
        >>> values_by_client({"sex": {1: "M", 2: "F"}})
        {'*': {'sex': {'1': 'M', '2': 'F'}}}
        >>> values_by_client({"north": {"smoker": {"": "no"}}})
        {'north': {'smoker': {'': 'no'}}}
    """
    by_client: Mapping[str, Any] = given if is_by_client(given) else {"*": given}
    made = dict[str, dict[str, Recoding]]()
    for client, columns in by_client.items():
        fits = isinstance(columns, Mapping)
        expect(
            fits, "values", "{column: {value: another}}, or such a mapping for each client", given
        )
        made[str(client)] = {str(column): _recoding(column, own) for column, own in columns.items()}
    return made


def _recoding(column: str, given: Any) -> Recoding:
    """Return the recoding of one column, with all values as text."""
    plain = isinstance(given, Mapping) and bool(given)
    fits = plain and all(
        own is None or isinstance(own, str | int | float) for own in given.values()
    )
    expect(fits, f"values: {column}", "values and what they become, such as {1: M, 2: F}", given)
    return {_text(value): None if own is None else _text(own) for value, own in given.items()}


def _text(value: Any) -> str:
    """Return a value as the text of its cell: a number as a file would have it, and without
    surrounding blanks.
    """
    whole = isinstance(value, float) and value.is_integer()
    return " ".join(str(int(value) if whole else value).split())


Conversion = tuple[float, float]
"""The factor and the offset that convert numbers to another unit."""

ANY_UNIT = "*"
"""Stands for numbers of whatever unit, or of none."""

Conversions = Mapping[str, Conversion]
"""Unit beside numbers, or :data:`ANY_UNIT` → how they are converted."""


def conversions_by_client(
    given: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Conversions]]:
    """Return the conversions of columns by client's name or pattern.

    Raises:
        ConfigError: something else than a factor, or a factor and an offset, for each unit.

    Example:
        >>> conversions_by_client({"weight": {"lb": 0.4536}}), conversions_by_client({"north": {"heat": {"*": [2, 1]}}})
        ({'*': {'weight': {'lb': (0.4536, 0.0)}}}, {'north': {'heat': {'*': (2.0, 1.0)}}})
    """
    by_client = given if is_by_client(given) else {"*": given}
    made = dict[str, dict[str, Conversions]]()
    for client, columns in by_client.items():
        expected = "{column: {unit: factor}}, or such a mapping for each client"
        fits = isinstance(columns, Mapping) and all(
            isinstance(own, Mapping) and own for own in columns.values()
        )
        expect(fits, "convert", expected, given)
        made[str(client)] = {
            str(column): {
                str(unit): _conversion(column, unit, value) for unit, value in own.items()
            }
            for column, own in columns.items()
        }
    return made


def is_by_client(given: Mapping[str, Any]) -> bool:
    """Return whether a mapping of columns to mappings is one for each client."""
    columns = [own for own in given.values() if isinstance(own, Mapping)]
    return any(isinstance(value, Mapping) for own in columns for value in own.values())


def _conversion(column: object, unit: object, given: Any) -> Conversion:
    """Return a factor and an offset."""
    both = list(given) if isinstance(given, list | tuple) else [given, 0.0]
    numbers = len(both) == 2 and all(
        type(own) in (int, float) and abs(own) < float("inf") for own in both
    )
    fits = numbers and both[0] != 0
    expected = "a factor other than 0, or [factor, offset], such as 0.4536 or [0.5556, -17.78]"
    expect(fits, f"convert: {column}: {unit}", expected, given)
    return (float(both[0]), float(both[1]))


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
        fits = len(set(map(str, said))) == len(said) > 1
        expect(fits, f"{owner}: {column}", "the different values of an order", said)
    elif not (
        isinstance(said, Mapping) and set(said) == {"date"} and isinstance(said["date"], str)
    ):
        told = f"one of {', '.join(KINDS)}, a list of values in their order, or {{date: FORMAT}}"
        expect(said in KINDS, f"{owner}: {column}", told, said, known=KINDS)
