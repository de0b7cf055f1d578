"""A table's raw columns: of what type each is, and what they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.note import behind
from fedlit.data.schema.column import ColumnType
from fedlit.data.schema.declared import Declared
from fedlit.data.schema.find import Habits, declared_type, find_type
from fedlit.data.schema.odd import grouped_by_points, second_header
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.show.text import shorten

__all__ = ["Schema", "words_by_column"]


@dataclass(frozen=True)
class Schema:
    """What was found in a table's raw columns, and how new rows of it are read: plain data, no row.

    Attributes:
        columns: name → type, in the order of the table.
        reading: how its file was read, for :class:`fedlit.data.reading.ReadOptions`.

    Example:
        >>> raw = pd.DataFrame({"dose": ["1,5", "2,5"], "sex": ["m", "f"], "site": ["Bern", "Bern"]})
        >>> schema, notes = Schema.find(raw)
        >>> {name: own.kind for name, own in schema.columns.items()}
        {'dose': 'numeric', 'sex': 'categorical', 'site': 'left out'}
        >>> schema.apply(raw, "client 'bern'")[0].to_dict("list")
        {'dose': [1.5, 2.5], 'sex': ['m', 'f']}
        >>> Schema.of(schema.to_dict()) == schema
        True
    """

    columns: Mapping[str, ColumnType]
    reading: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def find(
        cls,
        raw: pd.DataFrame,
        types: Mapping[str, Declared] | None = None,
        missing: list[Any] | Mapping[str, list[Any]] | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        reading: Mapping[str, Any] | None = None,
        parsed: dict[str, np.ndarray] | None = None,
    ) -> tuple[Schema, list[str]]:
        """Look at all columns.

        Args:
            raw: the rows, without the target.
            types: what is said of some columns.
            missing: further words or numbers that mean a missing value: everywhere, or by column (``*`` for all).
            decimal: the decimal mark, where it is known.
            thousands: what groups digits, where it is known.
            reading: kept for new rows.
            parsed: receives the numbers (n,) that had to be parsed to be found, for :meth:`apply` to these rows.

        Returns:
            The schema, and notes for a person that name their column.

        Raises:
            ConfigError: a type or a column that is not known.
        """
        declared, further = dict(types or {}), words_by_column(missing)
        for key, names in (("types", declared), ("missing", further)):
            for name in names:
                if name not in raw and name != "*":
                    raise ConfigError(
                        f"{key}: expected one of the columns, found {name!r}." + did_you_mean(name, map(str, raw))
                    )
        columns, notes, gaps = dict[str, ColumnType](), list[str](), dict[str, list[str]]()
        unique = list[str]()
        for column, cells in raw.items():
            name = str(column)
            words = (*further.get("*", ()), *further.get(name, ()))
            habits = Habits(decimal, thousands, words)
            said = declared_type(name, declared[name], habits) if name in declared else None
            found = find_type(cells, habits, said)
            columns[name] = found.type
            if parsed is not None and found.numbers is not None:
                parsed[name] = found.numbers
            notes += [behind(name, note, column=name) for note in found.notes]
            unique += [name] * found.unique
            for word, count in found.gaps.items():
                gaps.setdefault(word, []).append(f"{name} ({count:,})")
        if unique:
            notes.append(
                f"another value in each row, and kept: {shorten(unique)}. What names rows is left out by types: "
                f"{{{unique[0]}: identifier}}"
            )
        if decimal is None and thousands is None and (points := grouped_by_points(raw, columns)):
            if any(own.notation.decimal == "," for own in columns.values()):
                also = {name: [*further.get("*", ()), *further.get(name, ())] for name in points}
                again, more = cls.find(raw[list(points)], dict.fromkeys(points, "numeric"), also, ",", ".")
                columns |= again.columns
                if parsed is not None:
                    for name in points:
                        parsed.pop(name, None)
                notes += [note for note in more if note not in notes]
            else:
                notes += [
                    f"{name}: {text!r} is read as {float(text):g}, beside whole numbers such as {other!r}. If it is a "
                    "thousand, write thousands: '.'"
                    for name, (text, other) in points.items()
                ]
        if units := second_header(raw, columns):
            notes.insert(0, f"the first row looks like a second header ({shorten(units)}). Remove it from the file")
        first = [f"{word!r} counts as missing in {shorten(where)}" for word, where in gaps.items()]
        return cls(columns, dict(reading or {})), first + notes

    @property
    def keys(self) -> list[str]:
        """Columns that name rows."""
        return [name for name, own in self.columns.items() if own.why == "identifier"]

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that are not used → why."""
        return {name: own.why for name, own in self.columns.items() if own.kind == "left out"}

    @property
    def used(self) -> list[str]:
        """Columns that new rows must have."""
        return [name for name, own in self.columns.items() if own.kind != "left out"]

    def apply(
        self, raw: pd.DataFrame, where: str, parsed: Mapping[str, np.ndarray] | None = None
    ) -> tuple[pd.DataFrame, list[str]]:
        """Raw rows as typed ones: float64, ``boolean``, or objects; NaN where missing.

        Args:
            raw: with all used columns, in any order.
            where: whose rows, the start of messages.
            parsed: numbers of these rows that are known already.

        Returns:
            The typed rows, and notes that name their column.

        Raises:
            DataError: a column is not there, or holds something else.
        """
        made, notes = dict[str, pd.Series | np.ndarray](), list[str]()
        for name in self.used:
            if parsed and name in parsed:
                made[name] = parsed[name]
                continue
            if name not in raw:
                others = [own for own in self.used if own not in raw and own != name]
                also = f" Nor are there {shorten(others)}." if others else ""
                raise DataError(
                    f"{where}: expected the column {name!r}, found none of this name; add it (empty cells are "
                    f"allowed).{did_you_mean(name, map(str, raw))}{also}"
                )
            own = self.columns[name].apply(raw[name], f"{where}, column {name!r}")
            made |= own.columns
            notes += [behind(name, note, column=name) for note in own.notes]
        return pd.DataFrame(made, index=raw.index, copy=False), notes

    def categorical(self, typed: Iterable[Any]) -> tuple[str, ...]:
        """Which typed columns hold categories."""
        kinds = ("categorical", "boolean")
        return tuple(name for name in map(str, typed) if name in self.columns and self.columns[name].kind in kinds)

    def check(self) -> None:
        """Refuse what no table gave: a state may come from a stranger.

        Raises:
            ValueError: a type is none.
        """
        for name, own in self.columns.items():
            own.check(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: JSON, or ``torch.save``."""
        return {
            "columns": {name: own.to_dict() for name, own in self.columns.items()},
            "reading": dict(self.reading),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Schema:
        """From plain data."""
        return cls({name: ColumnType.of(own) for name, own in state["columns"].items()}, dict(state["reading"]))


def words_by_column(missing: list[Any] | Mapping[str, list[Any]] | None) -> dict[str, tuple[str | float, ...]]:
    """What a configuration says of ``missing``: column, or ``*`` for all → words in lower case, and numbers.

    Raises:
        ConfigError: no list of them.

    Example:
        >>> words_by_column({"weight": [-999, "Unknown"]})
        {'weight': (-999.0, 'unknown')}
    """
    given = missing if isinstance(missing, Mapping) else {"*": missing or []}
    made = {}
    for column, words in given.items():
        if not isinstance(words, list):
            raise ConfigError(f"missing: {column}: expected a list of words or numbers, found {words!r}")
        made[str(column)] = tuple(_word(word) for word in words)
    return made


def _word(word: Any) -> str | float:
    if isinstance(word, int | float) and not isinstance(word, bool):
        return float(word)
    return str(word).casefold().strip()
