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
from fedlit.errors import DataError, Told, expect
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

# of categories
_OF_TYPE: dict[str, Kind] = {own: kind for kind, own in TYPES.items() if kind != "numeric"}
_PLAIN = Notation()
_WORST = 0.5  # of the cells that have a value; where more cannot be read, the column is another one
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
    def typed(cls, values: pd.Series, categorical: bool) -> Column:
        """Describe a column (n,) that a source returns with its type. The name of a category is a
        value, even if the word means "missing" elsewhere.

        Example:
            >>> Column.typed(pd.Series(["none", "mild"]), True).spelling
            {'none': 'none'}
        """
        kind = kind_of(values, categorical) or ("categorical" if categorical else "numeric")
        different = values.dropna().unique() if kind == "categorical" else ()
        words = {
            str(own).casefold(): str(own) for own in different if str(own).casefold() in MISSING
        }
        return cls(kind, spelling=words)

    def apply(self, values: pd.Series, where: str) -> tuple[Typed, list[Note]]:
        """Convert cells (n,) to typed columns; return notes, without the column's name, on what was
        converted or could not be read.

        Raises:
            DataError: most cells with a value cannot be read; begins with ``where``.
        """
        if self.kind == "left out":
            return {}, []
        if self.values:
            recoded = recode(values, self.values)
            typed, notes = replace(self, values={}).apply(recoded.values, where)
            return typed, [*recoded.kept_notes, *notes]
        if self.convert:
            marks = self.notation.decimal, self.notation.thousands
            converted, _ = convert(values, self.convert, self.missing, marks)
            return replace(self, convert={}).apply(converted, where)
        plain = self.kind == "numeric" and self.notation == _PLAIN and not self.missing
        numbers = as_numbers(values, plain) if self.kind in ("numeric", "coded") else None
        if numbers is not None:
            return {str(values.name): self.with_gaps(numbers)}, []
        return self.of_stored(values).take(
            Cells.of(values).without(self.missing, self.kept)[0], where
        )

    @property
    def kept(self) -> Mapping[str, str]:
        """The words, by lower case, that are values here, even if they mean missing elsewhere."""
        return {**self.spelling, **{level.casefold(): level for level in self.order}}

    def of_stored(self, values: pd.Series) -> Column:
        """Return the column for cells (n,): times that a file stores need no format."""
        return replace(self, form="ISO8601") if values.dtype.kind == "M" else self

    def with_gaps(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers (n,) with NaN for those that stand for a missing value, whether written
        -9,0 or -9 mg.
        """
        gone = [own for own in self.missing if not isinstance(own, str)]
        return np.where(np.isin(numbers, gone), np.nan, numbers) if gone else numbers

    def times(self, values: pd.Series) -> pd.Series:
        """Parse dates (n,) as times; NaT if missing or not a date."""
        cells, _ = Cells.of(values).without(self.missing)
        made = self.of_stored(values).read(cells.texts)
        return pd.Series(cells.take(made, np.datetime64("NaT")), values.index, name=values.name)

    def take(self, cells: Cells, where: str) -> tuple[Typed, list[Note]]:
        """Convert cells that have a value to typed columns (see :meth:`apply`)."""
        made = self.read(cells.texts)
        counts = cells.counts
        lost = pd.isna(made)
        notes = self.notes_on(cells, made)
        if (others := int(counts[lost].sum())) > _WORST * counts.sum():
            found = (
                f"{counted(others, 'other cell')} of {counts.sum():,}, such as "
                f"{cells.texts[int(lost.argmax())]!r}"
            )
            advice = "correct them, leave them empty, or write them as those of training"
            expect(False, where, self._expected, Told(found), advice, DataError)
        if self.kind == "date":
            columns = expand(pd.Series(cells.take(made, np.datetime64("NaT"))), cells.name)
            return {
                key: columns[key] for part in self.parts if (key := f"{cells.name}.{part}")
            }, notes
        values = cells.take(self.with_gaps(made) if self.kind in ("numeric", "coded") else made)
        return {
            cells.name: pd.array(values, "boolean") if self.kind == "boolean" else values
        }, notes

    def read(self, texts: list[str]) -> np.ndarray:
        """Convert each text to a value; missing if it is none."""
        if self.kind in ("boolean", "categorical"):
            words = [
                true_or_false(text) if self.kind == "boolean" else self._spelt(text)
                for text in texts
            ]
            return np.array(words, object)
        if self.kind == "ordinal":
            rank = {text.casefold(): float(place) for place, text in enumerate(self.order)}
            return np.array([rank.get(text.casefold(), np.nan) for text in texts], np.float64)
        if self.kind == "date":
            if self.form == "%Y%m%d":  # beside gaps, whole numbers are written with a point
                texts = [text.removesuffix(".0") for text in texts]
            return parse_dates(texts, self.form).to_numpy()
        return self.notation.read(texts)

    def _spelt(self, text: str) -> str:
        return self.spelling.get(text.casefold(), text)

    @property
    def _expected(self) -> str:
        return _WORDS.get(self.kind, f"one of {', '.join(self.order)}")

    def notes_on(self, cells: Cells, made: np.ndarray) -> list[Note]:
        """Return notes on how each text was read: conversions, and texts that could not be read."""
        notes = list[Note]()
        lost = pd.isna(made)
        if self.kind == "numeric":
            notes = _conversions(cells, made, self.notation.unit)
        if self.kind == "date" and any(map(ZONE.search, cells.texts)):
            notes = [Note("times of other zones become those of Greenwich (UTC)", "converted")]
        if lost.any():
            said = (
                f"{counted(int(cells.counts[lost].sum()), 'cell')} not read as "
                f"{self._expected}, so missing: "
            )
            notes.append(Note(said + cells.shown(lost), "unread"))
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the kind, and whatever differs from the default."""
        told = {
            key: own for key, own in vars(self).items() if key == "kind" or own != _UNKNOWN[key]
        }
        return {**told, "notation": asdict(self.notation)} if "notation" in told else told

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Column:
        """Restore a column from plain data, which may come from a stranger.

        Raises:
            ValueError: no column can be so. Any other error of Python's says the same.
        """
        lists = {key: tuple(value) for key, value in state.items() if isinstance(value, list)}
        made = cls(**{**state, **lists, "notation": Notation(**state.get("notation", {}))})
        if made.kind not in get_args(Kind) or not set(made.parts) <= set(PARTS):
            raise ValueError("expected columns of known types")
        made.read(["1", "x"])  # raises for what is no format, order or notation
        if not all(isinstance(own, str | None) for own in made.values.values()):
            raise ValueError("expected values that become text")
        conversions = {
            unit: (float(factor), float(offset)) for unit, (factor, offset) in made.convert.items()
        }
        return replace(made, convert=conversions)


_UNKNOWN = dict(vars(Column("numeric")))


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
    return _OF_TYPE[type_of(values)] if categorical else "numeric"


def as_numbers(values: pd.Series, texts: bool) -> np.ndarray | None:
    """Return typed numbers or durations (n,) as float64, durations in seconds. With ``texts``, also
    convert texts if all are plain numbers. Return None otherwise, also for whole numbers of which
    float64 would make others the same.
    """
    if values.dtype.kind == "m":
        return np.asarray(values.dt.total_seconds(), np.float64)
    if values.dtype.kind in "iuf":
        made = values.to_numpy(np.float64, na_value=np.nan)
        large = values.dtype.kind in "iu" and (abs(made) >= 2**53).any()
        return None if large and len(np.unique(made[~np.isnan(made)])) < values.nunique() else made
    return plain_numbers(values) if texts else None


def _conversions(cells: Cells, made: np.ndarray, unit: str) -> list[Note]:
    """Count numbers that are not written plainly, with an example of each way; and those without
    the others' unit.
    """
    plain = pd.to_numeric(pd.Series(cells.texts, dtype=object), errors="coerce").to_numpy(
        np.float64
    )
    notes = list[Note]()
    read = ~np.isnan(made)
    if (odd := read & (made != plain)).any():
        ways = {
            re.sub(r"[\d. ]", "", cells.texts[place]): place for place in np.flatnonzero(odd)[::-1]
        }
        shown = shorten(
            [f"{cells.texts[place]!r} as {made[place]:.15g}" for place in ways.values()]
        )
        notes.append(
            Note(
                f"{counted(int(cells.counts[odd].sum()), 'cell')} read as numbers: {shown}",
                "converted",
            )
        )
    bare = read & np.array([bool(unit) and unit not in text for text in cells.texts], bool)
    if bare.any():
        factor = (
            f". If {unit!r} means a thousand or a million, write the digits"
            if unit in ("k", "K", "M")
            else ""
        )
        said = (
            f"{counted(int(cells.counts[bare].sum()), 'cell')} without {unit!r}, read as if "
            f"with it{factor}"
        )
        notes.append(Note(said, "converted"))
    return notes
