"""The raw columns of a table: what each holds, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.note import Note, prefixed
from fedlit.data.reading.options import DEFAULTS, Conversions, Declared, ReadOptions, Recoding
from fedlit.data.schema.column import Column, Kind, Typed
from fedlit.data.schema.detection import Detection
from fedlit.data.schema.find import declared_column, find
from fedlit.errors import DataError, did_you_mean, expect
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
        >>> {name: column.kind for name, column in schema.columns.items()}
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
            raw: The rows, without the target.
            types: The declared types of some columns.
            options: How the file is written; kept for new rows.
            head: The text with which messages begin.
            not_missing: Column → words, by lower case, that mean missing elsewhere, but are values
                there.

        Returns:
            The schema; the typed rows, as :meth:`apply` returns them; and notes for a person that
            name their column.

        Raises:
            ConfigError: A type or a column is not known.
            DataError: A column does not hold what is declared.
        """
        types = types or {}
        for key, names in (("types", types), ("missing", options.missing_by_column)):
            for name in names:
                is_known = name in raw or name == "*"
                expect(is_known, key, "one of the columns", name, known=map(str, raw))
        values_of = not_missing or {}

        def detect(name: str, file_options: ReadOptions) -> Detection:
            declared = None
            if name in types:
                declared = declared_column(name, types[name], options.missing_in(name))
            start = f"{head}, column {name!r}"
            return find(raw[name], file_options, declared, start, values_of.get(name))

        detected = {name: detect(name, options) for name in map(str, raw)}
        if any(detection.column.notation.decimal == "," for detection in detected.values()):
            # Another column shows that a point separates thousands in this file, so the columns
            # that left this open are read so.
            commas = replace(options, decimal=",", thousands=".")
            for name, detection in detected.items():
                if any(note.kind == "thousands" for note in detection.notes):
                    detected[name] = detect(name, commas)
        collisions = _without_collisions(detected)
        notes = [*_of_all(raw, detected), *collisions]
        typed = Typed()
        for name, detection in detected.items():
            notes += [prefixed(name, note, column=name) for note in detection.notes]
            typed |= detection.typed
        columns = {name: detection.column for name, detection in detected.items()}
        reading = {
            key: value for key, value in options.to_dict().items() if key not in _OF_ONE_FILE
        }
        return cls(columns, reading), _frame(typed, raw.index), notes

    @classmethod
    def typed(
        cls, frame: pd.DataFrame, kinds: Mapping[str, Kind], rows: np.ndarray | None = None
    ) -> Schema:
        """Describe columns that a source returns with their types.

        Args:
            frame: the rows.
            kinds: the kind of each column.
            rows: the positions of the rows to look at; all rows if None.

        Example:
            >>> kinds = {"age": "numeric", "sex": "categorical"}
            >>> schema = Schema.typed(pd.DataFrame({"age": [40.0], "sex": ["m"]}), kinds)
            >>> schema.categorical(["age", "sex"])
            ('sex',)
        """
        positions = np.arange(len(frame)) if rows is None else rows
        return cls(
            {
                str(name): Column.typed(frame[name].iloc[positions], kinds[str(name)])
                for name in frame
            }
        )

    @property
    def keys(self) -> list[str]:
        """The columns that identify rows."""
        return [name for name, column in self.columns.items() if column.why == "identifier"]

    @property
    def left_out(self) -> dict[str, str]:
        """Maps each column that is not used to the reason."""
        return {
            name: column.why for name, column in self.columns.items() if column.kind == "left out"
        }

    @property
    def used(self) -> list[str]:
        """The columns that new rows must have."""
        return [name for name, column in self.columns.items() if column.kind != "left out"]

    def apply(self, raw: pd.DataFrame, head: str) -> tuple[pd.DataFrame, list[Note]]:
        """Convert raw rows to typed ones: float64, ``boolean``, or objects; NaN if missing.

        Args:
            raw: The raw rows, with all columns that are used, in any order.
            head: The text with which messages begin.

        Returns:
            The typed rows, and notes that name their column.

        Raises:
            DataError: A column is absent, or holds something else.
        """
        typed = Typed()
        notes = list[Note]()
        check_columns(self.used, raw, head)
        for name in self.used:
            converted, column_notes = self.columns[name].apply(
                raw[name], f"{head}, column {name!r}"
            )
            typed |= converted
            notes += [prefixed(name, note, column=name) for note in column_notes]
        return _frame(typed, raw.index), notes

    def with_values(
        self, values: Mapping[str, Recoding], convert: Mapping[str, Conversions]
    ) -> Schema:
        """Return the schema of rows in which these values have yet to be mapped, and these units to
        be converted.
        """
        columns = dict(self.columns)
        for name in {*values, *convert}.intersection(columns):
            columns[name] = replace(
                columns[name], values=values.get(name, {}), convert=convert.get(name, {})
            )
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
        used = {*typed}
        columns = dict[str, Column]()
        for name, column in self.columns.items():
            if column.kind == "date":
                parts = tuple(part for part in column.parts if f"{name}.{part}" in used)
                if parts:
                    columns[name] = replace(column, parts=parts)
            elif column.kind == "left out" or name in used:
                columns[name] = column
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
            ValueError: The data describes a column that no table can have.
        """
        return cls(
            {name: Column.of(column) for name, column in state["columns"].items()},
            dict(state["reading"]),
        )


def check_columns(names: Iterable[str], frame: pd.DataFrame, head: str) -> None:
    """Refuse rows that lack columns.

    Raises:
        DataError: Rows lack columns. The message names them, and begins with ``head``.
    """
    lacking = [name for name in names if name not in frame]
    if not lacking:
        return
    message = f"{head}: expected the column {lacking[0]!r}, found none of this name"
    if len(lacking) > 1:
        message += f"; nor are there {shorten(lacking[1:])}"
    message += "; add it (empty cells are allowed)"
    hint = did_you_mean(lacking[0], map(str, frame))
    if hint:
        message += f".{hint}"
    raise DataError(message)


def _frame(typed: Typed, index: pd.Index) -> pd.DataFrame:
    """Make a data frame of typed columns. A long one shares their memory; a wide one is copied,
    because reaching single columns would be slow.
    """
    return pd.DataFrame(typed, index=index, copy=len(typed) > _MANY_COLUMNS)


def _without_collisions(detected: dict[str, Detection]) -> list[Note]:
    """Take away parts of dates that are called as another column is, and ask which of the two is
    meant.
    """
    notes = list[Note]()
    for name, date in detected.items():
        if date.column.kind != "date":
            continue
        parts = [part for part in date.column.parts if f"{name}.{part}" in detected]
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
            note = Note(text, "collision", alternatives=either)
            notes.append(prefixed(column, note, column=column))
    return notes


def _of_all(raw: pd.DataFrame, detected: Mapping[str, Detection]) -> list[Note]:
    """Return notes on what is odd about columns seen together."""
    notes = list[Note]()
    gaps = dict[str, list[str]]()
    categorical = dict[str, str]()  # missing word → the first column of categories that has it
    for name, detection in detected.items():
        for gap, count in detection.gaps.items():
            gaps.setdefault(gap, []).append(f"{name} ({count:,})")
            if detection.column.kind == "categorical":
                categorical.setdefault(gap, name)
    units = _second_header(raw, detected)
    if units:
        text = f"the first row looks like a second header ({units}). Remove it from the file"
        notes.append(Note(text, "header"))
    for gap, columns in gaps.items():
        text = f"{gap!r} counts as missing in {shorten(columns)}"
        if gap in categorical and gap.isalpha():
            text += f"; to keep it, write values: {{{categorical[gap]}: {{{gap!r}: {gap!r}}}}}"
        notes.append(Note(text, "gaps"))
    unique = [name for name, detection in detected.items() if detection.unique]
    if unique:
        text = (
            f"a different value in each row, and kept: {shorten(unique)}. What names rows is left "
            f"out by types: {{{unique[0]}: identifier}}"
        )
        notes.append(Note(text, "unique"))
    return notes


def _second_header(raw: pd.DataFrame, detected: Mapping[str, Detection]) -> str:
    """Describe the first row's cells if they look like units below the names: words where all other
    rows have numbers.
    """
    units = list[str]()
    for name, detection in detected.items():
        first = raw[name].iloc[0] if len(raw) > 1 else None
        if detection.column.kind != "numeric" or not isinstance(first, str):
            continue
        unit = first.strip()
        if unit.casefold() not in detection.column.missing or not unit[:1].isalpha():
            return ""
        units.append(unit)
    return shorten(units)
