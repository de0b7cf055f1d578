"""Federations whose clients lose columns: some columns stay common, the others are dealt to single clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import ClientTable
from fedlit.errors import DataError, expect
from fedlit.seeding import derive_seed


@dataclass(eq=False)
class ColumnSplit(Source):
    """The clients of another source, which have the same columns, with a share of these in common and the rest dealt
    out: each other column stays at one client alone (the experiments of Mori et al. 2022, arXiv:2203.02108).

    Args:
        source: a source whose clients have the same columns.
        common: the share of the columns that all clients keep, in (0, 1).
        ways: the number of ways of dealing columns: the run with seed n uses way n modulo this number, so that seeds
            0:14 with 3 ways are five runs of each. None for a new way with each seed.

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> dealt = Partition(Bundled(clients=["wine"]), clients=2)
        >>> for table in ColumnSplit(dealt, common=0.3).tables(seed=0):
        ...     print(table.name, len(table.features.columns))
        c01 9
        c02 8
    """

    name: ClassVar[str] = "column split"
    about: ClassVar[str] = "another source's clients, with some columns in common and the others dealt out"

    source: Source
    common: float = 0.3
    ways: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(0 < self.common < 1, "column split: common", "a share above 0 and below 1", self.common)
        expect(self.ways is None or self.ways >= 1, "column split: ways", "at least 1", self.ways)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and remove columns; ``seed`` determines the way."""
        tables = sorted(self.source.tables(seed), key=lambda table: table.name)
        columns = list(tables[0].features)
        if other := [table.name for table in tables if list(table.features) != columns]:
            raise DataError(
                f"column split: expected the columns of {tables[0].name} at {other[0]}, found others; choose clients "
                "that have the same columns"
            )
        kept = max(1, round(self.common * len(columns)))
        if len(columns) - kept < len(tables):
            raise DataError(
                f"column split: expected at least one column of its own for each of {len(tables)} clients, found "
                f"{len(columns)} columns of which {kept} are common; take fewer clients or a smaller share"
            )
        way = seed if self.ways is None else seed % self.ways
        order = np.random.default_rng(derive_seed(way, "columns")).permutation(len(columns))  # the common ones first
        split = []
        for table, own in zip(tables, np.array_split(order[kept:], len(tables)), strict=True):
            split.append(table.only([columns[place] for place in np.sort([*order[:kept], *own])]))
        return check_tables(split)
