"""Describes a column whose cells are numbers: as identifiers, a constant or measurements, which may
have a code for a missing value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
_SAMPLE = 500
"""Cells from which it is seen whether numbers are codes."""
_COUNTS_ON = 0.9
"""The share of rows from which it is no chance that each has the number after the row before."""


def describe_numbers(
    name: str, numbers: np.ndarray, column: Column, notes: Sequence[Note] = ()
) -> Detection:
    """Describe numbers (n,), NaN if missing."""
    values = numbers[~np.isnan(numbers)]
    gaps = len(numbers) - len(values)
    if not len(values):
        return left_out("empty", "has no value")
    if values.min() == values.max():
        return left_out("constant", single_value(f"{values[0]:g}", gaps), notes)
    # The first values show nearly always that not all are whole.
    are_whole = bool(
        np.isfinite(values).all() and (values[:1000] % 1 == 0).all() and (values % 1 == 0).all()
    )
    different = len(np.unique(values)) if are_whole else 0
    unique = ROWS_THAT_TELL <= len(values) == different
    is_named = names_rows(name)
    close = unique and np.ptp(values) < 1.25 * len(values) and bool((np.diff(values) > 0).all())
    if unique and (is_named or close or _NUMBER_OF_ROW.search(name)):
        reason = "has a different value in each row, as an identifier has"
        return left_out("identifier", reason, notes)
    if is_named and are_whole and float((np.diff(values) == 1).mean()) > _COUNTS_ON:
        return left_out("identifier", "counts rows, from one on again and again", notes)
    if is_named and different > max(ROWS_THAT_TELL, len(values) / 10):
        reason = f"names rows or people ({different:,} values in {len(values):,} rows)"
        return left_out_group(name, reason, gaps)
    questions = [*missing_notes(name, values), *far_notes(name, values)]
    if are_whole and len(values) > ROWS_THAT_TELL:
        questions += _written_dates(name, values)
    if are_whole:
        questions += day_notes(name, values)
    return Detection(column, {name: numbers}, (*notes, *questions), unique=unique)


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
