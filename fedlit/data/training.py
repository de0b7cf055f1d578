"""What a client's training rows say about its columns of numbers, found for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlit.data.columns import blocks_of, plain_numbers
from fedlit.data.moments import Moments


@dataclass(frozen=True)
class Numbers:
    """What the training rows say about a column of numbers.

    Attributes:
        moments: the moments of its numbers; None if it has none.
        has_gaps: whether a number is missing.
        is_constant: whether all cells are the same number, or all are missing.
    """

    moments: Moments | None
    has_gaps: bool
    is_constant: bool


def numbers_of(frame: pd.DataFrame, names: Sequence[str], rows: np.ndarray) -> dict[str, Numbers]:
    """Describe columns of numbers.

    Args:
        frame: the rows of a client.
        names: the columns.
        rows: the positions of the training rows.

    Example:
        >>> frame = pd.DataFrame({"age": [40.0, 60.0, 0.0], "dose": [None, 1.5, 1.5]})
        >>> numbers_of(frame, ["age", "dose"], np.array([0, 1]))["dose"]
        Numbers(moments=Moments(count=1, mean=1.5, variance=0.0), has_gaps=True, is_constant=False)
    """
    described = dict[str, Numbers]()
    for block in blocks_of(names, len(frame)):
        columns = plain_numbers(frame, block, "training rows")[:, rows]
        has_gaps = np.isnan(columns).any(axis=1)
        is_constant = (columns == columns[:, :1]).all(axis=1)
        for name, moments, gaps, constant in zip(
            block, Moments.of_each(columns), has_gaps.tolist(), is_constant.tolist(), strict=True
        ):
            described[name] = Numbers(moments, gaps, constant or moments is None)
    return described
