"""Numbers that are written in several parts: 27:17:54, 1 days 02:03:04, 5'11", 48.1N, 2.5K beside
1M.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_SECONDS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_WHOLE = r"\d{1,9}"
_DECIMAL = r"\d{1,9}(?:\.\d{1,9})?"
_CLOCK = re.compile(
    r"(?:(?P<days>[-+]?\d{1,9}) days?,? )?(?P<sign>[-+]?)(?P<hours>\d{1,5}):(?P<minutes>[0-5]\d)"
    r"(?::(?P<seconds>[0-5]\d(?:\.\d{1,9})?))?"
)
_ISO = re.compile(
    rf"P(?=[\dT])(?:(?P<weeks>{_WHOLE})W)?(?:(?P<days>{_WHOLE})D)?"
    rf"(?:T(?=\d)(?:(?P<hours>{_WHOLE})H)?(?:(?P<minutes>{_WHOLE})M)?(?:(?P<seconds>{_DECIMAL})S)?)?"
)
_WORDS = re.compile(
    rf"(?=\d)(?:(?P<days>{_WHOLE}) ?d(?:ays?)?,? ?)?(?:(?P<hours>{_WHOLE}) ?h(?:(?:ou)?rs?)?,? ?)?"
    rf"(?:(?P<minutes>{_WHOLE}) ?m(?:in(?:ute)?s?)?,? ?)?(?:(?P<seconds>{_DECIMAL}) ?s(?:ec(?:ond)?s?)?)?",
    re.I,
)
_SEVERAL = re.compile(r":|^P|\d ?[dhm][a-z]{0,6},? ?\d", re.I)
_FEET = re.compile(
    rf"(?P<feet>{_WHOLE}) ?(?:['’′]|ft|feet)\.? ?(?:(?P<inches>{_DECIMAL}) ?(?:[\"”″]|''|in(?:ch(?:es)?)?\.?)?)?",
    re.I,
)
_DEGREES = re.compile(
    rf"(?P<degrees>{_DECIMAL}) ?(?:° ?)?(?:(?P<minutes>{_DECIMAL}) ?['’′] ?)?"
    rf"(?:(?P<seconds>{_DECIMAL}) ?[\"”″] ?)?(?P<side>[NSEW])"
)
_LARGE = re.compile(rf"(?P<sign>-?)[$€£]?(?P<digits>{_DECIMAL}) ?(?P<size>k|m|b|bn)?", re.I)
_SIZES = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "bn": 1e9}
_NEARLY_ALL = 0.95
_SAMPLE = 200
"""Texts from which the notation of numbers is seen."""


def seconds_of(text: str) -> float:
    """Return a duration in seconds; NaN if the text is none.

    Example:
        >>> seconds_of("27:17:54"), seconds_of("1 days 02:03:04"), seconds_of("-1 days +23:00:00"), seconds_of("P1DT2H")
        (98274.0, 93784.0, -3600.0, 93600.0)
        >>> seconds_of("7h 30m"), seconds_of("7:30 PM")
        (27000.0, nan)
    """
    match = _CLOCK.fullmatch(text) or _ISO.fullmatch(text) or _WORDS.fullmatch(text)
    if match is None:
        return np.nan
    parts = match.groupdict()
    sign = -1 if parts.pop("sign", "") == "-" else 1
    days = float(parts.pop("days") or 0) * _SECONDS["days"]
    return days + sign * sum(float(part) * _SECONDS[name] for name, part in parts.items() if part)


def inches_of(text: str) -> float:
    r"""Return feet and inches in inches; NaN if the text has none.

    Example:
        >>> inches_of("5'11\""), inches_of("6 ft"), inches_of("511")
        (71.0, 72.0, nan)
    """
    match = _FEET.fullmatch(text)
    if match is None:
        return np.nan
    return 12 * float(match["feet"]) + float(match["inches"] or 0)


def degrees_of(text: str) -> float:
    """Return degrees, below zero in the south and west; NaN if the text has none.

    Example:
        >>> degrees_of("48.5N"), degrees_of("3°30'W"), degrees_of("north")
        (48.5, -3.5, nan)
    """
    match = _DEGREES.fullmatch(text)
    if match is None:
        return np.nan
    degrees = (
        float(match["degrees"])
        + float(match["minutes"] or 0) / 60
        + float(match["seconds"] or 0) / 3600
    )
    return -degrees if match["side"] in "SW" else degrees


def amount_of(text: str) -> float:
    """Return a number with K, M or B behind it as a plain one; NaN if the text is none.

    Example:
        >>> amount_of("2.5K"), amount_of("$1.2M"), amount_of("7"), amount_of("7 kg")
        (2500.0, 1200000.0, 7.0, nan)
    """
    match = _LARGE.fullmatch(text)
    if match is None:
        return np.nan
    amount = float(match["digits"]) * _SIZES[(match["size"] or "").lower()]
    return -amount if match["sign"] else amount


def _has_parts(texts: Sequence[str]) -> bool:
    return any(map(_SEVERAL.search, texts))


def _has_feet(texts: Sequence[str]) -> bool:
    return any("'" in text or "’" in text or "′" in text or "f" in text for text in texts)


def _has_fractions_of_degrees(texts: Sequence[str]) -> bool:
    """Return whether texts cannot be names: 3W may be a ward."""
    return any("." in text or "°" in text for text in texts)


def _has_sizes(texts: Sequence[str]) -> bool:
    """Return whether several of K, M and B stand behind numbers, one of which has a decimal point.
    Otherwise 1K and 2M may be names.
    """
    sizes = {
        match["size"].lower()
        for text in texts
        if (match := _LARGE.fullmatch(text)) and match["size"]
    }
    return len(sizes) > 1 and any("." in text for text in texts)


@dataclass(frozen=True)
class Way:
    """A way to write numbers in several parts.

    Attributes:
        read: returns the number that a text is, or NaN.
        is_sure: returns whether texts that are read so are hardly anything else.
        unit: the unit of the numbers, in words.
    """

    read: Callable[[str], float]
    is_sure: Callable[[Sequence[str]], bool]
    unit: str


WAYS = {
    "duration": Way(seconds_of, _has_parts, "seconds"),
    "feet": Way(inches_of, _has_feet, "inches"),
    "degrees": Way(
        degrees_of, _has_fractions_of_degrees, "degrees, below zero in the south and west"
    ),
    "amount": Way(amount_of, _has_sizes, "ones: K is a thousand, M a million"),
}


def way_of(texts: Sequence[str]) -> str:
    """Return the key of :data:`WAYS` in which nearly all texts are written; "" if they are written
    in none.

    Example:
        >>> way_of(["7:07", "27:14"]), way_of(["1.5K", "2M"]), way_of(["3W", "4E"]), way_of(["1.5", "2"])
        ('duration', 'amount', '', '')
    """
    some = texts[:_SAMPLE]
    for name, notation in WAYS.items():
        numbers = sum(not np.isnan(notation.read(text)) for text in some)
        if some and numbers >= _NEARLY_ALL * len(some) and notation.is_sure(some):
            return name
    return ""
