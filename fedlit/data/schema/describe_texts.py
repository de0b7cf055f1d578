"""Describes a column whose cells are texts, by an ordered list of detectors or as it is declared."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from fedlit.data.note import Note
from fedlit.data.schema.cells import FALSE, ONE_AND_ZERO, TRUE
from fedlit.data.schema.codes import are_whole
from fedlit.data.schema.detect_dates import dates
from fedlit.data.schema.detect_names import NAMES, categories
from fedlit.data.schema.detect_numbers import numbers
from fedlit.data.schema.detection import (
    Detection,
    Detector,
    TextColumn,
    converted,
    first_detection,
    left_out,
    quoted,
    single_value,
)
from fedlit.data.schema.numbers import find_notation, plain_numbers
from fedlit.errors import ConfigError

_RARE = 0.05
"""If fewer cells than this share have a value, or none, this says next to nothing about a row."""
_LEAST_DECLARED = 0.5
"""The least share of dates among the texts of a column that is declared as dates."""


def empty(texts: TextColumn) -> Detection | None:
    """Leave out a column without a value."""
    return None if texts.cells.texts else left_out("empty", "has no value")


def single(texts: TextColumn) -> Detection | None:
    """Leave out a column with one value, if not a good part of its cells are gaps."""
    cells = texts.cells
    if len({text.casefold() for text in cells.texts}) > 1:
        return None
    reason = single_value(quoted(cells.texts[0]), texts.gaps)
    if not _RARE < texts.filled / len(cells.codes) < 1 - _RARE:
        return left_out("constant", reason)
    notes = [Note(f"{reason}; used as value or gap", "one value")]
    return converted(cells, replace(texts.column, kind="categorical"), notes)


def yes_or_no(texts: TextColumn) -> Detection | None:
    """Describe words for yes and no."""
    folded = {text.casefold() for text in texts.cells.texts}
    has_both = bool(folded & TRUE) and bool(folded & FALSE)
    if not has_both or not folded <= TRUE | FALSE | ONE_AND_ZERO.keys():
        return None
    return converted(texts.cells, replace(texts.column, kind="boolean"))


DETECTORS: tuple[Detector, ...] = (empty, single, yes_or_no, dates, numbers, *NAMES)
"""Each returns what a column is, or None; a column that none of them recognises has categories."""


def describe_texts(texts: TextColumn) -> Detection:
    """Describe texts about which the configuration says nothing."""
    return first_detection(DETECTORS, texts) or categories(texts)


def describe_declared(texts: TextColumn) -> Detection:
    """Describe texts as the configuration declares them; only their notation is detected.

    Raises:
        ConfigError: No format of the declared dates is found.
    """
    cells = texts.cells
    column = texts.column
    notes = list[Note]()
    if column.kind == "date":
        detection = dates(texts, _LEAST_DECLARED)
        if detection is not None:
            return detection
        example = quoted(cells.texts[0]) if cells.texts else "no value"
        raise ConfigError(
            f"types: {cells.name}: expected dates, found {example}; write the format: "
            "{date: '%d/%m/%Y'}"
        )
    if column.kind == "categorical":
        whole_numbers = plain_numbers(pd.Series(cells.texts, dtype=object))
        # 1.1 and 1.10 are two levels.
        if whole_numbers is None or not are_whole(cells.texts):
            return categories(texts)
        column = replace(column, kind="coded")
    if column.kind == "numeric":
        options = texts.options
        notation, notes = find_notation(cells.texts, options.decimal, options.thousands)
        column = replace(column, notation=notation)
    return converted(cells, column, notes, texts.head)
