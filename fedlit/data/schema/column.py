"""What one raw column holds, and how its cells become values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from fedlit.data.schema.dates import PARTS, expand, find_format, parse_dates
from fedlit.data.schema.missing import blank, plain_text
from fedlit.data.schema.numbers import Notation, Parsed, find_notation, parse, plain_numbers, told_of_ways
from fedlit.errors import DataError
from fedlit.show.text import shorten

__all__ = ["NESTED", "ColumnKind", "ColumnType", "Made", "is_text", "true_or_false"]

ColumnKind = Literal["numeric", "categorical", "ordinal", "boolean", "date", "left out"]
TRUE = frozenset({"true", "t", "yes", "y", "ja", "j", "oui", "si", "sí", "sim", "wahr", "vrai", "on"})
FALSE = frozenset({"false", "f", "no", "n", "nein", "non", "não", "falsch", "faux", "off"})
NESTED = (list, dict, set, tuple, np.ndarray)
"""What is several values in one cell."""
_ONE_AND_ZERO = {"1": True, "1.0": True, "0": False, "0.0": False}
_PLAIN = Notation()
_WORST = 0.5  # of the cells that have a value; where more cannot be read, the column is another one


@dataclass(frozen=True)
class Made:
    """What a raw column became.

    Attributes:
        columns: name → the typed cells, (n,).
        notes: what was converted or could not be read, without the column's name.
    """

    columns: Mapping[str, pd.Series | np.ndarray]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnType:
    """What a raw column holds.

    Attributes:
        kind: what it is.
        why: of a column that is left out: ``identifier``, ``free text``, ``constant``, …
        missing: further words, in lower case, and numbers that stand for a missing value here.
        notation: how its numbers are written.
        form: how its dates are written; None where they are dates already.
        parts: which parts of a date say something.
        order: of an ordinal column's values, the least first.
        coded: of a categorical column: whether its categories are numbers.
        kept: words that stand for a missing value elsewhere, and are values here: ``-`` beside ``+``.
        spelling: of a categorical column: value in lower case → as it is known, where a value is spelt in several ways.
    """

    kind: ColumnKind
    why: str = ""
    missing: tuple[str | float, ...] = ()
    notation: Notation = _PLAIN
    form: str | None = None
    parts: tuple[str, ...] = PARTS
    order: tuple[str, ...] = ()
    spelling: Mapping[str, str] = field(default_factory=dict)
    coded: bool = False
    kept: tuple[str, ...] = ()

    # ------------------------------------------------------------------ rows

    def apply(self, values: pd.Series, where: str) -> Made:
        """Cells (n,) as typed columns: float64, ``boolean``, or categories as objects; NaN where missing.

        Raises:
            DataError: most cells with a value cannot be read; begins with ``where``.
        """
        if self.kind == "left out":
            return Made({})
        values = plain_types(values)
        if self.kind == "numeric":
            return self._numbers(values, where)
        if self.kind == "date":
            return self._dates(values, where)
        plain = self._texts(values)
        if self.kind == "boolean":
            return self._booleans(plain, values, where)
        if self.kind == "ordinal":
            plain = plain_text(plain)
            rank = {text.casefold(): float(place) for place, text in enumerate(self.order)}
            made = plain.map(lambda text: rank.get(text.casefold()), na_action="ignore").astype(np.float64)
            return self._checked(made, plain, where, f"one of {', '.join(self.order)}")
        if self.coded and plain.dtype.kind not in "iuf":
            made = pd.to_numeric(plain, errors="coerce").astype(np.float64)
            return self._checked(made, plain, where, "numbers")
        if self.spelling:
            plain = plain.map(lambda text: self.spelling.get(text.casefold(), text), na_action="ignore")
        return Made({str(plain.name): plain})

    def _texts(self, values: pd.Series) -> pd.Series:
        """As text, missing where a token says so; numbers that are categories stay numbers."""
        numbers = {own for own in self.missing if not isinstance(own, str)}
        if not is_text(values):
            if values.dtype.kind in "iuf":
                return values.mask(values.isin(list(numbers))) if numbers else values
            if values.dtype.kind == "b" or str(values.dtype) == "boolean":
                return values.astype(object)
        plain = plain_text(values)
        return plain.mask(blank(plain, self.missing) & ~plain.isin(self.kept), np.nan)

    def _numbers(self, values: pd.Series, where: str) -> Made:
        quick = plain_numbers(values) if is_text(values) and self.notation == _PLAIN and not self.missing else None
        lost: Mapping[str, int] = {}
        notes = list[str]()
        if quick is not None:
            numbers = quick
        elif is_text(values):
            plain = self._texts(values)
            found = parse(plain, self.notation)
            if sum(found.failed.values()) > _WORST * plain.notna().sum():
                found = self._written(plain) or found
            self._refuse_other(found.failed, plain, where, "numbers")
            numbers, lost, notes = found.values, found.failed, told_of_ways(found)
        else:
            numbers = as_floats(values, where)
        declared = [own for own in self.missing if not isinstance(own, str)]
        if declared:
            numbers = np.where(np.isin(numbers, declared), np.nan, numbers)
        return Made({str(values.name): numbers}, (*notes, *_lost(lost, "numbers")))

    def _written(self, plain: pd.Series) -> Parsed | None:
        """As another decimal mark than in training gives them, if all are numbers then, and it cannot be mistaken."""
        notation, guess = find_notation(map(str, plain.dropna().unique()))
        found = parse(plain, replace(notation, unit=self.notation.unit or notation.unit))
        return None if guess or found.failed else found

    def times(self, values: pd.Series) -> pd.Series:
        """Dates (n,) as times; NaT where missing or no date."""
        values = plain_types(values)
        return parse_dates(self._texts(values) if is_text(values) else values, self.form)

    def _dates(self, values: pd.Series, where: str) -> Made:
        if values.dtype.kind in "iufb" and values.notna().any():
            raise DataError(f"{where}: expected dates, found numbers such as {values.iloc[0]}. Write them as before")
        plain, ways = self._texts(values) if is_text(values) else values, list[str]()
        times = parse_dates(plain, self.form)
        if times.isna().sum() > plain.isna().sum() + _WORST * plain.notna().sum():
            form, guess = find_format([str(text) for text in plain.dropna().unique()])
            if form is not None and not guess:  # written in another way than in training, which cannot be mistaken
                times = parse_dates(plain, form)
                ways = [f"dates are written as {form} here, in training as {self.form}"]
        failed = times.isna() & plain.notna()
        lost = _counts(plain[failed])
        self._refuse_other(lost, plain, where, "dates")
        columns = expand(times.rename(str(values.name)))
        kept = {name: columns[name] for part in self.parts if (name := f"{values.name}.{part}")}
        return Made(kept, (*ways, *_lost(lost, "dates")))

    def _booleans(self, plain: pd.Series, raw: pd.Series, where: str) -> Made:
        if raw.dtype.kind in "iuf":
            plain = raw.map({1: True, 0: False})
        made = plain if raw.dtype.kind in "iufb" else plain.map(true_or_false, na_action="ignore")
        return self._checked(made.astype("boolean"), raw, where, "yes or no")

    def _checked(self, made: pd.Series, raw: pd.Series, where: str, expected: str) -> Made:
        lost = _counts(raw[made.isna() & self._texts(raw).notna()])
        self._refuse_other(lost, raw, where, expected)
        return Made({str(made.name): made}, tuple(_lost(lost, expected)))

    def _refuse_other(self, lost: Mapping[str, int], values: pd.Series, where: str, expected: str) -> None:
        held = int(values.notna().sum())
        if held and sum(lost.values()) > _WORST * held:
            raise DataError(
                f"{where}: expected {expected}, found {sum(lost.values()):,} other cells of {held:,}, such as "
                f"{next(iter(lost))!r}. Write them as before, leave them empty, or say what they are with types"
            )

    def check(self, name: str) -> None:
        """Refuse what no column gave.

        Raises:
            ValueError: saying what is wrong.
        """
        texts = (
            *self.order,
            *self.kept,
            *self.parts,
            *self.spelling,
            *self.spelling.values(),
            self.why,
            self.form or "",
        )
        marks = (self.notation.decimal, self.notation.thousands, self.notation.unit)
        if self.kind not in get_args(ColumnKind) or not set(self.parts) <= set(PARTS):
            raise ValueError(f"expected a known type of the column {name[:60]!r}")
        if not all(isinstance(own, str) for own in (*texts, *marks)) or marks[0] not in (".", ","):
            raise ValueError(f"expected text in the type of the column {name[:60]!r}")
        if marks[1] not in ("", ".", ",") or any(not isinstance(own, str | float | int) for own in self.missing):
            raise ValueError(f"expected marks and words of the column {name[:60]!r}")
        if self.form not in (None, "ISO8601"):
            pd.to_datetime(pd.Series(["x"]), format=self.form, errors="coerce")  # raises for what is no format

    # ------------------------------------------------------------------ plain data

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what differs from a column of which nothing is known."""
        made = {own.name: getattr(self, own.name) for own in fields(self)}
        made["notation"] = asdict(self.notation) if self.notation != _PLAIN else None
        made = {key: list(value) if isinstance(value, tuple) else value for key, value in made.items()}
        made["spelling"] = dict(self.spelling)
        made["parts"] = None if self.parts == PARTS else list(self.parts)
        return {key: value for key, value in made.items() if value not in (None, "", [], {}, False)}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ColumnType:
        """From plain data."""
        lists = {key: tuple(value) for key, value in state.items() if isinstance(value, list)}
        own = cls(**{**state, **lists, "notation": _PLAIN})
        return replace(own, notation=Notation(**state["notation"])) if state.get("notation") else own


def _counts(cells: pd.Series) -> dict[str, int]:
    return {str(text): int(count) for text, count in cells.astype(str).value_counts().items()}


def _lost(lost: Mapping[str, int], expected: str) -> list[str]:
    if not lost:
        return []
    shown = shorten([f"{text!r} ({count:,})" for text, count in lost.items()])
    return [f"{sum(lost.values()):,} cells are no {expected} and count as missing: {shown}"]


def plain_types(values: pd.Series) -> pd.Series:
    """Arrow's own types, which only some files have, as those that are known here.

    Example:
        >>> import pyarrow as pa
        >>> plain_types(pd.Series([1, None], dtype=pd.ArrowDtype(pa.decimal128(5, 2)))).tolist()
        [1.0, nan]
    """
    if not isinstance(values.dtype, pd.ArrowDtype):
        return values
    import pyarrow as pa

    kind = values.dtype.pyarrow_dtype
    if pa.types.is_decimal(kind):
        return values.astype("float64[pyarrow]").astype(np.float64)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        seconds = pa.chunked_array(pa.array(values.array)).cast(pa.timestamp("s"), safe=False)  # any year
        return pd.Series(seconds.to_pandas().to_numpy(), index=values.index, name=values.name)
    if pa.types.is_time(kind):
        return pd.to_timedelta(values.astype(object).map(str, na_action="ignore"))
    return values.astype(object)


def is_text(values: pd.Series) -> bool:
    """Whether cells are text, or objects of any kind."""
    kind = getattr(values.dtype, "kind", "O")
    return kind == "O" or isinstance(values.dtype, pd.StringDtype | pd.CategoricalDtype)


def as_floats(values: pd.Series, where: str) -> np.ndarray:
    """Typed numbers (n,) as float64.

    Raises:
        DataError: they are none.
    """
    try:
        if values.dtype.kind == "m":
            return np.asarray(values.dt.total_seconds(), np.float64)
        return values.to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: expected numbers, found values of type {values.dtype}. Convert the column."
        ) from error


def true_or_false(text: object) -> bool | None:
    """What a word says.

    Example:
        >>> true_or_false("Ja"), true_or_false("0"), true_or_false("perhaps")
        (True, False, None)
    """
    if isinstance(text, bool | np.bool_):
        return bool(text)
    word = str(text).casefold()
    return True if word in TRUE else False if word in FALSE else _ONE_AND_ZERO.get(word)
