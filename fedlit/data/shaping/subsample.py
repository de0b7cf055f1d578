"""The clients of a source with fewer rows, as for a learning curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedlit.data.sources.base import Source
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.errors import expect
from fedlit.seeding import derive_seed

__all__ = ["Subsample"]


class Subsample(Source):
    """The clients of a source, each with at most so many rows of a split, drawn by the run's seed.

    The rows of a smaller draw are among those of a larger one. A split that is not named keeps all its rows.

    Args:
        source: whose tables they are.
        rows: split (``train``, ``validation``, ``test``) → the most rows of it that a client keeps.

    Raises:
        ConfigError: a split that there is not, or fewer than one row.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> small = Subsample(Bundled(clients=["wine"]), rows={"train": 20}).tables(seed=0)[0]
        >>> {split: len(rows) for split, rows in small.splits.items()}
        {'train': 20, 'validation': 27, 'test': 45}
    """

    name: ClassVar[str] = "subsample"
    about: ClassVar[str] = "the clients of a source with fewer rows"

    def __init__(self, source: Source, rows: Mapping[Split, int]) -> None:
        for split, most in rows.items():
            expect(split in SPLITS, "subsample: rows", f"of {', '.join(SPLITS)}", split)
            expect(most >= 1, f"subsample: rows: {split}", "at least 1", most)
        self.source, self.rows = source, dict(rows)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read all tables of the source with this seed, and draw of each."""
        return [self._drawn(own, seed) for own in self.source.tables(seed)]

    def _drawn(self, table: ClientTable, seed: int) -> ClientTable:
        splits = dict(table.splits)
        for split, most in self.rows.items():
            order = np.random.default_rng(derive_seed(seed, "subsample", table.name, split)).permutation(splits[split])
            splits[split] = np.sort(order[:most])
        return replace(table, splits=splits)
