"""The raw columns of a table: what each holds, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from fedlit.data.note import Note, prefixed
from fedlit.data.reading.options import DEFAULTS, Conversions, Declared, ReadOptions, Recoding
from fedlit.data.schema.column import Column, Typed
from fedlit.data.schema.find import Found, declared_column, find
from fedlit.errors import DataError, Told, did_you_mean, expect
from fedlit.show.text import shorten

_MANY_COLUMNS = 100
_OF_ONE_FILE = ("query", "footer")
"""Options that say nothing about the file of new rows."""
_CATEGORIES = ("categorical", "coded", "boolean")


@dataclass(frozen=True)
class Schema:
    """What was detected in a table's raw columns, and how new rows are read. It is plain data and
    holds no row.

    Attributes:
        columns: maps each name to the description of the column, in the order of the table.
        reading: how the file was read, for :class:`fedlit.data.reading.ReadOptions`.

    Example:
        >>> raw = pd.DataFrame({"dose": ["1,5", "2,5"], "sex": ["m", "f"], "site": ["Bern", "Bern"]})
        >>> schema, typed, notes = Schema.find(raw)
        >>> {name: own.kind for name, own in schema.columns.items()}
        {'dose': 'numeric', 'sex': 'categorical', 'site': 'left out'}
        >>> typed.to_dict("list"), typed.equals(schema.apply(raw, "client 'bern'")[0])
        ({'dose': [1.5, 2.5], 'sex': ['m', 'f']}, True)
        >>> Schema.of(schema.to_dict()) == schema
        True
    """

    columns: Mapping[str, Column]
    reading: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def find(
        cls,
        raw: pd.DataFrame,
        types: Mapping[str, Declared] | None = None,
        options: ReadOptions = DEFAULTS,
        head: str = "",
        not_missing: Mapping[str, Mapping[str, str]] | None = None,
    ) -> tuple[Schema, pd.DataFrame, list[Note]]:
        """Detect what all columns hold.

        Args:
            raw: the rows, without the target.
            types: the declared types of some columns.
            options: how the file is written; kept for new rows.
            where: the beginning of messages.
            kept: column → words, by lower case, that mean missing elsewhere, but are values there.

        Returns:
            The schema; the typed rows, as :meth:`apply` gives them; and notes for a person that
            name their column.

        Raises:
            ConfigError: a type or a column that is not known.
            DataError: a column does not hold what is declared.
        """
        declared = dict(types or {})
        for key, names in (("types", declared), ("missing", options.missing_by_column)):
            for name in names:
                expect(
                    name in raw or name == "*", key, "one of the columns", name, known=map(str, raw)
                )
        detected = dict[str, Found]()
        declarations = dict[str, Column | None]()
        not_missing_in = dict(not_missing or {})
        for column, cells in raw.items():
            name = str(column)
            declarations[name] = (
                declared_column(name, declared[name], options.missing_in(name))
                if name in declared
                else None
            )
            detected[name] = find(
                cells, options, declarations[name], f"{head}, column {name!r}", not_missing_in.get(name)
            )
        if any(own.column.notation.decimal == "," for own in detected.values()):
            # in a file with decimal commas, a point separates thousands
            for name, own in detected.items():
                if any(note.kind == "thousands" for note in own.notes):
                    detected[name] = find(
                        raw[name],
                        replace(options, decimal=",", thousands="."),
                        declarations[name],
                        kept=not_missing_in.get(name),
                    )
        collisions = _without_collisions(detected)
        notes = [*_of_all(raw, detected), *collisions]
        notes += [
            prefixed(name, note, column=name) for name, own in detected.items() for note in own.notes
        ]
        columns = {name: own.column for name, own in detected.items()}
        typed: Typed = {key: values for own in detected.values() for key, values in own.typed.items()}
        reading = {
            key: value for key, value in options.to_dict().items() if key not in _OF_ONE_FILE
        }
        return cls(columns, reading), _frame(typed, raw.index), notes

    @classmethod
    def typed(
        cls, frame: pd.DataFrame, categorical: Iterable[str], rows: Any = slice(None)
    ) -> Schema:
        """Describe columns that a source returns with their types.

        Args:
            frame: the rows.
            categorical: the names of the columns that hold categories.
            rows: the positions of the rows to look at; all rows by default.

        Example:
            >>> Schema.typed(pd.DataFrame({"age": [40.0], "sex": ["m"]}), ["sex"]).categorical(["age", "sex"])
            ('sex',)
        """
        coded = set(categorical)
        return cls(
            {str(name): Column.typed(frame[name].iloc[rows], str(name) in coded) for name in frame}
        )

    @property
    def keys(self) -> list[str]:
        """The columns that identify rows."""
        return [name for name, column in self.columns.items() if column.why == "identifier"]

    @property
    def left_out(self) -> dict[str, str]:
        """Maps each column that is not used to the reason."""
        return {name: column.why for name, column in self.columns.items() if column.kind == "left out"}

    @property
    def used(self) -> list[str]:
        """The columns that new rows must have."""
        return [name for name, column in self.columns.items() if column.kind != "left out"]

    def apply(self, raw: pd.DataFrame, head: str) -> tuple[pd.DataFrame, list[Note]]:
        """Convert raw rows to typed ones: float64, ``boolean``, or objects; NaN if missing.

        Args:
            raw: the raw rows, with all columns that are used, in any order.
            where: the beginning of messages.

        Returns:
            The typed rows, and notes that name their column.

        Raises:
            DataError: a column is not there, or holds something else.
        """
        typed = Typed()
        notes = list[Note]()
        check_columns(self.used, raw, head)
        for name in self.used:
            converted, column_notes = self.columns[name].apply(raw[name], f"{head}, column {name!r}")
            typed |= converted
            notes += [prefixed(name, note, column=name) for note in column_notes]
        return _frame(typed, raw.index), notes

    def with_values(
        self, values: Mapping[str, Recoding], convert: Mapping[str, Conversions]
    ) -> Schema:
        """Return the schema of rows in which these values have yet to be mapped, and these units to
        be converted.
        """
        columns = {
            name: replace(column, values=values.get(name, {}), convert=convert.get(name, {}))
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns)

    def categorical(self, typed: Iterable[Any]) -> tuple[str, ...]:
        """Return which typed columns hold categories."""
        return tuple(
            name
            for name in map(str, typed)
            if name in self.columns and self.columns[name].kind in _CATEGORIES
        )

    def only(self, typed: Iterable[str]) -> Schema:
        """Keep the columns that become some of these typed ones, and those that identify rows."""
        kept_names = {*typed}
        columns = dict[str, Column]()
        for name, column in self.columns.items():
            parts = tuple(part for part in column.parts if f"{name}.{part}" in kept_names)
            if column.kind == "left out" or (bool(parts) if column.kind == "date" else name in kept_names):
                columns[name] = replace(column, parts=parts) if column.kind == "date" else column
        return replace(self, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON or ``torch.save``."""
        return {
            "columns": {name: column.to_dict() for name, column in self.columns.items()},
            "reading": dict(self.reading),
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Schema:
        """Restore a schema from plain data.

        Raises:
            ValueError: a column is none that a table can have.
        """
        return cls(
            {name: Column.of(column) for name, column in state["columns"].items()}, dict(state["reading"])
        )


def check_columns(names: Iterable[str], frame: pd.DataFrame, head: str) -> None:
    """Refuse rows that lack columns.

    Raises:
        DataError: naming them; begins with ``where``.
    """
    lacking = [name for name in names if name not in frame]
    present = map(str, frame)
    if lacking:
        more = f"; nor are there {shorten(lacking[1:])}" * (len(lacking) > 1)
        told = Told(f"none of this name{more}")
        advice = "add it (empty cells are allowed)"
        advice += (hint := did_you_mean(lacking[0], present)) and f".{hint}"
        expect(False, head, f"the column {lacking[0]!r}", told, advice, DataError)


def _frame(typed: Typed, index: pd.Index) -> pd.DataFrame:
    """Make a data frame of typed columns. A long one shares their memory; a wide one is copied,
    because reaching single columns would be slow.
    """
    return pd.DataFrame(typed, index=index, copy=len(typed) > _MANY_COLUMNS)


def _without_collisions(detected: dict[str, Found]) -> list[Note]:
    """Take away parts of dates that are called as another column is, and ask which of the two is
    meant.
    """
    notes = list[Note]()
    for name, date in detected.items():
        parts = (
            [part for part in date.column.parts if f"{name}.{part}" in detected]
            if date.column.kind == "date"
            else []
        )
        if not parts:
            continue
        free = tuple(part for part in date.column.parts if part not in parts)
        typed = {f"{name}.{part}": date.typed[f"{name}.{part}"] for part in free}
        detected[name] = replace(date, column=replace(date.column, parts=free), typed=typed)
        for part in parts:
            column = f"{name}.{part}"
            text = (
                f"is a column, so the {part} of the date {name!r} is not used. To use both, "
                "rename the column"
            )
            either: list[dict[str, Any]] = [
                {"rename": {column: f"{name}_{part}"}},
                {"drop": [column]},
            ]
            notes.append(
                prefixed(column, Note(text, "collision", alternatives=either), column=column)
            )
    return notes


def _of_all(raw: pd.DataFrame, detected: Mapping[str, Found]) -> list[Note]:
    """Return notes on what is odd about columns seen together."""
    notes = list[Note]()
    gaps = dict[str, list[str]]()
    for name, one in detected.items():
        for word, count in one.gaps.items():
            gaps.setdefault(word, []).append(f"{name} ({count:,})")
    if units := _second_header(raw, detected):
        notes.append(
            Note(
                f"the first row looks like a second header ({units}). Remove it from the file",
                "header",
            )
        )
    for word, columns in gaps.items():
        text = f"{word!r} counts as missing in {shorten(columns)}"
        categorical = [
            name
            for name, one in detected.items()
            if word in one.gaps and one.column.kind == "categorical"
        ]
        if categorical and word.isalpha():
            text += f"; to keep it, write values: {{{categorical[0]}: {{{word!r}: {word!r}}}}}"
        notes.append(Note(text, "gaps"))
    if unique := [name for name, one in detected.items() if one.unique]:
        advice = f"What names rows is left out by types: {{{unique[0]}: identifier}}"
        notes.append(
            Note(f"a different value in each row, and kept: {shorten(unique)}. {advice}", "unique")
        )
    return notes


def _second_header(raw: pd.DataFrame, detected: Mapping[str, Found]) -> str:
    """Describe the first row's cells if they look like units below the names: words where all other
    rows have numbers.
    """
    first = list[str]()
    for name, column in detected.items():
        if (
            column.column.kind == "numeric"
            and len(raw) > 1
            and isinstance(text := raw[name].iloc[0], str)
        ):
            if text.strip().casefold() not in column.column.missing or not text.strip()[:1].isalpha():
                return ""
            first.append(text.strip())
    return shorten(first)
