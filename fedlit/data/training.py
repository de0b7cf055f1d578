"""What clients' training rows say about their columns of numbers, found for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlit.data.columns import blocks_of, plain_numbers
from fedlit.data.grouped import grouped_rows
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
    (described,) = _numbers_of_each(frame, names, [rows])
    return described


def numbers_of_tables(
    frames: Sequence[pd.DataFrame],
    rows: Sequence[np.ndarray],
    categorical: Sequence[tuple[str, ...]],
) -> list[dict[str, Numbers]]:
    """Describe the columns of numbers of each client.

    Args:
        frames: the rows of each client.
        rows: the positions of its training rows.
        categorical: its columns of categories.
    """
    described: list[dict[str, Numbers]] = [{} for _ in frames]
    for group in grouped_rows(frames, categorical):
        coded = {*categorical[group.members[0]]}
        types = zip(map(str, group.frame), group.frame.dtypes.tolist(), strict=True)
        names = [name for name, dtype in types if dtype.kind in "iuf" and name not in coded]
        starts = zip(group.members, group.starts.tolist(), strict=True)
        positions = [start + rows[member] for member, start in starts]
        numbers = _numbers_of_each(group.frame, names, positions)
        for member, member_numbers in zip(group.members, numbers, strict=True):
            described[member] = member_numbers
    return described


def _numbers_of_each(
    frame: pd.DataFrame, names: Sequence[str], rows: Sequence[np.ndarray]
) -> list[dict[str, Numbers]]:
    """Describe columns of numbers at each client.

    Args:
        frame: the rows of all clients.
        names: the columns.
        rows: the positions of each client's training rows.
    """
    described: list[dict[str, Numbers]] = [{} for _ in rows]
    positions = np.concatenate(rows)
    sizes = np.array([*map(len, rows)])
    ends = np.cumsum(sizes)
    starts = ends - sizes
    filled = sizes > 0

    def number_of(flags: np.ndarray) -> np.ndarray:
        """Return how many of its flags (columns, n) each client has: (columns, clients)."""
        totals = np.zeros((len(flags), flags.shape[1] + 1), np.int64)
        np.cumsum(flags, axis=1, out=totals[:, 1:])
        return totals[:, ends] - totals[:, starts]

    for block in blocks_of(names, len(frame)):
        columns = plain_numbers(frame, block, "training rows")[:, positions]
        present = ~np.isnan(columns)
        counts = number_of(present)
        moments = Moments.of_runs(columns[present], counts.ravel())
        first = np.repeat(columns[:, starts[filled]], sizes[filled], axis=1)
        has_gaps = (counts < sizes).ravel().tolist()
        is_constant = (number_of(columns != first) == 0).ravel().tolist()
        numbers = [
            Numbers(column, gaps, constant or column is None)
            for column, gaps, constant in zip(moments, has_gaps, is_constant, strict=True)
        ]
        for position, name in enumerate(block):
            of_clients = numbers[position * len(rows) : (position + 1) * len(rows)]
            for client, client_numbers in zip(described, of_clients, strict=True):
                client[name] = client_numbers
    return described
