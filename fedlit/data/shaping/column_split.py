"""Federations whose clients lose columns: some stay common, the others are dealt out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import ClientTable
from fedlit.errors import DataError, expect
from fedlit.seeding import derive_seed

__all__ = ["ColumnSplit"]

DRAWS = 100
"""Ways to deal columns of which one is taken by correlation."""
_PLACES = {"random": 0, "minimum": 0, "median": DRAWS // 2, "maximum": -1}
"""Ways, and their places among these in the order of correlations."""


@dataclass(eq=False)
class ColumnSplit(Source):
    """The clients of another source, which have the same columns, with a share of these in common and the rest dealt
    out: each other column stays at one client alone (the experiments of Mori et al. 2022, arXiv:2203.02108).

    Args:
        source: whose clients have the same columns.
        common: the share of the columns that all clients keep, in (0, 1).
        ways: how many ways there are to deal columns: run n takes way n modulo this, so that seeds 0:14 with 3 ways
            are five runs of each. None for a new way with each seed.
        by: which way is taken: a ``random`` one, or of 100 random ones that in which the correlations between common
            and other columns (absolute values over the training rows of the seed that has the way's number, summed)
            are at their ``maximum``, ``median`` or ``minimum``. Categories are correlated by their codes.

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
    by: Literal["random", "maximum", "median", "minimum"] = "random"

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(0 < self.common < 1, "column split: common", "a share above 0 and below 1", self.common)
        expect(self.ways is None or self.ways >= 1, "column split: ways", "at least 1", self.ways)
        expect(self.by in _PLACES, "column split: by", f"one of {', '.join(_PLACES)}", self.by)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and take columns away; ``seed`` says in which way."""
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
        order = self._order(tables, seed, kept)
        split = []
        for table, own in zip(tables, np.array_split(order[kept:], len(tables)), strict=True):
            chosen = [columns[place] for place in np.sort([*order[:kept], *own])]
            categorical = tuple(name for name in table.categorical if name in chosen)
            split.append(replace(table, features=table.features[chosen], categorical=categorical))
        return check_tables(split)

    def _order(self, tables: list[ClientTable], seed: int, kept: int) -> np.ndarray:
        """Positions of columns, the common ones first."""
        way = seed if self.ways is None else seed % self.ways
        rng = np.random.default_rng(derive_seed(way, "columns"))
        count = tables[0].features.shape[1]
        if self.by == "random":
            return rng.permutation(count)
        import pandas as pd

        # of the rows that seed draws which has the way's number, so that all runs of a way have the same columns
        seen = tables if way == seed else self.source.tables(way)
        rows = pd.concat([table.features.iloc[table.splits["train"]] for table in seen])
        coded = rows.apply(lambda own: own if own.dtype.kind in "iufb" else own.astype("category").cat.codes)
        related = np.nan_to_num(coded.astype(np.float64).corr().abs().to_numpy())
        orders = [rng.permutation(count) for _ in range(DRAWS)]
        sums = [related[np.ix_(order[:kept], order[kept:])].sum() for order in orders]
        chosen: np.ndarray = orders[np.argsort(sums, kind="stable")[_PLACES[self.by]]]
        return chosen
