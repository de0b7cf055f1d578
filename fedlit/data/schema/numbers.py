"""Numbers as people write them: 1,234 and 55,3, 12 mg, € 5.00, 40 %, −3, <5."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

__all__ = ["Notation", "Parsed", "find_notation"]

_MINUS = str.maketrans({"−": "-", "‐": "-", "‑": "-", "–": "-", "﹣": "-", "－": "-"})
_SPACES = dict.fromkeys(map(ord, " \u00a0\u2007\u2009\u202f'’"))  # what groups thousands
_CORE = re.compile(
    r"(?P<bound>[<>≤≥]=?)?\s*(?P<open>\()?(?P<sign>[-+])?\s*(?P<before>[^\d\s.,+\-()<>]{1,4}\.?)?\s*(?P<sign2>[-+])?"
    r"(?P<digits>\d[\d.,'’\s]*|[.,]\d+)(?P<power>[eE][-+]?\d+)?\s*"
    r"(?P<after>[^\W\d_%][^\s()\-:;,]{0,11}|[%‰°$£¥€µ²/][^\s()\-:;,\d]{0,8})?(?P<close>\))?"
)
_CURRENCIES = frozenset(
    {"eur", "usd", "chf", "gbp", "jpy", "cny", "inr", "rs", "kr", "sek", "nok", "dkk", "zł", "fr", "fr."}
)
_MEASURE_WORDS = """
    kg g mg µg μg ug mcg ng pg t l dl cl ml µl mol mmol µmol m cm mm km µm nm in inch ft yd mi lb lbs oz st h hr
    hrs min s sec ms d day days w week weeks mo month months y yr yrs year years % ‰ °c °f c f k m w kw v a hz bpm
    mmhg kpa iu u mg/dl mmol/l g/dl g/l ng/ml kj kcal
"""
_MEASURES = frozenset(_MEASURE_WORDS.split())
_NOT_PLAIN = r"^0[0-9]+$|^[0-9]{16,}$|^[^\x00-\x7f]|[A-Za-z_]$"  # codes, signs of print, words
_EXACT = 15  # digits that float64 keeps
_GROUPS = {mark: re.compile(rf"\d{{1,3}}(?:{re.escape(mark)}\d{{3}})+") for mark in ",."}


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written.

    Attributes:
        decimal: what parts the whole from the rest, ``.`` or ``,``.
        thousands: what groups digits, ``,``, ``.`` or nothing (blanks and apostrophes always may).
        unit: what stands beside some of the numbers: a currency, ``%``, ``mg``; a number without it is taken for one in
            the same unit.
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def parse(self, text: str) -> tuple[float, str] | None:
        """A number and how it was written (``""`` if plainly); None where it is none.

        Example:
            >>> Notation(unit="mg").parse("1200 mg"), Notation(",").parse("−55,3"), Notation().parse("12 mg")
            ((1200.0, 'with mg'), (-55.3, 'with a decimal comma, with a minus of print'), None)
        """
        parts = split(text)
        if parts is None or (parts.unit and parts.unit != self.unit):
            return None
        digits, ways = parts.digits, list[str]()
        if self.thousands and self.thousands in digits:
            whole = digits.split(self.decimal)[0]
            if not _GROUPS[self.thousands].fullmatch(whole):
                return None
            digits, ways = digits.replace(self.thousands, ""), [f"with {self.thousands!r} between thousands"]
        if self.decimal == ",":
            if "." in digits:
                return None
            if "," in digits:
                digits, ways = digits.replace(",", "."), [*ways, "with a decimal comma"]
        try:
            value = float(digits + parts.power) * parts.sign
        except ValueError:
            return None
        ways += [f"with {parts.unit}"] if parts.unit else []
        return value, ", ".join([*ways, *parts.ways])


@dataclass(frozen=True)
class _Parts:
    digits: str
    power: str
    sign: int
    unit: str
    ways: tuple[str, ...]
    apart: bool = False


def split(text: str) -> _Parts | None:
    """A text's digits, unit and sign, if it is a number with at most a unit around it."""
    plain = text.translate(_MINUS).strip()
    match = _CORE.fullmatch(plain)
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    before, after = (match["before"] or "").strip(), (match["after"] or "").strip()
    if (
        (before and after)
        or (before and not _is_currency(before))
        or (match["sign"] and (match["sign2"] or match["open"]))
    ):
        return None
    if match["power"] is None and re.fullmatch(r"[eE]\d*", after):
        return None
    ways = ["with a minus of print"] if plain != text.strip() else []
    ways += [f"with {match['bound']}"] if match["bound"] else []
    ways += ["in brackets, for a minus"] if match["open"] else []
    digits = match["digits"].strip()
    packed = digits.translate(_SPACES)
    if packed != digits:
        if not re.fullmatch(r"\d{1,3}(?:[ \u00a0\u2007\u2009\u202f'’]\d{3})+(?:[.,]\d+)?", digits):
            return None
        ways.append("with blanks between thousands")
    unit = before or after
    if unit and (not _is_unit(unit) or (after and digits.endswith("."))):  # 1. White is a level
        return None
    negative = (match["sign"] == "-") ^ (match["sign2"] == "-") ^ bool(match["open"])
    return _Parts(
        packed,
        match["power"] or "",
        -1 if negative else 1,
        unit,
        tuple(ways),
        bool(after) and text.rstrip(" )")[: -len(after)].endswith(" "),
    )


def _is_unit(text: str) -> bool:
    """A measure, a currency, or a word; letters and digits behind a number make a code."""
    return _is_measure(text) or (len(text) >= 3 and text.replace(" ", "").isalpha())


def _is_measure(text: str) -> bool:
    return text.casefold() in _MEASURES or _is_currency(text)


def _is_currency(text: str) -> bool:
    return text.casefold() in _CURRENCIES or any(unicodedata.category(letter) == "Sc" for letter in text)


def measures(texts: Iterable[str]) -> list[str]:
    """The units of measure and currencies that stand beside the numbers in texts.

    Example:
        >>> measures(["5 mg", "2 g", "7"]), measures(["5 A4", "7 x"])
        (['g', 'mg'], [])
    """
    found = [own for text in texts if (own := split(text)) is not None and own.unit]
    units = {own.unit for own in found if len(own.unit) > 1 or own.apart or not own.unit.isalpha()}  # 1a is a code
    return sorted(filter(_is_measure, units))


@dataclass(frozen=True)
class Parsed:
    """A column's texts as numbers.

    Attributes:
        values: (n,) float64, NaN where it is missing or no number.
        failed: texts that are no number → how often.
        ways: how numbers were written that are not plain → (how often, an example).
    """

    values: np.ndarray
    failed: Mapping[str, int]
    ways: Mapping[str, tuple[int, str]]


def is_code(text: str) -> bool:
    """Whether digits are a name: 007 and 7 differ, and so do 26 digits that float64 would make one number."""
    return len(text) > 1 and (text[0] == "0" or len(text) > _EXACT) and text.isdecimal()


def are_levels(odd: Iterable[str], failed: Iterable[str]) -> bool:
    """Whether texts that are no plain numbers are levels: some are numbers with a bound or a word that is no unit, and
    others hold digits, too, but are no number.

    Args:
        odd: texts that are not plain.
        failed: those of them that are no number in the column's notation.

    Example:
        >>> are_levels(["<=20", "20-50"], ["20-50"]), are_levels(["5 mg", "see p. 7"], ["see p. 7"])
        (True, False)
    """
    others = set(failed)
    parts = [split(text) for text in odd if text not in others]
    strange = any(own is not None and own.unit and not _is_measure(own.unit) for own in parts)
    bounds = any(own is not None and any("<" in way or ">" in way for way in own.ways) for own in parts)
    return (strange or bounds) and any(any(map(str.isdigit, text)) for text in others)


def only_bounds(texts: Iterable[str]) -> bool:
    """Whether all texts are bounds: below 20, and 20 or more."""
    return all(text[:1] in "<>≤≥" for text in texts)


def plain_numbers(values: pd.Series) -> np.ndarray | None:
    """Texts (n,) as float64, NaN where missing, if all are numbers as programs write them and none has a leading zero,
    which would be a code: the quick way, for most columns. Else None.

    Example:
        >>> plain_numbers(pd.Series(["1.5", None])), plain_numbers(pd.Series(["01"])), plain_numbers(pd.Series(["1,5"]))
        (array([1.5, nan]), None, None)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        cells = pa.chunked_array(pa.array(values, pa.large_string(), from_pandas=True))
        if pc.any(pc.match_substring_regex(cells, _NOT_PLAIN)).as_py():
            return None
        numbers = cells.cast(pa.float64())
    except (pa.ArrowException, TypeError):  # typed cells among text, or text that is no number
        return None
    made: np.ndarray = numbers.to_numpy(zero_copy_only=False)
    return made


def told_of_ways(found: Parsed) -> list[str]:
    """How numbers were written that are not plain, for a person."""
    return [f"{count:,} cells {way}, such as {text!r}, read as numbers" for way, (count, text) in found.ways.items()]


def told(found: Parsed, notation: Notation, guess: str = "") -> list[str]:
    """What a person should know of numbers that were read."""
    notes = told_of_ways(found)
    own = sum(count for way, (count, _) in found.ways.items() if notation.unit and f"with {notation.unit}" in way)
    bare = int((~np.isnan(found.values)).sum()) - own
    if notation.unit and bare:
        notes.append(f"{bare:,} cells without {notation.unit!r} count as if they had it")
    return [*notes, *([guess] if guess else [])]


def parse(values: pd.Series, notation: Notation) -> Parsed:
    """Plain texts (n,), NaN where missing, as numbers."""
    codes, texts = pd.factorize(values)
    plain = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64).copy()
    if notation.decimal == "," or notation.thousands == ".":  # 1.234 is plain to pandas, and here it is not
        plain = np.where([any(mark in str(text) for mark in ".,") for text in texts], np.nan, plain)
    times = np.bincount(codes[codes >= 0], minlength=len(texts))
    failed, ways = dict[str, int](), dict[str, tuple[int, str]]()
    for place in map(int, np.flatnonzero(np.isnan(plain))):
        text = str(texts[place])
        found = notation.parse(text)
        if found is None:
            failed[text] = int(times[place])
            continue
        plain[place], way = found
        if way:
            count, example = ways.get(way, (0, text))
            ways[way] = (count + int(times[place]), example)
    return Parsed(np.append(plain, np.nan)[codes], failed, ways)


def find_notation(
    texts: Iterable[str], decimal: str | None = None, thousands: str | None = None
) -> tuple[Notation, str]:
    """How different texts of a column that are numbers are written.

    Args:
        texts: each once; those that are no numbers count for nothing.
        decimal: where it is known.
        thousands: where it is known.

    Returns:
        The notation, and what was guessed, for a person: empty if nothing had to be.

    Example:
        >>> find_notation(["1,234", "12,500"])[0], find_notation(["55,3", "7"])[0].decimal
        (Notation(decimal='.', thousands=',', unit=''), ',')
    """
    parts = [own for text in texts if (own := split(text)) is not None]
    units = Counter(own.unit for own in parts if own.unit).most_common(1)
    found = units[0][0] if units else ""
    digits = [own.digits for own in parts]
    guess = ""
    if decimal is None and thousands is None:
        decimal, thousands, guess = _marks(digits)
    elif decimal is None:
        decimal = "," if thousands == "." else "."
    elif thousands is None:
        other = "," if decimal == "." else "."
        thousands = other if any(other in own for own in digits) else ""
    return Notation(decimal or ".", thousands or "", found), guess


def _marks(digits: list[str]) -> tuple[str, str, str]:
    """Decimal mark, mark of thousands, and what is a guess."""
    for own in digits:
        if "," in own and "." in own:  # the later one is the decimal mark
            return (",", ".", "") if own.rfind(",") > own.rfind(".") else (".", ",", "")
    for mark, other in ((",", "."), (".", ",")):
        marked = [own for own in digits if mark in own]
        if not marked:
            continue
        several = [own for own in marked if own.count(mark) > 1]
        if several:
            return other, mark, ""
        groups = all(_GROUPS[mark].fullmatch(own) and not own.startswith("0") for own in marked)
        if mark == ",":
            if groups:
                return ".", ",", f"{marked[0]!r} is read as {marked[0].replace(',', '')}; if not, say decimal: ','"
            return ",", "", ""
    return ".", "", ""
