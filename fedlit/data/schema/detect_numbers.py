"""Detects numbers among texts: all of them, or all but for a few words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedlit.data.note import Note
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.codes import code_notes, has_padded, is_code
from fedlit.data.schema.column import Column
from fedlit.data.schema.convert import conversion
from fedlit.data.schema.describe_numbers import describe_numbers
from fedlit.data.schema.detect_names import name_or_category
from fedlit.data.schema.detection import ROWS_THAT_TELL, Detection, TextColumn
from fedlit.data.schema.numbers import find_notation, is_accounting, split, units_of

_BOUNDS = "<>≤≥"
_DIGIT = re.compile(r"\d")
_MOST_UNREAD = 3
"""The largest number of different words in a tenth of the cells that say that there is no number; a
single word may do so in more cells."""
_FEWEST_NUMBERS = 10
"""The smallest number of different numbers beside such words."""
_FEW_LEVELS = 5
"""The number of different numbers below which each may be a level."""


def numbers(texts: TextColumn) -> Detection | None:
    """Describe texts that are numbers, but for a few words; return None for other texts."""
    cells = texts.cells
    counts = cells.counts
    options = texts.options
    notation, notes = find_notation(cells.texts, options.decimal, options.thousands)
    column = replace(texts.column, notation=notation)
    read = column.read(cells.texts)
    lost = np.isnan(read)
    unread = [cells.texts[position] for position in np.flatnonzero(lost)]
    if lost.all() or _are_codes(cells.texts, texts.filled):
        return None
    if _are_levels(cells.texts, read, unread):
        return None
    if unread:
        units = units_of(cells)
        if len(units) > 1 and len(cells.texts) > max(ROWS_THAT_TELL, counts.sum() / 10):
            return _several_units(cells, units)
        share = counts[~lost].sum() / counts.sum()
        most_unread = _MOST_UNREAD if share >= 0.9 else 1
        different = len(np.unique(read[~lost]))
        if len(unread) > most_unread or different < _FEWEST_NUMBERS:
            return _mostly_numbers(replace(texts, column=column), lost) if share >= 0.5 else None
    notes = [*column.notes_on(cells, read), *notes, *code_notes(cells.name, cells.texts)]
    column = replace(column, missing=(*column.missing, *(text.casefold() for text in unread)))
    return describe_numbers(cells.name, cells.take(column.with_gaps(read)), column, notes)


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


def _mostly_numbers(texts: TextColumn, lost: np.ndarray) -> Detection:
    """Describe a column that is treated as text although most of its cells are numbers."""
    cells = texts.cells
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
    detection = name_or_category(texts)
    note = Note(message, kind, alternatives=either)
    return replace(detection, notes=(note, *detection.notes))
