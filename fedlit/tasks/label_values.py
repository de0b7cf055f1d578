"""The labels of a target, as its cells hold them: their types and their order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from numbers import Real
from typing import TypeVar

import numpy as np
import pandas as pd

from fedlit.errors import DataError
from fedlit.types import Label

Cell = TypeVar("Cell")


def type_of(label: object) -> str:
    """Return the type of a label in words: ``true/false``, ``numbers``, ``text``, or the name of
    the Python type.
    """
    if isinstance(label, bool | np.bool_):
        return "true/false"
    if isinstance(label, Real):
        return "numbers"
    if isinstance(label, str):
        return "text"
    return type(label).__name__


def types_of(target: pd.Series) -> dict[str, Label]:
    """Map each type to its first label. Python considers True equal to 1, so types are counted
    separately even for equal labels.
    """
    labels: list[Label]
    if target.dtype == object:
        labels = target.dropna().tolist()
    elif target.dtype == "category":
        labels = target.dropna().unique().tolist()
    else:  # All cells with a value are of one type.
        labels = [*islice((label for label in target if not pd.isna(label)), 1)]
    first = {type(label): label for label in reversed(labels)}
    return {type_of(label): label for label in first.values()}


def plain(label: Cell) -> Cell:
    """Return a label as a Python value."""
    if isinstance(label, np.generic):
        python_value: Cell = label.item()
        return python_value
    return label


def sorted_labels(subject: str, labels: Iterable[Label], positive: Label | None) -> list[Label]:
    """Return each label once, sorted; if there are two, the positive one is last."""
    distinct = sorted(dict.fromkeys(labels))
    if len(distinct) == 2 and positive is not None:
        if positive not in distinct:
            raise DataError(
                f"{subject}: expected the positive label to be one of {distinct}, found {positive!r}"
            )
        distinct.sort(key=lambda label: bool(label == positive))
    return distinct
