"""Describes a column whose cells are numbers: as identifiers, a constant or measurements, which may
have a code for a missing value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.schema.codes import code_notes, shortened_notes
from fedlit.data.schema.column import Column
from fedlit.data.schema.detection import (
    ROWS_THAT_TELL,
    Detection,
    left_out,
    left_out_group,
    names_rows,
    single_value,
)
from fedlit.data.schema.looks import day_notes
from fedlit.data.schema.odd_numbers import far_notes, missing_notes

_NUMBER_OF_ROW = re.compile(r"[_\s.-](no|nr|number)$", re.I)
"""Matches names such as visit_number, which name rows only if each row has another number."""
_ASCENDING = 1.25
"""Whole numbers that ascend, and whose range is less than this multiple of the rows, number rows."""
_SAMPLE = 500
"""Cells from which it is seen whether numbers are codes."""
_COUNTS_ON = 0.9
"""The share of rows from which it is no chance that each has the number after the row before."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, as detectors see it.

    Attributes:
        name: The name of the column.
        numbers: (n,), NaN if missing.
        column: The description of the column, if its numbers are measurements.
        notes: Notes on how the numbers are written.
    """

    name: str
    numbers: np.ndarray
    column: Column
    notes: Sequence[Note] = ()

    @cached_property
    def values(self) -> np.ndarray:
        """The numbers that are not missing."""
        values: np.ndarray = self.numbers[~np.isnan(self.numbers)]
        return values

    @property
    def gaps(self) -> int:
        """The number of cells without a number."""
        return len(self.numbers) - len(self.values)

    @cached_property
    def are_whole(self) -> bool:
        """Whether all numbers are whole and finite."""
        values = self.values
        # The first values show nearly always that not all are whole.
        return bool(
            np.isfinite(values).all() and (values[:1000] % 1 == 0).all() and (values % 1 == 0).all()
        )

    @cached_property
    def different(self) -> int:
        """How many different whole numbers there are; 0 if not all numbers are whole."""
        return len(np.unique(self.values)) if self.are_whole else 0

    @property
    def unique(self) -> bool:
        """Whether whole numbers differ in so many rows that it is no chance."""
        return ROWS_THAT_TELL <= len(self.values) == self.different

    @cached_property
    def steps(self) -> np.ndarray:
        """The differences between numbers and those before them."""
        return np.diff(self.values)

    @cached_property
    def is_named(self) -> bool:
        """Whether the column is called as identifiers are."""
        return names_rows(self.name)


NumberDetector = Callable[[NumberColumn], Detection | None]


def empty(numbers: NumberColumn) -> Detection | None:
    """Leave out a column without a number."""
    return None if len(numbers.values) else left_out("empty", "has no value")


def constant(numbers: NumberColumn) -> Detection | None:
    """Leave out a column with one number."""
    values = numbers.values
    if values.min() < values.max():
        return None
    return left_out("constant", single_value(f"{values[0]:g}", numbers.gaps), numbers.notes)


def identifier(numbers: NumberColumn) -> Detection | None:
    """Leave out whole numbers that differ in each row and are called, or ascend, as identifiers."""
    if not numbers.unique:
        return None
    values = numbers.values
    ascends = np.ptp(values) < _ASCENDING * len(values) and bool((numbers.steps > 0).all())
    if not (numbers.is_named or ascends or _NUMBER_OF_ROW.search(numbers.name)):
        return None
    reason = "has a different value in each row, as an identifier has"
    return left_out("identifier", reason, numbers.notes)


def counter(numbers: NumberColumn) -> Detection | None:
    """Leave out numbers that count rows, from one on again and again."""
    if not numbers.is_named or not numbers.are_whole:
        return None
    if float((numbers.steps == 1).mean()) <= _COUNTS_ON:
        return None
    reason = "counts rows, from one on again and again"
    return left_out("identifier", reason, numbers.notes)


def group_number(numbers: NumberColumn) -> Detection | None:
    """Leave out numbers of people or things that have several rows."""
    rows = len(numbers.values)
    if not numbers.is_named or numbers.different <= max(ROWS_THAT_TELL, rows / 10):
        return None
    reason = f"names rows or people ({numbers.different:,} values in {rows:,} rows)"
    return left_out_group(numbers.name, reason, numbers.gaps)


DETECTORS: tuple[NumberDetector, ...] = (empty, constant, identifier, counter, group_number)
"""Each returns what a column is, or None; numbers that none of them recognises are measurements."""


def describe_numbers(
    name: str, numbers: np.ndarray, column: Column, notes: Sequence[Note] = ()
) -> Detection:
    """Describe numbers (n,), NaN if missing."""
    number_column = NumberColumn(name, numbers, column, notes)
    for detector in DETECTORS:
        detection = detector(number_column)
        if detection is not None:
            return detection
    return measurements(number_column)


def measurements(numbers: NumberColumn) -> Detection:
    """Describe numbers that measure or count something, and ask what is odd about them."""
    name = numbers.name
    values = numbers.values
    questions = [*missing_notes(name, values), *far_notes(name, values)]
    if numbers.are_whole and len(values) > ROWS_THAT_TELL:
        questions += _written_dates(name, values)
    if numbers.are_whole:
        questions += day_notes(name, values)
    typed = {name: numbers.numbers}
    notes = (*numbers.notes, *questions)
    return Detection(numbers.column, typed, notes, unique=numbers.unique)


def _written_dates(name: str, values: np.ndarray) -> list[Note]:
    """Ask whether whole numbers such as 20240131 are dates."""
    if values.min() < 19000101 or values.max() > 21001231:
        return []
    text = f"{values[0]:.0f} looks like a date. Then write types: {{{name}: {{date: '%Y%m%d'}}}}"
    return [Note(text, "date", fix={"types": {name: {"date": "%Y%m%d"}}})]


def ask_for_codes(values: pd.Series, numbers: np.ndarray) -> list[Note]:
    """Ask whether plain texts (n,) of numbers (n,) are codes."""
    if values.dtype.kind in "iufm":
        return []
    name = str(values.name)
    texts = values.iloc[:_SAMPLE].dropna().astype(str).tolist()
    if (numbers[:_SAMPLE] % 1 > 0).any():
        return code_notes(name, texts)
    return shortened_notes(name, texts)
