"""What one raw column holds, and how its cells become values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, is_numeric_dtype

from fedlit.data.note import Note
from fedlit.data.reading.options import MISSING, Conversions, Recoding
from fedlit.data.schema.cells import Cells, true_or_false
from fedlit.data.schema.convert import convert
from fedlit.data.schema.dates import PARTS, ZONE, expand, parse_dates
from fedlit.data.schema.numbers import Notation, plain_numbers
from fedlit.data.schema.recode import recode
from fedlit.errors import DataError
from fedlit.show.text import counted, shorten

Kind = Literal["numeric", "categorical", "coded", "boolean", "ordinal", "date", "left out"]
"""What a column holds. ``coded`` is numbers that name categories; an ordinal column and the parts
of a date become numeric."""

Typed = dict[str, Any]
"""Column → its cells (n,): float64, ``boolean``, or text as objects."""

TYPES: dict[Kind, str] = {
    "numeric": "numbers",
    "coded": "numbers",
    "boolean": "true/false",
    "categorical": "text",
}
"""Kind of a typed column → the type of its cells; an ordinal column and the parts of a date are
numeric."""

_CATEGORICAL_KINDS: dict[str, Kind] = {
    cells: kind for kind, cells in TYPES.items() if kind != "numeric"
}
"""Type of cells → the kind of a column of categories with such cells."""
_PLAIN = Notation()
_WORST = 0.5
"""The largest share of the cells with a value that may be unreadable; where more are, the column
holds something else."""
_WORDS = {"numeric": "numbers", "coded": "numbers", "boolean": "yes or no", "date": "dates"}


@dataclass(frozen=True)
class Column:
    """What a raw column holds.

    Attributes:
        kind: the kind of the column.
        why: the reason for leaving it out: ``identifier``, ``free text``, ``constant``, …
        missing: further words, in lower case, and numbers that stand for a missing value here.
        notation: the notation of its numbers.
        form: the format of its dates; None if they are stored as dates.
        parts: the parts of its dates that are informative.
        order: the values of an ordinal column, the lowest first.
        spelling: maps categories in lower case to their usual spelling, if a category is spelt in
            several ways or is a word that means missing elsewhere.
        values: maps values to others, before anything else is done with a cell.
        convert: maps units to the factor and offset of their numbers, before the rest is done.

    Example:
        >>> dose = Column("numeric", notation=Notation(unit="mg"))
        >>> dose.apply(pd.Series(["2 mg", "7"], name="dose"), "here")[0]["dose"]
        array([2., 7.])
    """

    kind: Kind
    why: str = ""
    missing: tuple[str | float, ...] = ()
    notation: Notation = _PLAIN
    form: str | None = None
    parts: tuple[str, ...] = PARTS
    order: tuple[str, ...] = ()
    spelling: Mapping[str, str] = field(default_factory=dict)
    values: Recoding = field(default_factory=dict)
    convert: Conversions = field(default_factory=dict)

    @classmethod
    def typed(cls, values: pd.Series, kind: Kind) -> Column:
        """Describe a column (n,) that a source returns with its type. The name of a category is a
        value, even if the word means "missing" elsewhere.

        Example:
            >>> Column.typed(pd.Series(["none", "mild"]), "categorical").spelling
            {'none': 'none'}
        """
        if kind != "categorical":
            return cls(kind)
        spelling = dict[str, str]()
        for category in map(str, values.dropna().unique()):
            if category.casefold() in MISSING:
                spelling[category.casefold()] = category
        return cls(kind, spelling=spelling)

    def apply(self, values: pd.Series, head: str) -> tuple[Typed, list[Note]]:
        """Convert cells (n,) to typed columns; return notes, without the column's name, on what was
        converted or could not be read.

        Raises:
            DataError: Most cells with a value cannot be read. The message begins with ``head``.
        """
        if self.kind == "left out":
            return {}, []
        if self.values:
            recoded = recode(values, self.values)
            typed, notes = replace(self, values={}).apply(recoded.values, head)
            return typed, [*recoded.unmapped_notes, *notes]
        if self.convert:
            marks = self.notation.decimal, self.notation.thousands
            converted, _ = convert(values, self.convert, self.missing, marks)
            return replace(self, convert={}).apply(converted, head)
        numbers = self.plain_numbers(values)
        if numbers is not None:
            return {str(values.name): numbers}, []
        cells, _ = Cells.of(values).without(self.missing, self.not_missing)
        return self.of_stored(values).take(cells, head)

    def plain_numbers(self, values: pd.Series) -> np.ndarray | None:
        """Convert cells (n,) to float64 if the column holds numbers and all cells are written as
        programs write them; otherwise return None. Any part of such cells is plain, too.
        """
        if not self.has_numbers or self.values or self.convert:
            return None
        texts = self.kind == "numeric" and self.notation == _PLAIN and not self.missing
        numbers = as_numbers(values, texts)
        return None if numbers is None else self.with_gaps(numbers)

    @property
    def has_numbers(self) -> bool:
        """Whether its cells are numbers, also those that name categories."""
        return self.kind in ("numeric", "coded")

    @property
    def not_missing(self) -> Mapping[str, str]:
        """The words, by lower case, that are values here, even if they mean missing elsewhere."""
        return {**self.spelling, **{level.casefold(): level for level in self.order}}

    def of_stored(self, values: pd.Series) -> Column:
        """Return the column for cells (n,): times that a file stores need no format."""
        return replace(self, form="ISO8601") if values.dtype.kind == "M" else self

    def with_gaps(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers (n,) with NaN for those that stand for a missing value, in whatever
        notation they were written: -9,0 or -9 mg.
        """
        codes = [code for code in self.missing if not isinstance(code, str)]
        if not codes:
            return numbers
        return np.where(np.isin(numbers, codes), np.nan, numbers)

    def times(self, values: pd.Series) -> pd.Series:
        """Parse dates (n,) as times; NaT if missing or not a date."""
        cells, _ = Cells.of(values).without(self.missing)
        parsed = self.of_stored(values).read(cells.texts)
        return pd.Series(cells.take(parsed, np.datetime64("NaT")), values.index, name=values.name)

    def take(self, cells: Cells, head: str) -> tuple[Typed, list[Note]]:
        """Convert cells that have a value to typed columns (see :meth:`apply`)."""
        parsed = self.read(cells.texts)
        notes = self.checked_notes(cells, parsed, head)
        return self.typed_cells(cells, parsed), notes

    def checked_notes(self, cells: Cells, parsed: np.ndarray, head: str) -> list[Note]:
        """Return notes on how each text was read.

        Raises:
            DataError: Most cells with a value cannot be read. The message begins with ``head``.
        """
        counts = cells.counts
        lost = pd.isna(parsed)
        unread = int(counts[lost].sum())
        if unread > _WORST * counts.sum():
            raise DataError(
                f"{head}: expected {self._expected}, found {counted(unread, 'other cell')} of "
                f"{counts.sum():,}, such as {cells.texts[int(lost.argmax())]!r}; correct them, "
                "leave them empty, or write them as those of training"
            )
        return self.notes_on(cells, parsed)

    def typed_cells(self, cells: Cells, parsed: np.ndarray) -> Typed:
        """Return the typed columns of cells, given what each text was read as."""
        if self.kind == "date":
            columns = expand(pd.Series(cells.take(parsed, np.datetime64("NaT"))), cells.name)
            used = [f"{cells.name}.{part}" for part in self.parts]
            return {name: columns[name] for name in used}
        if self.has_numbers:
            parsed = self.with_gaps(parsed)
        values: Any = cells.take(parsed)
        if self.kind == "boolean":
            values = pd.array(values, "boolean")
        return {cells.name: values}

    def read(self, texts: list[str]) -> np.ndarray:
        """Convert each text to a value; missing if it is none."""
        if self.kind == "boolean":
            return np.array([true_or_false(text) for text in texts], object)
        if self.kind == "categorical":
            return np.array([self._spelt(text) for text in texts], object)
        if self.kind == "ordinal":
            ranks = {level.casefold(): float(rank) for rank, level in enumerate(self.order)}
            return np.array([ranks.get(text.casefold(), np.nan) for text in texts], np.float64)
        if self.kind == "date":
            if self.form == "%Y%m%d":
                # Programs write whole numbers with a point if the column has gaps.
                texts = [text.removesuffix(".0") for text in texts]
            return parse_dates(texts, self.form).to_numpy()
        return self.notation.read(texts)

    def _spelt(self, text: str) -> str:
        return self.spelling.get(text.casefold(), text)

    @property
    def _expected(self) -> str:
        return _WORDS.get(self.kind, f"one of {', '.join(self.order)}")

    def notes_on(self, cells: Cells, parsed: np.ndarray) -> list[Note]:
        """Return notes on how each text was read: conversions, and texts that could not be read."""
        notes = list[Note]()
        lost = pd.isna(parsed)
        if self.kind == "numeric":
            notes = _conversions(cells, parsed, self.notation.unit)
        if self.kind == "date" and any(map(ZONE.search, cells.texts)):
            notes = [Note("times of other zones become those of Greenwich (UTC)", "converted")]
        if lost.any():
            unread = counted(int(cells.counts[lost].sum()), "cell")
            text = f"{unread} not read as {self._expected}, so missing: {cells.shown(lost)}"
            notes.append(Note(text, "unread"))
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the kind, and whatever differs from the default."""
        state = dict[str, Any]()
        for key, value in vars(self).items():
            if key == "kind" or value != _DEFAULTS[key]:
                state[key] = value
        if "notation" in state:
            state["notation"] = asdict(self.notation)
        return state

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Column:
        """Restore a column from plain data, which may come from a stranger.

        Raises:
            ValueError: The data describes no column. Any other error of Python means the same.
        """
        lists = {key: tuple(value) for key, value in state.items() if isinstance(value, list)}
        column = cls(**{**state, **lists, "notation": Notation(**state.get("notation", {}))})
        if column.kind not in get_args(Kind) or not set(column.parts) <= set(PARTS):
            raise ValueError("expected columns of known types")
        column.read(["1", "x"])  # It raises if a format, order or notation cannot be used.
        if not all(isinstance(target, str | None) for target in column.values.values()):
            raise ValueError("expected values that become text")
        conversions = {
            unit: (float(factor), float(offset))
            for unit, (factor, offset) in column.convert.items()
        }
        return replace(column, convert=conversions)


_DEFAULTS = dict(vars(Column("numeric")))


def type_of(values: pd.Series) -> str:
    """Return which of :data:`TYPES` typed cells (n,) have."""
    if infer_dtype(values, skipna=True) == "boolean":
        return "true/false"
    return "numbers" if is_numeric_dtype(values) else "text"


def kind_of(values: pd.Series, categorical: bool) -> Kind | None:
    """Return the kind of a typed column (n,), or None if it has no value, which says nothing about
    its kind.

    Example:
        >>> kind_of(pd.Series([0.5, None]), False), kind_of(pd.Series([True, None]), True), kind_of(pd.Series([]), True)
        ('numeric', 'boolean', None)
    """
    if values.isna().all():
        return None
    return _CATEGORICAL_KINDS[type_of(values)] if categorical else "numeric"


def usual_kind(categorical: bool) -> Kind:
    """Return the kind of a column without a value."""
    return "categorical" if categorical else "numeric"


def as_numbers(values: pd.Series, texts: bool) -> np.ndarray | None:
    """Return typed numbers or durations (n,) as float64, durations in seconds. With ``texts``, also
    convert texts if all are plain numbers. Return None otherwise, also if whole numbers would
    coincide as float64.
    """
    if values.dtype.kind == "m":
        return np.asarray(values.dt.total_seconds(), np.float64)
    if values.dtype.kind in "iuf":
        numbers = values.to_numpy(np.float64, na_value=np.nan)
        has_large = values.dtype.kind in "iu" and (abs(numbers) >= 2**53).any()
        if has_large and len(np.unique(numbers[~np.isnan(numbers)])) < values.nunique():
            return None
        return numbers
    return plain_numbers(values) if texts else None


def _conversions(cells: Cells, numbers: np.ndarray, unit: str) -> list[Note]:
    """Count the numbers that are not written plainly, with an example of each notation, and the
    numbers that lack the unit of the others.
    """
    written = pd.Series(cells.texts, dtype=object)
    plain = pd.to_numeric(written, errors="coerce").to_numpy(np.float64)
    notes = list[Note]()
    read = ~np.isnan(numbers)
    converted = read & (numbers != plain)
    if converted.any():
        first = dict[str, str]()  # what stands around the digits → the first such number
        for position in np.flatnonzero(converted)[::-1]:
            text = cells.texts[position]
            first[re.sub(r"[\d. ]", "", text)] = f"{text!r} as {numbers[position]:.15g}"
        count = counted(int(cells.counts[converted].sum()), "cell")
        notes.append(Note(f"{count} read as numbers: {shorten([*first.values()])}", "converted"))
    bare = read & np.array([bool(unit) and unit not in text for text in cells.texts], bool)
    if bare.any():
        count = counted(int(cells.counts[bare].sum()), "cell")
        text = f"{count} without {unit!r}, read as if with it"
        if unit in ("k", "K", "M"):
            text += f". If {unit!r} means a thousand or a million, write the digits"
        notes.append(Note(text, "converted"))
    return notes
