"""What one raw column holds, and how its cells become values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, is_numeric_dtype

from fedlit.data.note import Note
from fedlit.data.reading.options import MISSING
from fedlit.data.schema.cells import Cells, is_text, plain_types, true_or_false
from fedlit.data.schema.dates import OF_ZONES, PARTS, ZONE, expand, find_format, parse_dates
from fedlit.data.schema.numbers import Notation, find_notation, plain_numbers
from fedlit.errors import DataError
from fedlit.show.text import shorten

Kind = Literal["numeric", "categorical", "coded", "boolean", "ordinal", "date", "left out"]
"""What a column holds. ``coded`` is numbers that name categories; an ordinal column and the parts of a date become
numeric."""

Typed = dict[str, Any]
"""Column → its cells (n,): float64, ``boolean``, or text as objects."""

TYPES: dict[Kind, str] = {"numeric": "numbers", "coded": "numbers", "boolean": "true/false", "categorical": "text"}
"""Kind of a typed column → the type of its cells; an ordinal column and the parts of a date are numeric."""

_OF_TYPE: dict[str, Kind] = {own: kind for kind, own in TYPES.items() if kind != "numeric"}  # of categories
_PLAIN = Notation()
_WORST = 0.5  # of the cells that have a value; where more cannot be read, the column is another one
_WAYS = {"": "blanks or points", ",": "a comma"}
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
        spelling: maps categories in lower case to their usual spelling, if a category is spelt in several ways or is a
            word that means missing elsewhere.

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

    @classmethod
    def typed(cls, values: pd.Series, categorical: bool) -> Column:
        """Describe a column (n,) that a source returns with its type. The name of a category is a value, even if the
        word means "missing" elsewhere.

        Example:
            >>> Column.typed(pd.Series(["none", "mild"]), True).spelling
            {'none': 'none'}
        """
        kind = kind_of(values, categorical) or ("categorical" if categorical else "numeric")
        different = values.dropna().unique() if kind == "categorical" else ()
        words = {str(own).casefold(): str(own) for own in different if str(own).casefold() in MISSING}
        return cls(kind, spelling=words)

    def apply(self, values: pd.Series, where: str) -> tuple[Typed, list[Note]]:
        """Convert cells (n,) to typed columns; return notes, without the column's name, on what was converted or could
        not be read.

        Raises:
            DataError: most cells with a value cannot be read; begins with ``where``.
        """
        if self.kind == "left out":
            return {}, []
        values = plain_types(values)
        if self.kind == "date" and values.dtype.kind == "M":
            return self.dates(self.times(values)), []
        if self.kind == "date" and values.dtype.kind in "iufb" and values.notna().any():
            raise DataError(f"{where}: expected dates, found numbers such as {values.iloc[0]}. Write them as before")
        plain = self.kind == "numeric" and self.notation == _PLAIN and not self.missing
        numbers = as_numbers(values, plain) if self.kind in ("numeric", "coded") else None
        if numbers is not None:
            return {str(values.name): self.with_gaps(numbers)}, []
        return self.take(Cells.of(values).without(self.missing, self.spelling)[0], where)

    def with_gaps(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers (n,) with NaN for those that stand for a missing value, whether written -9,0 or -9 mg."""
        gone = [own for own in self.missing if not isinstance(own, str)]
        return np.where(np.isin(numbers, gone), np.nan, numbers) if gone else numbers

    def dates(self, times: pd.Series, name: str = "") -> Typed:
        """Return the informative parts of times (n,), one column each."""
        name = name or str(times.name)
        columns = expand(times.rename(name))
        return {key: columns[key].to_numpy() for part in self.parts if (key := f"{name}.{part}")}

    def times(self, values: pd.Series) -> pd.Series:
        """Parse dates (n,) as times; NaT if missing or not a date."""
        values = plain_types(values)
        if not is_text(values):
            times = parse_dates(values, self.form)
            words = pd.Series([own for own in self.missing if isinstance(own, str)], dtype=object)
            return times.mask(times.isin(parse_dates(words, "ISO8601").dropna()))
        cells, _ = Cells.of(values).without(self.missing)
        return pd.Series(cells.take(self.read(cells.texts), np.datetime64("NaT")), values.index, name=values.name)

    def take(self, cells: Cells, where: str) -> tuple[Typed, list[Note]]:
        """Convert cells that have a value to typed columns (see :meth:`apply`)."""
        made, held = self.read(cells.texts), cells.counts
        lost = pd.isna(made)
        if held[lost].sum() > _WORST * held.sum():
            expected = _WORDS.get(self.kind, f"one of {', '.join(self.order)}")
            raise DataError(
                f"{where}: expected {expected}, found {held[lost].sum():,} other cells of {held.sum():,}, such as "
                f"{cells.texts[int(lost.argmax())]!r}. Correct them or leave them empty; in new rows, write them as in "
                "the rows of training"
            )
        notes = self.notes_on(cells, made)
        if self.kind in ("numeric", "coded"):
            made = self.with_gaps(made)
        if self.kind == "date":
            return self.dates(pd.Series(cells.take(np.asarray(made), np.datetime64("NaT"))), cells.name), notes
        values = cells.take(made)
        return {cells.name: pd.array(values, "boolean") if self.kind == "boolean" else values}, notes

    def read(self, texts: list[str]) -> np.ndarray:
        """Convert each text to a value; missing if it is none."""
        words: dict[str, Callable[[str], Any]] = {
            "boolean": true_or_false,
            "categorical": lambda text: self.spelling.get(text.casefold(), text),
        }
        if self.kind in words:
            return np.array([*map(words[self.kind], texts)], object)
        if self.kind == "ordinal":
            rank = {text.casefold(): float(place) for place, text in enumerate(self.order)}
            return np.array([rank.get(text.casefold(), np.nan) for text in texts], np.float64)
        if self.kind == "date":
            return parse_dates(pd.Series(texts, dtype=object), self.form).to_numpy()
        return self.notation.read(texts)

    def fitted(
        self, cells: Cells, decimal: str | None = None, thousands: str | None = None, wanted: float = 0.95
    ) -> tuple[Column, list[Note]]:
        """Adapt the column to how these cells are written: the marks and unit of numbers, the format of dates. Also
        return notes on what was guessed.

        Args:
            cells: the cells that have a value.
            decimal: the decimal mark, if it is known.
            thousands: the mark between groups of digits, if it is known.
            wanted: the share of dates that must fit a format; otherwise no format is found.
        """
        own, guess = self, ""
        if self.kind == "numeric":
            notation, guess = find_notation(cells.texts, decimal, thousands)
            own = replace(self, notation=replace(notation, unit=self.notation.unit or notation.unit))
        elif self.kind == "date" and self.form is None:
            form, guess = find_format(cells.texts, wanted)
            own = replace(self, form=form)
        return own, [Note(guess.replace("…", cells.name), "guess")] * bool(guess)

    def notes_on(self, cells: Cells, made: np.ndarray) -> list[Note]:
        """Return notes on how each text was read: conversions, and texts that could not be read."""
        notes, lost, counts = list[Note](), pd.isna(made), cells.counts
        if self.kind == "numeric":
            notes = _conversions(cells, made, self.notation.unit)
        if self.kind == "date" and any(map(ZONE.search, cells.texts)):
            notes.append(OF_ZONES)
        if lost.any():
            shown = [f"{text!r} ({n:,})" for text, n, gone in zip(cells.texts, counts, lost, strict=True) if gone]
            expected = _WORDS.get(self.kind, f"one of {', '.join(self.order)}")
            said = f"{counts[lost].sum():,} cells are not {expected} and count as missing: {shorten(shown)}"
            if self.kind == "date" and not lost.all():
                said += ". Are day and month in the same order in all cells?"
            notes.append(Note(said, "unread"))
        return notes

    def _check(self) -> None:
        own, words = self.notation, (*self.order, *self.parts, *self.spelling, *self.spelling.values(), self.why)
        good = (
            self.kind in get_args(Kind)
            and set(self.parts) <= set(PARTS)
            and all(isinstance(text, str) for text in (*words, self.form or "", own.unit))
            and (own.decimal in (".", ",") and own.thousands in ("", ".", ","))
            and all(isinstance(word, str | float | int) for word in self.missing)
        )
        if not good:
            raise ValueError("expected columns of known types")
        if self.form not in (None, "ISO8601"):
            pd.to_datetime(pd.Series(["x"]), format=self.form, errors="coerce")  # raises for what is no format

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the kind, and whatever differs from the default."""
        told = {key: own for key, own in vars(self).items() if key == "kind" or own != _UNKNOWN[key]}
        return {**told, "notation": asdict(self.notation)} if "notation" in told else told

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Column:
        """Restore a column from plain data, which may come from a stranger.

        Raises:
            ValueError: no column can be so.
        """
        lists = {key: tuple(value) for key, value in state.items() if isinstance(value, list)}
        made = cls(**{**state, **lists, "notation": Notation(**state.get("notation", {}))})
        made._check()
        return made


_UNKNOWN = dict(vars(Column("numeric")))


def type_of(values: pd.Series) -> str:
    """Return which of :data:`TYPES` typed cells (n,) have."""
    if infer_dtype(values, skipna=True) == "boolean":
        return "true/false"
    return "numbers" if is_numeric_dtype(values) else "text"


def kind_of(values: pd.Series, categorical: bool) -> Kind | None:
    """Return the kind of a typed column (n,), or None if it has no value, which says nothing about its kind.

    Example:
        >>> kind_of(pd.Series([0.5, None]), False), kind_of(pd.Series([True, None]), True), kind_of(pd.Series([]), True)
        ('numeric', 'boolean', None)
    """
    if values.isna().all():
        return None
    return _OF_TYPE[type_of(values)] if categorical else "numeric"


def as_numbers(values: pd.Series, texts: bool) -> np.ndarray | None:
    """Return typed numbers or durations (n,) as float64, durations in seconds. With ``texts``, also convert texts if
    all are plain numbers. Return None otherwise.
    """
    if values.dtype.kind == "m":
        return np.asarray(values.dt.total_seconds(), np.float64)
    if values.dtype.kind in "iuf":
        return values.to_numpy(np.float64, na_value=np.nan)
    return plain_numbers(values) if texts and is_text(values) else None


def _conversions(cells: Cells, made: np.ndarray, unit: str) -> list[Note]:
    """Describe numbers that are not written plainly, and count those that lack the unit of the others."""
    plain = pd.to_numeric(pd.Series(cells.texts, dtype=object), errors="coerce").to_numpy(np.float64)
    ways, bare = dict[str, tuple[int, int]](), 0
    for place in np.flatnonzero(~np.isnan(made)):
        text, count = cells.texts[place], int(cells.counts[place])
        bare += count if unit and unit not in text else 0
        if made[place] != plain[place]:
            way = "".join(letter for letter in text if not letter.isdecimal() and letter not in ". ")
            total, first = ways.get(way, (0, int(place)))
            ways[way] = (total + count, first)
    notes = [
        f"{count:,} cells with {_WAYS.get(way, way)}, such as {cells.texts[first]!r}, read as numbers: "
        f"{made[first]:.15g}"
        for way, (count, first) in ways.items()
    ]
    if bare:
        factor = f". If {unit!r} means a thousand or a million, write the digits" if unit in ("k", "K", "M") else ""
        notes.append(f"{bare:,} cells without {unit!r} count as if they had it{factor}")
    return [Note(said, "converted") for said in notes]
