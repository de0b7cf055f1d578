"""Numbers as people write them: 1,234 and 55,3, 12 mg, € 5.00, 40 %, −3, <5."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.parts import WAYS, way_of

_CURRENCIES = "[€$£¥₹₩₽₺₪]|eur|usd|chf|gbp|jpy|cny|inr|sek|nok|dkk|rs|kr|zł|fr"
_MEASURE_WORDS = """kg g mg µg μg ug mcg ng pg t l dl cl ml µl mol mmol µmol m cm mm km µm nm in inch ft yd mi lb lbs oz
    st h hr hrs min s sec ms d day days w week weeks mo month months y yr yrs year years °c °f c f k w kw v a hz bpm
    mmhg kpa iu u kj kcal % ‰"""
_MEASURE = rf"(?:(?:m|cm|mm|km|in|ft|yd|mi|s)[²³23]|(?:{'|'.join(_MEASURE_WORDS.split())}))"
_NUMBER = re.compile(
    rf"(?P<bound>[<>≤≥]=?)? ?(?P<sign>[-+]?) ?(?P<before>(?:{_CURRENCIES})\.?)? ?(?P<inner>[-+]?)"
    r"(?P<digits>\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?|\d[\d.,]*|[.,]\d+)(?P<power>e[-+]?\d+)?"
    rf"(?P<after> ?(?:{_CURRENCIES}|{_MEASURE}(?:/{_MEASURE})*))?",
    re.I,
)
_ACCOUNTING = re.compile(r"\((?P<inside>[^()+-]{1,40})\)|(?P<before>[^()+-]{0,40}[\d.,])-")
_SIGNS = str.maketrans(dict.fromkeys("−‐‑–﹣－", "-"))
_GROUPS = {
    ".": re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+"),
    ",": re.compile(r"[1-9](?:\d{0,2}(?:,\d{3})+|\d?(?:,\d\d)+,\d{3})"),
}
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."))
"""Decimal mark and mark of thousands; of the pairs that read most cells, the first is taken."""
_EITHER_DECIMAL = ({"decimal": ","}, {"decimal": "."})
_PADDED = r"^0[0-9]+\."
"""Matches codes such as 008.45."""
_NOT_PLAIN = r"^0[0-9]+$|^[0-9]{16,}$|^[^\x00-\x7f]|[A-Za-z_]$"
"""Matches codes, typographic signs and words."""
_THOUSAND = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
_LEAST_OF_UNIT = 0.05
_SAMPLE = 5_000
"""Texts from which the notation of numbers is seen."""


_SAME_UNITS = {
    "usd": "$", "eur": "€", "gbp": "£", "jpy": "¥", "inr": "₹", "lbs": "lb", "hr": "h", "hrs": "h", "days": "d",
    "day": "d", "week": "w", "weeks": "w", "months": "month", "mo": "month", "year": "y", "years": "y", "yr": "y",
    "yrs": "y", "µg": "ug", "μg": "ug", "mcg": "ug", "kg": "kg", "mg": "mg", "cm": "cm", "ml": "ml", "dl": "dl",
}  # fmt: skip


def same_unit(unit: str) -> str:
    """Return the unit in the spelling that stands for all of its spellings.

    Example:
        >>> same_unit("USD"), same_unit("Kg"), same_unit("lbs"), same_unit("M")
        ('$', 'kg', 'lb', 'M')
    """
    return _SAME_UNITS.get(unit.casefold(), unit)


class Written(NamedTuple):
    """A text that may be a number: digits with marks, exponent and sign; its unit; and whether it
    may be the name of a level: ``<20``, a digit with a letter, ``1a``, or a negative number as
    accountants write it, ``(1)``.
    """

    digits: str
    power: str
    sign: int
    unit: str
    level: bool


@lru_cache(2 * _SAMPLE)  # Texts are split to find the notation, and again to read them.
def split(text: str) -> Written | None:
    """Return the digits, unit and sign of a text, or None if it is not a number with at most a unit
    around it.

    Example:
        >>> split("€ -1,200.50"), split("1. White"), split("1-2")
        (Written(digits='1,200.50', power='', sign=-1, unit='€', level=False), None, None)
        >>> split("(733.31)").sign, split("733.31-").sign
        (-1, -1)
    """
    plain = text.translate(_SIGNS)
    accounting = _ACCOUNTING.fullmatch(plain)
    if accounting is not None:
        plain = (accounting["inside"] or accounting["before"]).strip()
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return None
    before = match["before"] or ""
    after = match["after"] or ""
    minus = match["sign"] + match["inner"]
    if (before and after) or len(minus) > 1 or (after and match["digits"].endswith(".")):
        return None
    digits = re.sub(r"[ '’]", "", match["digits"])
    level = bool(match["bound"] or accounting) or (len(after) == 1 and after.isalpha())
    negative = minus == "-" or accounting is not None
    sign = -1 if negative else 1
    return Written(digits, match["power"] or "", sign, before or after.strip(), level)


def is_accounting(text: str) -> bool:
    """Return whether a text is a negative number as accountants write it."""
    return text[-1:] in (")", "-") and _ACCOUNTING.fullmatch(text) is not None


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written.

    Attributes:
        decimal: the decimal mark, ``.`` or ``,``.
        thousands: the mark between groups of digits: ``,``, ``.`` or none (blanks and apostrophes
            are always allowed).
        unit: the unit beside some of the numbers: a currency, ``%``, ``mg``. A number without a
            unit counts as one in this unit.
        way: how numbers of several parts are written, a key of
            :data:`fedlit.data.schema.parts.WAYS`; "" if they have one part.

    Example:
        >>> Notation(unit="mg").read(["1200 mg", "3", "7 g"]), Notation(",", ".").read(["−1.055,3"])
        (array([1200.,    3.,   nan]), array([-1055.3]))
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    way: str = ""

    def value(self, written: Written | None) -> float:
        """Return the number, or NaN if it is none in this notation."""
        if written is None or (written.unit and same_unit(written.unit) != same_unit(self.unit)):
            return np.nan
        digits = written.digits
        group_mark = "," if self.decimal == "." else "."
        if group_mark in digits:
            whole = digits.split(self.decimal)[0]
            if group_mark != self.thousands or not _GROUPS[group_mark].fullmatch(whole):
                return np.nan
            digits = digits.replace(group_mark, "")
        try:
            return float(digits.replace(",", ".") + written.power) * written.sign
        except ValueError:
            return np.nan

    def read(self, texts: Sequence[str]) -> np.ndarray:
        """Convert plain texts (n,) to float64, NaN for those that are not numbers."""
        if self.way:
            return np.array([WAYS[self.way].read(text) for text in texts], np.float64)
        numbers = np.full(len(texts), np.nan)
        if self.decimal == "." and self.thousands != ".":
            plain = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce")
            numbers = plain.to_numpy(np.float64).copy()
        for position in map(int, np.flatnonzero(np.isnan(numbers))):
            numbers[position] = self.value(split(texts[position]))
        return numbers


def find_notation(
    texts: Sequence[str], decimal: str | None = None, thousands: str | None = None
) -> tuple[Notation, list[Note]]:
    """Find the notation in which most of a column's distinct texts can be read as numbers.

    Args:
        texts: distinct texts; those that are not numbers are ignored.
        decimal: the decimal mark, if it is known.
        thousands: the mark between groups of digits, if it is known.

    Returns:
        The notation, and a note if it had to be guessed.

    Example:
        >>> find_notation(["1,234", "12,500"])[0].thousands, find_notation(["55,3", "7"])[0].decimal
        (',', ',')
    """
    parts = way_of(texts)
    if parts:
        return Notation(way=parts), [Note(f"is read in {WAYS[parts].unit}", "converted")]
    written = [number for number in map(split, texts[:_SAMPLE]) if number is not None]
    units = Counter(number.unit for number in written if number.unit).most_common(1)
    unit = units[0][0] if units else ""
    is_open = thousands not in (".", ",")
    read = dict[tuple[str, str], int]()
    for marks in _MARKS:
        if decimal in (None, marks[0]) and (is_open or thousands == marks[1]):
            notation = Notation(*marks, unit)
            read[marks] = sum(not np.isnan(notation.value(number)) for number in written)
    best = max(read, key=lambda marks: read[marks])
    notes = list[Note]()
    if best == (".", ",") and read.get((",", "")) == read[best]:
        first = next(number.digits for number in written if "," in number.digits)
        text = f"{first!r} is read as {first.replace(',', '')}; if not, say decimal: ','"
        notes = [Note(text, "guess", alternatives=_EITHER_DECIMAL)]
    elif best == (".", "") and decimal is thousands is None:
        digits = [number.digits for number in written]
        numbers = [Notation(unit=unit).value(number) for number in written]
        notes = mark_of_thousands(pd.Series(digits, dtype=object), np.array(numbers))
    return Notation(*best, unit), notes


def plain_numbers(values: pd.Series) -> np.ndarray | None:
    """Convert texts (n,) to float64, NaN if missing, if all are numbers as programs write them and
    none has a leading zero, which would make it a code. Otherwise return None. This fast path reads
    most columns.

    Example:
        >>> plain_numbers(pd.Series(["1.5", None])), plain_numbers(pd.Series(["01"])), plain_numbers(pd.Series(["1,5"]))
        (array([1.5, nan]), None, None)
    """
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
    except ImportError:
        # pyarrow may be absent where an exported folder is scored; Notation reads the same numbers.
        return None
    try:
        cells = pa.chunked_array(pa.array(values, pa.large_string(), from_pandas=True))
        numbers: np.ndarray = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
        # If all numbers have fractions, no text is a code or a word.
        fractions = np.isfinite(numbers).all() and (numbers % 1 != 0).all()
        if pc.any(pc.match_substring_regex(cells, _PADDED)).as_py():
            return None
        if not fractions and pc.any(pc.match_substring_regex(cells, _NOT_PLAIN)).as_py():
            return None
    except (pa.ArrowException, TypeError):  # A cell is typed, or is no number.
        return None
    return numbers


def units_of(cells: Cells) -> dict[str, int]:
    """Map each unit of a column's numbers to its number of cells, if a twentieth of the cells have
    it.
    """
    units = Counter[str]()
    for text, count in zip(cells.texts, cells.counts.tolist(), strict=True):
        written = split(text)
        if written is not None and written.unit:
            units[same_unit(written.unit)] += count
    least = _LEAST_OF_UNIT * cells.counts.sum()
    return {unit: count for unit, count in units.most_common() if count >= least}


def mark_of_thousands(values: pd.Series, numbers: np.ndarray) -> list[Note]:
    """Ask whether a point separates thousands among numbers (n,) of plain text (n,), such as 1.583
    beside 950.

    Example:
        >>> mark_of_thousands(pd.Series(["1.583", "950"]), np.array([1.583, 950.0]))[0].kind
        'thousands'
    """
    finite = numbers[:_SAMPLE][np.isfinite(numbers[:_SAMPLE])]
    between = finite[finite % 1 != 0]
    # Nearly all columns are sorted out here.
    if not len(between) or abs(between).max() >= 1000:
        return []
    if not ((finite >= 100) & (finite < 1000)).any():
        return []
    cells = [cell.strip() for cell in values.iloc[:_SAMPLE] if isinstance(cell, str)]
    marked = [cell for cell in cells if "." in cell]
    whole = [cell for cell in cells if len(cell) == 3 and cell.isdecimal()]
    if not whole or not all(map(_THOUSAND.fullmatch, marked)):
        return []
    text = (
        f"{marked[0]!r} is read as {float(marked[0]):g}, beside whole numbers such as "
        f"{whole[0]!r}. If it is a thousand, write thousands: '.'"
    )
    return [Note(text, "thousands", alternatives=[{"thousands": "."}, {"decimal": "."}])]
