"""The rows of several clients' tables with the same columns, one table below the other, so that each
column is computed for all of these clients at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MOST_CELLS = 2**22
"""The largest number of cells that are computed at once: 32 MiB of float64."""


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """The rows of some of several tables.

    Attributes:
        members: the positions of these tables among all.
        frame: the rows of the first one, then those of the second, and so on.
        starts: (members,) the position of the first row of each.
        sizes: (members,) the number of rows of each.
    """

    members: Sequence[int]
    frame: pd.DataFrame
    starts: np.ndarray
    sizes: np.ndarray

    @property
    def slices(self) -> Iterator[tuple[int, slice]]:
        """Each member, with the slice of its rows."""
        ends = (self.starts + self.sizes).tolist()
        for member, start, end in zip(self.members, self.starts.tolist(), ends, strict=True):
            yield member, slice(start, end)


def grouped_rows(
    frames: Sequence[pd.DataFrame], kinds: Sequence[Hashable]
) -> Iterator[GroupedRows]:
    """Group tables that have the same columns of the same types.

    Args:
        frames: the rows of each client.
        kinds: what else tables of one group have in common.

    Example:
        >>> import pandas as pd
        >>> frames = [pd.DataFrame({"age": [age]}) for age in (40.0, 60, 80.0)]
        >>> [(group.members, group.frame["age"].tolist()) for group in grouped_rows(frames, "aaa")]
        [([0, 2], [40.0, 80.0]), ([1], [60])]
    """
    import pandas as pd

    same_columns = dict[Hashable, list[int]]()
    for position, (frame, kind) in enumerate(zip(frames, kinds, strict=True)):
        key = tuple(frame.columns.tolist()), tuple(frame.dtypes.tolist()), kind
        same_columns.setdefault(key, []).append(position)
    for positions in same_columns.values():
        for run in runs([frames[position].size for position in positions]):
            members = positions[run]
            parts = [frames[member] for member in members]
            # A large table is not copied.
            frame = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
            sizes = np.array([*map(len, parts)])
            yield GroupedRows(members, frame, np.cumsum(sizes) - sizes, sizes)


def runs(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield slices of neighbours that together have at most :data:`MOST_CELLS` cells, or are one.

    Example:
        >>> [*runs([4_000_000, 100_000, 9_000_000, 5])]
        [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start = 0
    cells = 0
    for position, size in enumerate(sizes):
        if position > start and cells + size > MOST_CELLS:
            yield slice(start, position)
            start = position
            cells = 0
        cells += size
    if sizes:
        yield slice(start, len(sizes))
