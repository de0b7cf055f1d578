"""Detects what a raw column holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from fedlit.data.reading.options import DEFAULTS, Declared, ReadOptions, check_declared
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.column import Column, as_numbers
from fedlit.data.schema.describe_numbers import ask_for_codes, describe_numbers
from fedlit.data.schema.describe_texts import describe_declared, describe_texts
from fedlit.data.schema.detection import Detection, TextColumn, left_out
from fedlit.data.schema.numbers import mark_of_thousands

_NESTED = (list, dict, set, tuple, np.ndarray)


def declared_column(name: str, declared: Declared, missing: tuple[str | float, ...] = ()) -> Column:
    """Make the column that a configuration declares.

    Raises:
        ConfigError: See :func:`fedlit.data.reading.options.check_declared`.

    Example:
        >>> declared_column("stage", ["I", "II"]).order, declared_column("ward", "categorical").kind
        (('I', 'II'), 'categorical')
    """
    check_declared(name, declared)
    if isinstance(declared, list):
        return Column("ordinal", missing=missing, order=tuple(map(str, declared)))
    if isinstance(declared, Mapping):
        return Column("date", missing=missing, form=str(declared["date"]))
    if declared in ("identifier", "text", "drop"):
        reasons = {"text": "free text", "drop": "dropped"}
        return Column("left out", why=reasons.get(declared, declared))
    return Column(declared, missing=missing)  # type: ignore[arg-type]  # checked above


def find(
    values: pd.Series,
    options: ReadOptions = DEFAULTS,
    declared: Column | None = None,
    head: str = "",
    not_missing: Mapping[str, str] | None = None,
) -> Detection:
    """Detect what a column (n,) holds.

    Args:
        values: The raw cells: text, or typed as the file has them.
        options: How the file is written.
        declared: The column that the configuration declares; then only its notation is detected.
        head: The text with which messages begin.
        not_missing: Words, by lower case, that mean missing elsewhere, but are values here.

    Raises:
        ConfigError: No format of declared dates is found.
        DataError: Most cells are not what is declared.

    Example:
        >>> find(pd.Series(["12 mg", "8 mg", "."])).column.notation.unit
        'mg'
        >>> find(pd.Series(["yes", "No", "yes"])).column.kind, find(pd.Series(["a", "b", "a"])).column.kind
        ('boolean', 'categorical')
    """
    if declared is not None and declared.kind == "left out":
        return Detection(declared)
    content = unsupported(values)
    if content:
        return left_out(content, f"holds {content}")
    column = declared or Column("numeric", missing=options.missing_in(str(values.name)))
    column = column.of_stored(values)
    if column.kind == "numeric":
        numbers = as_numbers(values, _are_usual(options) and not column.missing)
        if numbers is not None:
            return _plain(values, column.with_gaps(numbers), column, options, declared is not None)
    every = Cells.of(values)
    if {"+", "++", "+++"} & {*every.texts}:
        # Beside them, these are no words for a missing value.
        column = replace(column, spelling={mark: mark for mark in ("-", "--", "---")})
    if not_missing:
        column = replace(column, spelling={**column.spelling, **not_missing})
    cells, gaps = every.without(column.missing, column.not_missing)
    texts = TextColumn(cells, column, options, head)
    detection = describe_texts(texts) if declared is None else describe_declared(texts)
    return replace(detection, gaps=gaps, notes=(*detection.notes, *cells.notes))


def _are_usual(options: ReadOptions) -> bool:
    """Return whether numbers are written as programs write them, as far as the options say."""
    return options.decimal in (None, ".") and options.thousands in (None, ",")


def _plain(
    values: pd.Series, numbers: np.ndarray, column: Column, options: ReadOptions, is_declared: bool
) -> Detection:
    """Describe numbers (n,) that a file stores or that are written plainly."""
    name = str(values.name)
    notes = []
    if options.decimal is options.thousands is None:
        notes += mark_of_thousands(values, numbers)
    if is_declared:
        return Detection(column, {name: numbers}, tuple(notes))
    return describe_numbers(name, numbers, column, [*notes, *ask_for_codes(values, numbers)])


def unsupported(values: pd.Series) -> str:
    """Describe cells that are neither text nor numbers; return an empty text if there are none."""
    if values.dtype.kind == "c":
        return "complex numbers"
    if values.dtype != object and not isinstance(values.dtype, pd.ArrowDtype):
        return ""
    types = {type(cell) for cell in values}
    if any(issubclass(cell_type, _NESTED) for cell_type in types):
        return "nested values"
    return "binary values" if bytes in types else ""
