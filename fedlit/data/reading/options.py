"""What a configuration may say of how a client's table is read, and what reading gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from fedlit.data.note import Note
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Notes", "Raw", "ReadOptions", "one_line"]


@dataclass(frozen=True)
class ReadOptions:
    r"""How a table is read; what is not given is found, and what is found is said in a note.

    Attributes:
        sep: the character between two fields of delimited text; found among comma, semicolon, tab and bar.
        decimal: the decimal mark of numbers, ``.`` or ``,``; used where types are found.
        thousands: the character between groups of digits; used where types are found.
        encoding: how text is encoded, ``latin-1`` for example; found where the file is not UTF-8.
        names: the names of the columns of a file without a header.
        skiprows: lines (of Excel: rows) above the header.
        sheet: the Excel sheet, by name or counted from 0; the first.
        missing: further texts or numbers for a missing value, of all columns or per column; used where types are found.
        rename: old name to new name.
        drop: columns to leave out: exact names, or globs such as ``visit_*``.
        keep: columns to read, and no others: exact names or globs. ``drop`` then takes from these.
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
        fedlit.errors.ConfigError: client 'north': 'seperator' says nothing of how a table is read...
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
    drop: list[str] | None = None
    keep: list[str] | None = None
    max_rows: int = 20_000_000
    max_bytes: int = 4 * 2**30
    query: str | None = None

    def __post_init__(self) -> None:
        if self.sep == r"\t":  # what 'single quotes' of YAML make of a tab
            object.__setattr__(self, "sep", "\t")
        _check("sep", self.sep, lambda own: len(own) == 1 and own.isascii(), "one ASCII character")
        _check("thousands", self.thousands, lambda own: len(own) == 1 and isinstance(own, str), "one character")
        _check("sep", self.sep, lambda own: own not in '"\r\n\ufeff', "a character that ends no line and is no quote")
        _check("decimal", self.decimal, lambda own: own in (".", ","), "'.' or ','")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ConfigError(f"thousands: expected another character than decimal, found {self.thousands!r} for both.")
        _check("encoding", self.encoding, _encodes, "the name of a text encoding such as utf-8, cp1252 or utf-16")
        for name in ("names", "drop", "keep"):
            _check(name, getattr(self, name), _texts, "a list of texts, each once (numbers and yes/no in quotes)")
        _check("skiprows", self.skiprows, lambda own: _count(own) and own >= 0, "a whole number of lines, 0 or more")
        _check("sheet", self.sheet, _sheet, "a sheet's name, or its place counted from 0")
        _check("missing", self.missing, _tokens, "a list of texts and numbers, or one for each column's name")
        _check("rename", self.rename, _renames, "old names to new names, each new name once")
        for name in ("max_rows", "max_bytes"):
            _check(name, getattr(self, name), lambda own: _count(own) and own >= 1, "a whole number, 1 or more")
        _check("query", self.query, lambda own: isinstance(own, str) and own.strip(), "a SELECT or a table's name")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], where: str) -> ReadOptions:
        """The options that a configuration states.

        Args:
            given: option to value.
            where: whose they are, the start of the message.

        Returns:
            The options.

        Raises:
            ConfigError: if there is no such option, or a value cannot be used.
        """
        known = [field.name for field in fields(cls)]
        for key in given:
            if key not in known:
                raise ConfigError(
                    f"{where}: {key!r} says nothing of how a table is read.{did_you_mean(str(key), known)} "
                    f"Options are {', '.join(known)}."
                )
        try:
            return cls(**given)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """The options that differ from their defaults, as plain data."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if field.default is MISSING or value != field.default}


def _check(name: str, value: Any, fits: Any, expected: str) -> None:
    try:
        if value is None and name not in ("skiprows", "max_rows", "max_bytes"):
            return
        good = bool(fits(value))
    except (TypeError, ValueError, AttributeError):
        good = False
    if not good:
        raise ConfigError(f"{name}: expected {expected}, found {value!r}.")


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _encodes(value: Any) -> bool:
    try:
        return isinstance(value, str) and "a".encode(value) is not None
    except LookupError:
        return False


def _texts(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return bool(value) and all(isinstance(own, str) and own.strip() for own in value) and len(set(value)) == len(value)


def _sheet(value: Any) -> bool:
    return (isinstance(value, str) and bool(value)) or (_count(value) and value >= 0)


def _tokens(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and (_scalar(own) or _tokens(own)) for key, own in value.items())
    return isinstance(value, list | tuple) and all(map(_scalar, value))


def _scalar(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _renames(value: Any) -> bool:
    return isinstance(value, Mapping) and _texts(list(value)) and _texts(list(value.values()))


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before anything is known of its types.

    Attributes:
        frame: the rows, numbered from 0; names of columns are text, each once. Of delimited text and Excel every cell
            is text as it was written, and missing only where the cell is empty. Parquet, Feather and SQL keep types.
        notes: what was found, left out or doubtful, for a person; each names the client.
        where: whose table it is and where it was read, the start of messages.
        hint: where else a column may be that is not there; "" for nowhere.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    where: str
    hint: str = ""


class Notes:
    """What is said of one table: notes, and errors that start alike.

    Args:
        where: whose table it is and where it is read.

    Example:
        >>> notes = Notes("client 'north', file north.csv")
        >>> notes.add("fields are separated by ';'.")
        >>> notes.texts
        ["client 'north', file north.csv: fields are separated by ';'."]
    """

    def __init__(self, where: str) -> None:
        self.where, self.hint = where, ""
        self.texts: list[str] = []

    def add(self, text: str, **fix: Any) -> None:
        """Keep a note; ``fix`` are the keys of reading that say the same."""
        self.texts.append(Note(text, "read" if fix else "", fix=fix, head=self.where))

    def error(self, text: str, line: int | None = None) -> DataError:
        """The error to raise, which names client, file and line."""
        return DataError(f"{self.where}{f', line {line:,}' if line else ''}: {text}")


def one_line(error: BaseException) -> str:
    """Return another library's message in one line of bounded length, without its full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return (text[:300] + " …" if len(text) > 300 else text) or type(error).__name__
