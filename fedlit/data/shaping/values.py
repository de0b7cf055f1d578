"""The values and the ranges of numbers of a column by which rows are dealt."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from fedlit.errors import DataError, expect


def codes_of(column: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """Return the position of each row's value among the sorted values (n,), and the values."""
    values = sorted(column.unique().tolist())
    codes: np.ndarray = pd.Index(values).get_indexer(pd.Index(column))
    return codes, values


def ranges_of(numbers: pd.Series, cuts: list[float]) -> pd.Series:
    """Return the name of the range of each number (n,). Missing values stay missing.

    Raises:
        DataError: The column holds other values than numbers.
    """
    are_numbers = numbers.dtype.kind in "iuf"
    expected = f"numbers in {numbers.name}"
    first = next(iter(numbers.dropna()), None)
    expect(are_numbers, "partition: deal: cuts", expected, first, "leave cuts out", DataError)
    edges = [f"{cut:g}" for cut in cuts]
    middle = [f"{low}-to-{high}" for low, high in itertools.pairwise(edges)]
    names = [f"below-{edges[0]}", *middle, f"from-{edges[-1]}"]
    bounds = [-np.inf, *cuts, np.inf]
    return pd.cut(numbers, bounds, right=False, labels=names, ordered=False).astype(object)
