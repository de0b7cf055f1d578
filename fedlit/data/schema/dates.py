"""Detects dates and times in text, and expands them into numbers that a network can use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from pandas.tseries.api import guess_datetime_format

from fedlit.data.note import Note
from fedlit.data.schema.months import are_foreign, in_english

PARTS = ("year", "month", "weekday", "hour", "elapsed")
"""What a date becomes: its year, month (1 to 12), weekday (0 is Monday), hour, and days since
1970."""

_SHAPE = re.compile(
    r"\d{1,4}[-/. ] ?[\dA-Za-z]{1,9}[-/. ,]|[A-Za-z]{3,9} \d{1,2}, ?\d{4}|\d{4}-\d{2}(?!\d)"
    r"|\d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?$|\d{1,2}[A-Za-z]{3}\d{2}(\d{2})?(?![A-Za-z0-9])"
    r"|[A-Za-z]{3}-\d{2}$|[A-Za-z]{3,9}[- ]\d{4}$"
)
ZONE = re.compile(r":\d\d(\.\d+)? ?[-+](?!00(:?00)?$)\d\d(:?\d\d)?$")
_DAY_OR_YEAR = r"(?:[12]\d|3[01]|0?[1-9]|(?:1[5-9]|2[0-2])\d\d)"
_LIKE = re.compile(
    rf"{_DAY_OR_YEAR}[-/. ]+(?:{_DAY_OR_YEAR}|[A-Za-z]{{3,9}})[-/. ,]+(?:{_DAY_OR_YEAR}|\d\d)([ T,:]+\d\d?:.*)?$"
)
NUMBERED: dict[str, tuple[Literal["D", "s", "ms"], str]] = {
    "excel": ("D", "1899-12-30"),
    "unix": ("s", "1970-01-01"),
    "unix_ms": ("ms", "1970-01-01"),
}
"""Form of dates that are written as numbers → the unit of the numbers, and the day of 0."""
_FEW = 20
_LONGEST = 60
"""The largest number of characters in a date; pandas takes seconds to guess the format of a long
text."""
_TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p", "%B %Y", "%b %Y", "%b-%Y")
_OVER_A_DAY = re.compile(r"(?:2[5-9]|[3-9]\d|\d{3,}):\d{2}(?::\d{2})?")
"""Matches a duration that cannot be a time of day."""
# Days of spreadsheets and of SAS, which pandas does not guess; each may stand before a time.
_DAYS = (
    "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%m/%d/%Y", "%d/%m/%Y", "%d-%b-%y", "%d%b%Y", "%d%b%y", "%b-%y",
    "%d. %b %Y", "%d %b %Y", "%d-%b-%Y", "%d. %b %y", "%d %b %y",
)  # fmt: skip
_TIME_OF_DAY = re.compile(
    r"(?P<gap>[ T:,]{1,3})\d{1,2}:\d{2}(?P<seconds>:\d{2})?(?P<noon> ?[AP]M)?$", re.I
)
_NO_DAYS = pd.to_datetime([
    "1800-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1970-01-01",
    "2099-12-31", "2199-12-31", "2999-12-31", "9999-12-31",
])  # fmt: skip


def find_format(
    name: str, texts: Sequence[str], least: float = 0.95
) -> tuple[str | None, list[Note]]:
    """Detect the format in which distinct texts are dates.

    Args:
        name: The name of the column, for what to write if the guess is wrong.
        texts: The distinct texts.
        least: The smallest share of them that has to fit.

    Returns:
        The format (``ISO8601`` for any of that standard) or None, and a note if it had to be
        guessed.

    Example:
        >>> find_format("t", ["2024-01-31"]), find_format("t", ["31.1.2024", "1.2.2024"])[0], find_format("t", ["12"])
        (('ISO8601', []), '%d.%m.%Y', (None, []))
        >>> find_format("t", ["2/24/96 14:38"])[0], find_format("t", ["01JAN2020"])[0]
        ('%m/%d/%y %H:%M', '%d%b%Y')
        >>> form, (note,) = find_format("seen", ["01/02/2024", "03/04/2024"])
        >>> form, note.kind
        ('%m/%d/%Y', 'guess')
    """
    sample = list(texts[:: max(1, len(texts) // 2000)])
    if are_foreign(sample):
        sample = in_english(sample)
    if len(sample) >= 5:
        least = min(least, 1 - 1 / len(sample))  # One text may be a slip.
    if any(map(_OVER_A_DAY.fullmatch, sample)):
        return None, []
    if not sample or sum(bool(_SHAPE.match(text)) for text in sample) < least * len(sample):
        return None, []
    if _fit(sample, "ISO8601") == 1:
        return "ISO8601", []
    forms = dict.fromkeys(("ISO8601", *_guessed(sample[:3]), *_TIMES, *_with_times(sample[:3])))
    # A few texts are nearly always enough to see that a format does not fit.
    few = sample[:: 1 + len(sample) // _FEW]
    shares = {form: _fit(sample, form) for form in forms if _fit(few, form) > 0}
    if not shares:
        return None, []
    best = max(shares.values())
    if best < least:
        return None, []
    first, *rest = [form for form, share in shares.items() if share == best]
    for form in rest:
        if sorted(form) == sorted(first):
            question = (
                f"{sample[0]!r} is read as month/day; if it is day/month, write types: "
                f"{{{name}: {{date: {form!r}}}}}"
            )
            orders = [{"types": {name: {"date": order}}} for order in (first, form)]
            return first, [Note(question, "guess", alternatives=orders)]
    return first, []


def _guessed(texts: Sequence[str]) -> list[str]:
    """Return formats in which single texts may be dates. With points between its parts, a date
    begins with the day.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns if a date can be read in one order only.
        short = [text for text in texts if len(text) <= _LONGEST]
        forms = [guess_datetime_format(text, dayfirst=False) for text in short]
        forms += [guess_datetime_format(text, dayfirst=True) for text in short]
    return [form for form in forms if form and not form.startswith(("%m.", "%Y-%d", "%Y/%d"))]


def _with_times(texts: Sequence[str]) -> list[str]:
    """Return the formats of days, with the times of day that single texts have behind their day."""
    forms = list[str]()
    for ending in dict.fromkeys(map(_time_format, texts)):
        forms += [day + ending for day in _DAYS]
    return forms


def _time_format(text: str) -> str:
    """Return the format of the time of day behind a day; "" if there is none."""
    time = _TIME_OF_DAY.search(text)
    if time is None:
        return ""
    hours = "%I:%M" if time["noon"] else "%H:%M"
    seconds = ":%S" if time["seconds"] else ""
    noon = re.sub("[AP]M", "%p", time["noon"] or "", flags=re.I)
    return f"{time['gap']}{hours}{seconds}{noon}"


def _fit(texts: list[str], form: str) -> float:
    """Return the share of texts that are dates in a format."""
    years = parse_dates(texts, form).dt.year
    # A short text such as 1234-01 is a code.
    is_short = np.array([len(text) <= 7 for text in texts])
    return float((years.between(1900, 2100) | (years.between(1500, 2300) & ~is_short)).mean())


def look_like_dates(texts: Sequence[str]) -> bool:
    """Return whether most of the distinct texts could be dates, of whatever format.

    Example:
        >>> look_like_dates(["31.12.2019", "2019/12/31"]), look_like_dates(["123-45-6789", "555-123-4567"])
        (True, False)
    """
    some = texts[:2000]
    return sum(bool(_LIKE.match(text)) for text in some) > 0.9 * len(some)


def missing_date(times: pd.Series) -> pd.Timestamp | None:
    """Return a day that may stand for a missing value: the first of 1900 or 1970, or the last of a
    century, if it occurs several times and is further from all other days than these are from each
    other.

    Example:
        >>> missing_date(pd.Series(pd.to_datetime(["1900-01-01", "1900-01-01", "2024-01-01", "2024-05-01"]))).year
        1900
    """
    for day in (times.min(), times.max()):
        days = times[times != day]
        if day not in _NO_DAYS or not 0 < len(days) < len(times) - 1:
            continue
        if min(abs(days.min() - day), abs(days.max() - day)) > days.max() - days.min():
            return pd.Timestamp(day)
    return None


def parse_dates(texts: Collection[str], form: str | None) -> pd.Series:
    """Parse texts (n,) as times of Greenwich without a time zone; NaT if a text is no date."""
    if form is not None and ("%b" in form or "%B" in form):
        texts = in_english(list(texts), short="%b" in form)
    values = pd.Series(texts, dtype=object)
    if form in NUMBERED:
        unit, origin = NUMBERED[form]
        numbers = pd.to_numeric(values, errors="coerce")
        times: pd.Series = pd.to_datetime(numbers, unit=unit, origin=origin, errors="coerce")
        return times
    return pd.to_datetime(values, format=form, errors="coerce", utc=True).dt.tz_localize(None)


def expand(times: pd.Series, name: str) -> dict[str, np.ndarray]:
    """Expand times (n,) into float64 columns ``<name>.<part>``, one for each of :data:`PARTS`; NaN
    if missing.

    Example:
        >>> columns = expand(pd.Series(pd.to_datetime(["1970-01-02 06:00"])), "seen")
        >>> [column.item() for column in columns.values()]  # year, month, weekday, hour, elapsed
        [1970.0, 1.0, 4.0, 6.0, 1.25]
    """
    fields = times.dt
    hour = fields.hour + fields.minute / 60 + fields.second / 3600
    seconds = times.to_numpy("datetime64[s]")  # Nanoseconds begin in 1677.
    elapsed = np.where(times.isna(), np.nan, seconds.astype(np.int64).astype(np.float64) / 86400)
    columns = (fields.year, fields.month, fields.day_of_week, hour, elapsed)
    return {
        f"{name}.{part}": np.asarray(column, np.float64)
        for part, column in zip(PARTS, columns, strict=True)
    }
