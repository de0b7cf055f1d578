"""What a configuration says about a client's table: how it is read, words for a missing value,
types of columns.

It imports nothing heavy, because it is checked before tables are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from fedlit.errors import ConfigError, DataError, expect

Add = Callable[..., None]
"""Records a note on a table, its kind, and the reading options that settle it: ``alternatives`` of
them, or one set as further arguments.
"""

INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
"""Zero-width characters, which are removed from names and cells; two of them stay, because Persian
and Hindi need them to join or part letters."""

LABEL_MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "nan", "null", "<na>", "\\n"})
"""Words that mean a missing label, in lower case; any other word may be a class."""

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
"""Words that mean a missing cell, in lower case. In a column of text such a word may be a category,
so a note says how many there are."""


def _texts(value: object) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(item, str) for item in value)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _tokens(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_tokens(item if isinstance(item, list) else [item]) for item in value.values())
    if not isinstance(value, list | tuple):
        return False
    return all(type(item) in (str, int, float) for item in value)


_COUNT = (lambda value: _whole(value, 1), "a whole number, 1 or more")
_EXPECTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sep": (
        lambda sep: len(sep) == 1 and sep.isascii() and sep not in '"\r\n',
        "one ASCII character that ends no line and is no quote",
    ),
    "decimal": (lambda mark: mark in (".", ","), "'.' or ','"),
    "thousands": (lambda mark: isinstance(mark, str) and len(mark) == 1, "one character"),
    "encoding": (
        lambda encoding: "a".encode(encoding),
        "the name of a text encoding such as utf-8, cp1252 or utf-16",
    ),
    "names": (_texts, "a list of texts (numbers and yes/no in quotes)"),
    "skiprows": (lambda lines: _whole(lines, 0), "a whole number of lines, 0 or more"),
    "footer": (lambda lines: _whole(lines, 0), "a whole number of lines, 0 or more"),
    "sheet": (
        lambda sheet: (isinstance(sheet, str) and sheet) or _whole(sheet, 0),
        "a sheet's name, or its place from 0",
    ),
    "missing": (_tokens, "a list of texts and numbers, or one for each column's name"),
    "rename": (lambda names: _texts([*names.values()]), "old names to new names"),
    "max_rows": _COUNT,
    "max_bytes": _COUNT,
    "query": (lambda query: query.strip(), "a SELECT or a table's name"),
}
"""Option → whether a value is valid, and what is expected."""


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
        ConfigError: A value cannot be used.

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
            check, expected = _EXPECTED[key]
            try:
                is_valid = bool(check(value))
            except (TypeError, ValueError, AttributeError, LookupError):
                is_valid = False
            expect(is_valid, key, expected, value)
        marks_differ = self.thousands is None or self.thousands != self.decimal
        expect(marks_differ, "thousands", "another character than decimal", self.thousands)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any], source: str) -> ReadOptions:
        """Make the options from a configuration.

        Args:
            settings: Maps each option to its value.
            source: The file or client that has the settings, with which messages begin.

        Returns:
            The options.

        Raises:
            ConfigError: There is no such option, or a value cannot be used.
        """
        for key in settings:
            expect(key in _EXPECTED, source, f"one of {', '.join(_EXPECTED)}", key, known=_EXPECTED)
        try:
            return cls(**settings)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error

    @property
    def missing_by_column(self) -> Mapping[str, Any]:
        """Maps a column, or ``*`` for all, to the values that mean missing."""
        if isinstance(self.missing, Mapping):
            return self.missing
        return {"*": self.missing or ()}

    def missing_in(self, column: str) -> tuple[str | float, ...]:
        """Return what means a missing value in a column: words in lower case, and numbers.

        Example:
            >>> ReadOptions(missing={"weight": [-999, "Unknown"], "*": "lost"}).missing_in("weight")
            ('lost', -999.0, 'unknown')
        """
        missing = list[str | float]()
        for name in ("*", column):
            values = self.missing_by_column.get(name, ())
            for value in values if isinstance(values, list | tuple) else [values]:
                if isinstance(value, str | bool):
                    missing.append(str(value).casefold().strip())
                else:
                    missing.append(float(value))
        return tuple(missing)

    def of_columns(self, columns: Collection[Any]) -> ReadOptions:
        """Return the options without what they say about missing values in other columns."""
        if not isinstance(self.missing, dict):
            return self
        missing = {
            name: values for name, values in self.missing.items() if name == "*" or name in columns
        }
        return replace(self, missing=missing)

    def check_size(self, rows: int = 0, size: int = 0) -> None:
        """Refuse a table with more rows, or more bytes in memory, than the options allow."""
        for key, amount in (("max_rows", rows), ("max_bytes", size)):
            most = getattr(self, key)
            if amount > most:
                raise DataError(
                    f"{key}: expected at most {most:,}, found more; raise it, or give less"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as plain data."""
        values = (
            (option.name, getattr(self, option.name), option.default) for option in fields(self)
        )
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


def values_by_client(setting: Values) -> dict[str, dict[str, Recoding]]:
    """Return the recodings of columns by client's name or pattern, with all values as text.

    Raises:
        ConfigError: A column has something else than a mapping of values.

    Example:
        >>> values_by_client({"sex": {1: "M", 2: "F"}})
        {'*': {'sex': {'1': 'M', '2': 'F'}}}
        >>> values_by_client({"north": {"smoker": {"": "no"}}})
        {'north': {'smoker': {'': 'no'}}}
    """
    by_client: Mapping[str, Any] = setting if is_by_client(setting) else {"*": setting}
    recodings = dict[str, dict[str, Recoding]]()
    expected = "{column: {value: another}}, or such a mapping for each client"
    for client, columns in by_client.items():
        expect(isinstance(columns, Mapping), "values", expected, setting)
        recodings[str(client)] = {
            str(column): _recoding(column, mapping) for column, mapping in columns.items()
        }
    return recodings


def _recoding(column: str, mapping: Any) -> Recoding:
    """Return the recoding of one column, with all values as text."""
    is_mapping = isinstance(mapping, Mapping) and bool(mapping)
    is_valid = is_mapping and all(
        target is None or isinstance(target, str | int | float) for target in mapping.values()
    )
    expected = "values and what they become, such as {1: M, 2: F}"
    expect(is_valid, f"values: {column}", expected, mapping)
    return {
        _text(value): None if target is None else _text(target) for value, target in mapping.items()
    }


def _text(value: object) -> str:
    """Return a value as the text of its cell: a number as a file would have it, and without
    surrounding blanks.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return " ".join(str(value).split())


Conversion = tuple[float, float]
"""The factor and the offset that convert numbers to another unit."""

ANY_UNIT = "*"
"""Stands for numbers of whatever unit, or of none."""

Conversions = Mapping[str, Conversion]
"""Unit beside numbers, or :data:`ANY_UNIT` → how they are converted."""


def conversions_by_client(
    setting: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Conversions]]:
    """Return the conversions of columns by client's name or pattern.

    Raises:
        ConfigError: A unit has something else than a factor, or a factor and an offset.

    Example:
        >>> conversions_by_client({"weight": {"lb": 0.4536}}), conversions_by_client({"north": {"heat": {"*": [2, 1]}}})
        ({'*': {'weight': {'lb': (0.4536, 0.0)}}}, {'north': {'heat': {'*': (2.0, 1.0)}}})
    """
    by_client = setting if is_by_client(setting) else {"*": setting}
    conversions = dict[str, dict[str, Conversions]]()
    expected = "{column: {unit: factor}}, or such a mapping for each client"
    for client, columns in by_client.items():
        expect(isinstance(columns, Mapping), "convert", expected, setting)
        by_column = conversions[str(client)] = {}
        for column, units in columns.items():
            expect(isinstance(units, Mapping) and bool(units), "convert", expected, setting)
            by_column[str(column)] = {
                str(unit): _conversion(column, unit, value) for unit, value in units.items()
            }
    return conversions


def is_by_client(setting: Mapping[str, Any]) -> bool:
    """Return whether a mapping of columns to mappings is one for each client."""
    for columns in setting.values():
        if isinstance(columns, Mapping) and any(
            isinstance(value, Mapping) for value in columns.values()
        ):
            return True
    return False


def _conversion(column: object, unit: object, setting: Any) -> Conversion:
    """Return a factor and an offset."""
    pair = list(setting) if isinstance(setting, list | tuple) else [setting, 0.0]
    are_numbers = len(pair) == 2 and all(
        type(number) in (int, float) and abs(number) < float("inf") for number in pair
    )
    expected = "a factor other than 0, or [factor, offset], such as 0.4536 or [0.5556, -17.78]"
    expect(are_numbers and pair[0] != 0, f"convert: {column}: {unit}", expected, setting)
    return float(pair[0]), float(pair[1])


Declared = str | list[Any] | Mapping[str, Any]
"""A kind, the values of an ordinal column in their order, or ``{date: '%d/%m/%Y'}``."""

KINDS = ("numeric", "categorical", "boolean", "date", "identifier", "text", "drop")
"""Words for what a column may hold; the last three are left out."""


def check_declared(column: str, declared: Declared, owner: str = "types") -> None:
    """Refuse an invalid declaration of a column.

    Raises:
        ConfigError: The word is unknown, or an order has fewer than two values or one twice.
    """
    key = f"{owner}: {column}"
    if isinstance(declared, list):
        is_order = len(set(map(str, declared))) == len(declared) > 1
        expect(is_order, key, "the different values of an order", declared)
        return
    if (
        isinstance(declared, Mapping)
        and set(declared) == {"date"}
        and isinstance(declared["date"], str)
    ):
        return
    expected = f"one of {', '.join(KINDS)}, a list of values in their order, or {{date: FORMAT}}"
    expect(declared in KINDS, key, expected, declared, known=KINDS)
