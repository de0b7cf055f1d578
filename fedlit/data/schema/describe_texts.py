"""Describes a column whose cells are texts: dates, numbers with a few words, identifiers, free text
or categories.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import ReadOptions
from fedlit.data.schema.cells import FALSE, ONE_AND_ZERO, TRUE, Cells
from fedlit.data.schema.codes import are_whole, code_notes, has_padded, is_code
from fedlit.data.schema.column import Column
from fedlit.data.schema.convert import conversion
from fedlit.data.schema.dates import PARTS, expand, find_format, look_like_dates, missing_date
from fedlit.data.schema.describe_numbers import describe_numbers
from fedlit.data.schema.detection import (
    ROWS_THAT_TELL,
    Detection,
    converted,
    left_out,
    left_out_group,
    names_rows,
    quoted,
    single_value,
)
from fedlit.data.schema.looks import text_notes
from fedlit.data.schema.numbers import find_notation, is_accounting, plain_numbers, split, units_of
from fedlit.data.schema.odd_numbers import asked_missing, far_notes
from fedlit.errors import ConfigError
from fedlit.show.text import counted, shorten

_BOUNDS = "<>≤≥"
_DIGIT = re.compile(r"\d")
_WORDS = re.compile(r"[^\W\d_]{2,}")
_MOST_UNREAD = 3
"""The largest number of different words in a tenth of the cells that say that there is no number; a
single word may do so in more cells."""
_FEWEST_NUMBERS = 10
"""The smallest number of different numbers beside such words."""
_FEW_LEVELS = 5
"""The number of different numbers below which each may be a level."""


def describe_texts(cells: Cells, column: Column, options: ReadOptions, head: str) -> Detection:
    """Describe texts about which the configuration says nothing."""
    texts = cells.texts
    folded = {text.casefold() for text in texts}
    rows = len(cells.codes)
    filled = int(cells.counts.sum())
    if not texts:
        return left_out("empty", "has no value")
    if len(folded) == 1:
        reason = single_value(quoted(texts[0]), rows - filled)
        if not 0.05 < filled / rows < 0.95:
            return left_out("constant", reason)
        notes = [Note(f"{reason}; used as value or gap", "one value")]
        return converted(cells, replace(column, kind="categorical"), notes)
    if folded & TRUE and folded & FALSE and folded <= TRUE | FALSE | ONE_AND_ZERO.keys():
        return converted(cells, replace(column, kind="boolean"))
    return (
        _as_dates(cells, column, head)
        or _as_numbers(cells, column, options)
        or _as_nothing(cells)
        or _as_categories(cells, column)
    )


def describe_declared(cells: Cells, column: Column, options: ReadOptions, head: str) -> Detection:
    """Describe texts as the configuration declares them; only their notation is detected.

    Raises:
        ConfigError: No format of the declared dates is found.
    """
    notes = list[Note]()
    if column.kind == "date":
        detection = _as_dates(cells, column, head, 0.5)
        if detection is None:
            example = quoted(cells.texts[0]) if cells.texts else "no value"
            raise ConfigError(
                f"types: {cells.name}: expected dates, found {example}; write the format: "
                "{date: '%d/%m/%Y'}"
            )
        return detection
    if column.kind == "categorical":
        numbers = plain_numbers(pd.Series(cells.texts, dtype=object))
        if numbers is None or not are_whole(cells.texts):  # 1.1 and 1.10 are two levels.
            return _as_categories(cells, column)
        column = replace(column, kind="coded")
    if column.kind == "numeric":
        notation, notes = find_notation(cells.texts, options.decimal, options.thousands)
        column = replace(column, notation=notation)
    return converted(cells, column, notes, head)


# ---------------------------------------------------------------------- dates


def _as_dates(cells: Cells, column: Column, head: str, least: float = 0.95) -> Detection | None:
    """Describe texts of which at least a share is dates; return None for other texts."""
    form = column.form
    notes = list[Note]()
    if not form:
        form, notes = find_format(cells.name, cells.texts, least)
    if form is None:
        return None
    column = replace(column, kind="date", form=form)
    times = pd.Series(cells.take(column.read(cells.texts), np.datetime64("NaT")))
    day = missing_date(times.dropna())
    if day is None:
        notes += _far_days(cells, times)
    else:
        is_day = (times == day).to_numpy()
        text = cells.texts[cells.codes[is_day][0]]
        notes.append(asked_missing(cells.name, f"{text!r} ({is_day.sum():,} cells)", [text]))
    late = int((times > pd.Timestamp.now()).sum())
    if "%y" in form and late:
        message = (
            f"{counted(late, 'day')} in the future, such as {times.max():%Y}, for years have "
            "two digits: write four"
        )
        notes.append(Note(message, "guess"))
    return converted(cells, replace(column, parts=_parts(times) or PARTS), notes, head)


def _far_days(cells: Cells, times: pd.Series) -> list[Note]:
    """Ask whether days far from all others are errors."""
    days = expand(times, "")[".elapsed"]
    far = [note for note in far_notes(cells.name, days) if note.kind == "far"]
    if not far:
        return []
    (setting,) = far[0].alternatives
    is_far = np.isin(days, setting["missing"][cells.name])
    texts = [cells.texts[code] for code in np.unique(cells.codes[is_far])]
    message = (
        f"{cells.shown(np.isin(cells.texts, texts))} is far from all other days; correct it, or "
        f"write missing: {{{cells.name}: {texts}}}"
    )
    return [Note(message, "far", alternatives=[{"missing": {cells.name: texts}}])]


def _parts(times: pd.Series) -> tuple[str, ...]:
    """Return the parts of dates that differ between rows."""
    columns = expand(times.dropna(), "")
    return tuple(part for part in PARTS if len(np.unique(columns[f".{part}"])) > 1)


# ---------------------------------------------------------------------- numbers


def _as_numbers(cells: Cells, column: Column, options: ReadOptions) -> Detection | None:
    """Describe texts that are numbers, but for a few words; return None for other texts."""
    texts = cells.texts
    counts = cells.counts
    notation, notes = find_notation(texts, options.decimal, options.thousands)
    column = replace(column, notation=notation)
    numbers = column.read(texts)
    lost = np.isnan(numbers)
    unread = [text for text, is_lost in zip(texts, lost, strict=True) if is_lost]
    if lost.all() or _are_codes(texts, int(counts.sum())) or _are_levels(texts, numbers, unread):
        return None
    if unread:
        units = units_of(cells)
        if len(units) > 1 and len(texts) > max(ROWS_THAT_TELL, counts.sum() / 10):
            return _several_units(cells, units)
        share = counts[~lost].sum() / counts.sum()
        most_unread = _MOST_UNREAD if share >= 0.9 else 1
        different = len(np.unique(numbers[~lost]))
        if len(unread) > most_unread or different < _FEWEST_NUMBERS:
            return _mostly_numbers(cells, column, lost) if share >= 0.5 else None
    notes = [*column.notes_on(cells, numbers), *notes, *code_notes(cells.name, texts)]
    column = replace(column, missing=(*column.missing, *(text.casefold() for text in unread)))
    return describe_numbers(cells.name, cells.take(column.with_gaps(numbers)), column, notes)


def _are_codes(texts: list[str], rows: int) -> bool:
    """Return whether digits are names: 007, or 008.45 in many rows."""
    return any(map(is_code, texts)) or (has_padded(texts) and len(texts) <= rows / 2)


def _are_levels(texts: list[str], numbers: np.ndarray, unread: list[str]) -> bool:
    """Return whether texts name levels, given their numbers (n,) and the texts that have none."""
    if all(map(is_accounting, texts)):  # (1) and (2)
        return True
    bounded = [text for text in texts if text[0] in _BOUNDS]
    if len(bounded) == len(texts):  # <20 and >20
        return True
    written = [number for number in map(split, texts) if number is not None]
    if any(number.level for number in written) and any(map(_DIGIT.search, unread)):
        return True  # <=20 and 20-50; 1a and 2b
    # <20, 20 and >20 would be one number.
    read = numbers[~np.isnan(numbers)]
    return bool(bounded) and len(np.unique(read)) < min(_FEW_LEVELS, len(read))


def _several_units(cells: Cells, units: Mapping[str, int]) -> Detection:
    """Leave out numbers of which some have another unit than others."""
    listing = " and ".join(f"{unit!r} ({count:,} cells)" for unit, count in units.items())
    message = f"left out: it has numbers in {listing}. Convert them to one unit, or drop it"
    first, *further = units
    factors = dict[str, Any]()
    for unit in further:
        factor_and_offset = conversion(unit, first)
        if factor_and_offset is not None:
            factor, offset = factor_and_offset
            factors[unit] = [factor, offset] if offset else factor
    either: list[dict[str, Any]] = [{"drop": [cells.name]}]
    if len(factors) == len(further):
        either.insert(0, {"convert": {cells.name: factors}})
    note = Note(message, "unit", alternatives=either)
    return Detection(Column("left out", why="several units"), notes=(note,))


def _mostly_numbers(cells: Cells, column: Column, lost: np.ndarray) -> Detection:
    """Describe a column that is treated as text although most of its cells are numbers."""
    name = cells.name
    message = (
        f"is treated as text, though {cells.counts[~lost].sum():,} of its "
        f"{cells.counts.sum():,} values are numbers; {cells.shown(lost)} are not"
    )
    unread = [cells.texts[position] for position in np.flatnonzero(lost)]
    either: list[dict[str, Any]] = [{"types": {name: kind}} for kind in ("categorical", "numeric")]
    if any(map(_DIGIT.search, unread)):
        kind = "level"
        message += f"; with types: {{{name}: numeric}}, these would be missing"
    else:
        kind = "text"
        message += f". If they mean that there is no value, write missing: {{{name}: {unread}}}"
        either.append({"missing": {name: unread}})
    detection = _as_nothing(cells) or _as_categories(cells, column)
    note = Note(message, kind, alternatives=either)
    return replace(detection, notes=(note, *detection.notes))


# ---------------------------------------------------------------------- identifiers and categories


def _as_nothing(cells: Cells) -> Detection | None:
    """Leave out identifiers and free text; return None for other columns."""
    texts = cells.texts[:1000]
    different = len(cells.texts)
    rows = int(cells.counts.sum())
    if rows < ROWS_THAT_TELL or different <= max(2, rows / 10):
        return None
    if np.mean([len(_WORDS.findall(text)) for text in texts]) >= 4:
        return left_out("free text", f"is free text, such as {quoted(texts[0])}")
    reason = f"has {different:,} different values in {rows:,} rows, such as {quoted(texts[0])}"
    if different > max(ROWS_THAT_TELL, rows / 2) and look_like_dates(cells.texts):
        message = (
            f"left out: it {reason}, which look like dates, but of no one format. Write them in one"
        )
        note = Note(message, "formats", alternatives=[{"drop": [cells.name]}])
        return Detection(Column("left out", why="unread dates"), notes=(note,))
    if different == rows:
        return left_out("identifier", reason)
    if names_rows(cells.name):
        return left_out_group(cells.name, reason, len(cells.codes) - rows)
    return None


def _as_categories(cells: Cells, column: Column) -> Detection:
    rows = int(cells.counts.sum())
    is_declared = column.kind == "categorical"
    usual_spelling, notes = spellings(cells)
    spelling = usual_spelling if notes else column.spelling
    if not is_declared and look_like_dates(cells.texts):
        message = "looks like dates, but of no one format, and is treated as categories"
        notes.append(Note(message, "formats"))
    if len(cells.texts) > max(ROWS_THAT_TELL, rows / 2):
        message = (
            f"has {len(cells.texts):,} different texts in {rows:,} cells, so its categories say "
            "next to nothing. Split it into columns, or drop it"
        )
        notes.append(Note(message, "different", alternatives=[{"drop": [cells.name]}]))
    if not is_declared:
        notes += text_notes(cells.name, cells.texts)
    column = Column("categorical", missing=column.missing, spelling=spelling)
    return converted(cells, column, notes)


def spellings(cells: Cells) -> tuple[dict[str, str], list[Note]]:
    """Map each text in lower case to its most frequent spelling; return a note if a text has
    several.

    Example:
        >>> spellings(Cells.of(pd.Series(["yes", "no", "yes", "Yes"])))[0]
        {'yes': 'yes', 'no': 'no'}
    """
    by_folded: dict[str, list[str]] = {}
    for position in np.argsort(-cells.counts, kind="stable"):
        text = cells.texts[position]
        by_folded.setdefault(text.casefold(), []).append(text)
    usual = {folded: texts[0] for folded, texts in by_folded.items()}
    equal = [" = ".join(map(repr, texts)) for texts in by_folded.values() if len(texts) > 1]
    if not equal:
        return usual, []
    message = f"spellings that are treated as one value: {shorten(equal)}"
    return usual, [Note(message, "spelling")]
