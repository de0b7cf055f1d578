"""Numbers as people write them: 1,234 and 55,3, 12 mg, € 5.00, 40 %, −3, <5."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

_CURRENCIES = "[€$£¥₹₩₽₺₪]|eur|usd|chf|gbp|jpy|cny|inr|sek|nok|dkk|rs|kr|zł|fr"
_NUMBER = re.compile(
    rf"(?P<bound>[<>≤≥]=?)? ?(?P<open>\()?(?P<sign>[-+]?) ?(?P<before>(?:{_CURRENCIES})\.?)? ?(?P<inner>[-+]?)"
    r"(?P<digits>\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?|\d[\d.,]*|[.,]\d+)(?P<power>e[-+]?\d+)?"
    rf"(?P<apart> ?)(?P<after>{_CURRENCIES}|[%‰]|[°µμ]?[^\W\d_][^\s()\-:;,]*)?(?P<close>\))?",
    re.I,
)
_CURRENCY = re.compile(rf"(?:{_CURRENCIES})\.?", re.I)
_MEASURE_WORDS = """kg g mg µg μg ug mcg ng pg t l dl cl ml µl mol mmol µmol m cm mm km µm nm in inch ft yd mi lb lbs oz
    st h hr hrs min s sec ms d day days w week weeks mo month months y yr yrs year years °c °f c f k w kw v a hz bpm
    mmhg kpa iu u kj kcal % ‰"""
_MEASURES = frozenset(_MEASURE_WORDS.split())
_SIGNS = str.maketrans(dict.fromkeys("−‐‑–﹣－", "-"))
_GROUPS = {
    ".": re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+"),
    ",": re.compile(r"[1-9](?:\d{0,2}(?:,\d{3})+|\d?(?:,\d\d)+,\d{3})"),
}
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."))  # decimal, thousands: the first that reads most cells
_NOT_PLAIN = r"^0[0-9]+$|^[0-9]{16,}$|^[^\x00-\x7f]|[A-Za-z_]$"  # codes, signs of print, words
_EXACT = 15  # digits that float64 keeps
_SAMPLE = 5_000  # texts that show how numbers are written
_GAPS = frozenset(float(sign * int(digit * n)) for digit in "98" for n in range(1, 7) for sign in (-1, 1)) - {8.0, -8.0}


class Written(NamedTuple):
    """The parts of a text that may be a number: digits with marks, exponent, sign, unit and bound."""

    digits: str
    power: str
    sign: int
    unit: str
    apart: bool
    bound: bool

    @property
    def measured(self) -> bool:
        """Whether its unit is a measure or a currency, rather than a word or a letter of a code such as 1a."""
        return _is_measure(self.unit) and (len(self.unit) > 1 or self.apart or not self.unit.isalpha())


def _is_measure(unit: str) -> bool:
    parts = unit.casefold().split("/")
    return bool(_CURRENCY.fullmatch(unit)) or all(own.rstrip("²³23") in _MEASURES for own in parts)


@lru_cache(2 * _SAMPLE)  # to find the notation, and then to read it
def split(text: str) -> Written | None:
    """Return the digits, unit and sign of a text, or None if it is not a number with at most a unit around it.

    Example:
        >>> split("€ -1,200.50"), split("1. White"), split("1-2")
        (Written(digits='1,200.50', power='', sign=-1, unit='€', apart=False, bound=False), None, None)
    """
    found = _NUMBER.fullmatch(text.translate(_SIGNS))
    if found is None or bool(found["open"]) != bool(found["close"]):
        return None
    before, after, minus = found["before"] or "", found["after"] or "", found["sign"] + found["inner"]
    if (before and after) or len(minus) + bool(found["open"]) > 1 or (after and found["digits"].endswith(".")):
        return None  # 1. White is a level
    unit = before or after
    if unit and not _is_measure(unit) and not (len(unit) > 2 and unit.isalpha()):
        return None
    digits, sign = re.sub(r"[ '’]", "", found["digits"]), -1 if minus == "-" or found["open"] else 1
    return Written(digits, found["power"] or "", sign, unit, bool(found["apart"]), bool(found["bound"]))


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written.

    Attributes:
        decimal: the decimal mark, ``.`` or ``,``.
        thousands: the mark between groups of digits: ``,``, ``.`` or none (blanks and apostrophes are always allowed).
        unit: the unit beside some of the numbers: a currency, ``%``, ``mg``. A number without a unit counts as one in
            this unit.

    Example:
        >>> Notation(unit="mg").read(["1200 mg", "3", "7 g"]), Notation(",", ".").read(["−1.055,3"])
        (array([1200.,    3.,   nan]), array([-1055.3]))
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def value(self, own: Written | None) -> float:
        """Return the number, or NaN if it is none in this notation."""
        if own is None or own.unit not in ("", self.unit):
            return np.nan
        digits, other = own.digits, "," if self.decimal == "." else "."
        if other in digits:
            if other != self.thousands or not _GROUPS[other].fullmatch(digits.split(self.decimal)[0]):
                return np.nan
            digits = digits.replace(other, "")
        try:
            return float(digits.replace(",", ".") + own.power) * own.sign
        except ValueError:
            return np.nan

    def read(self, texts: Sequence[str]) -> np.ndarray:
        """Convert plain texts (n,) to float64, NaN for those that are not numbers."""
        made = np.full(len(texts), np.nan)
        if self.decimal == "." and self.thousands != ".":
            made = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64).copy()
        for place in map(int, np.flatnonzero(np.isnan(made))):
            made[place] = self.value(split(texts[place]))
        return made


def find_notation(
    texts: Iterable[str], decimal: str | None = None, thousands: str | None = None
) -> tuple[Notation, str]:
    """Find the notation in which most of a column's distinct texts can be read as numbers.

    Args:
        texts: distinct texts; those that are not numbers are ignored.
        decimal: the decimal mark, if it is known.
        thousands: the mark between groups of digits, if it is known.

    Returns:
        The notation, and what was guessed, for a person: empty if nothing had to be.

    Example:
        >>> find_notation(["1,234", "12,500"])[0], find_notation(["55,3", "7"])[0].decimal
        (Notation(decimal='.', thousands=',', unit=''), ',')
    """
    written = [own for text in list(texts)[:_SAMPLE] if (own := split(text)) is not None]
    units = Counter(own.unit for own in written if own.unit).most_common(1)
    unit = units[0][0] if units else ""
    free = thousands not in (".", ",")
    marks = [own for own in _MARKS if decimal in (None, own[0]) and (free or thousands == own[1])]
    numbers = [own._replace(unit="") for own in written]
    read = {own: sum(not np.isnan(Notation(*own).value(number)) for number in numbers) for own in marks}
    best = max(marks, key=lambda own: read[own])
    guess = ""
    if best == (".", ",") and read.get((",", "")) == read[best]:
        first = next(own.digits for own in written if "," in own.digits)
        guess = f"{first!r} is read as {first.replace(',', '')}; if not, say decimal: ','"
    elif best == (".", ",") and decimal is None and thousands is None:
        marked = [own.digits for own in written if not own.digits.isdecimal()]
        point, comma = (next((own for own in marked if mark in own), "") for mark in ".,")
        if point and comma and all(re.fullmatch(r"\d{1,3}[.,]\d{3}", own) for own in marked):
            said = f"{point!r} is read as {point}, {comma!r} as {comma.replace(',', '')}"
            guess = f"{said}; if both are thousands, or neither is, write them in one way"
    return Notation(*best, unit), guess


def is_code(text: str) -> bool:
    """Return whether digits are a name: 007 differs from 7, and float64 cannot tell numbers of 26 digits apart."""
    return len(text) > 1 and (text[0] == "0" or len(text) > _EXACT) and text.isdecimal()


def plain_numbers(values: pd.Series) -> np.ndarray | None:
    """Convert texts (n,) to float64, NaN if missing, if all are numbers as programs write them and none has a leading
    zero, which would make it a code. Otherwise return None. This is the fast way, which fits most columns.

    Example:
        >>> plain_numbers(pd.Series(["1.5", None])), plain_numbers(pd.Series(["01"])), plain_numbers(pd.Series(["1,5"]))
        (array([1.5, nan]), None, None)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        cells = pa.chunked_array(pa.array(values, pa.large_string(), from_pandas=True))
        made: np.ndarray = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
        fractions = np.isfinite(made).all() and (made % 1 != 0).all()  # which are no codes, nor words
        if not fractions and pc.any(pc.match_substring_regex(cells, _NOT_PLAIN)).as_py():
            return None
    except (pa.ArrowException, TypeError):  # typed cells among text, or text that is no number
        return None
    return made


def missing_codes(values: np.ndarray, words: frozenset[float] = _GAPS | {-1.0}) -> list[float]:
    """Return numbers that may stand for a missing value, such as -9, 99, 999 or 8888. They are at the edge of a column
    (n,), and further from the next value than all others are from each other, or far more frequent than any of them.

    Example:
        >>> missing_codes(np.array([40.0, 51.0, 60.0, 999.0, np.nan])), missing_codes(np.array([7.0, 8.0, 9.0]))
        ([999.0], [])
    """
    if not {float(np.nanmin(values)), float(np.nanmax(values))} & words:  # nearly always, and without sorting
        return []
    own, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    found = list[float]()
    while len(own) > 2:
        for place in (0, len(own) - 1):
            value, others, rest = float(own[place]), np.delete(own, place), np.delete(counts, place)
            below = value < 0 <= others[0] and len(others) > (10 if value == -1 else 2)  # counted or measured otherwise
            far = np.abs(others - value).min() > others[-1] - others[0]
            if value in words and (below or far or counts[place] > max(3, 3 * rest.max())):
                found.append(value)
                own, counts = others, rest
                break
        else:
            break
    return found
