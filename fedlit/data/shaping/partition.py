"""Federations whose clients get the rows of other clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedlit.data.shaping.dealing import Deal, Iid
from fedlit.data.sources.base import Source, check_fractions, check_tables
from fedlit.data.splitting import random_split
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.errors import DataError, Told, expect
from fedlit.seeding import derive_seed


@dataclass(frozen=True)
class Redraw:
    """Splits that the run's seed draws, instead of those of the source.

    Attributes:
        splits: the splits of the source whose rows are used; rows of other splits are left out.
        test: the share of the rows that become test rows, in (0, 1).
        validation: the share of the *other* rows that become validation rows, in (0, 1).
    """

    splits: tuple[Split, ...] = SPLITS
    test: float = 0.2
    validation: float = 0.25

    def __post_init__(self) -> None:
        check_fractions(self.test, self.validation)
        some = 0 < len(self.splits) == len({*self.splits} & {*SPLITS})
        expect(some, "redraw.splits", f"some of {', '.join(SPLITS)}, none twice", list(self.splits))


@dataclass(eq=False)
class Partition(Source):
    """The rows of all clients of another source, dealt to new clients: homogeneous ones, for experiments in which
    clients differ only by what you inject, or clients that differ as a ``deal`` defines.

    No row changes its split, unless ``redraw`` is set; the run's seed decides which client gets which rows. Clients are
    called ``c01``, ``c02``, … Rows keep their numbers if these are unique; otherwise, as with several files, they are
    numbered again, in the order of the source's clients.

    Args:
        source: a source whose clients have the same columns.
        clients: the number of new clients; None if the deal defines it
            (:class:`~fedlit.data.shaping.dealing.ByColumn`).
        rows: the largest total number of rows for each split, drawn at random; all rows if left out.
        redraw: how to draw new splits; if None, those of the source are kept.
        shared_test: whether every client is tested on all test rows; otherwise they are dealt like the others.
        deal: how rows are dealt (see :mod:`fedlit.data.shaping.dealing`); at random and evenly, split by split, if
            None.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> tables = Partition(Bundled(clients=["digits"]), clients=3).tables(seed=0)
        >>> [(table.name, len(table.features)) for table in tables]
        [('c01', 599), ('c02', 599), ('c03', 599)]
    """

    source: Source
    clients: int | None = None
    rows: dict[Split, int] | None = None
    redraw: Redraw | None = None
    shared_test: bool = False
    deal: Deal | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(self.clients is None or self.clients >= 2, "partition: clients", "at least 2", self.clients)
        enough = all(split in SPLITS and number >= (self.clients or 1) for split, number in (self.rows or {}).items())
        expect(enough, "partition: rows", f"at least one row a client for some of {', '.join(SPLITS)}", self.rows)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and deal their rows; ``seed`` determines which client gets which rows."""
        import pandas as pd

        deal = self.deal or Iid()
        first, *others = tables = self.source.tables(seed)
        for table in others:
            for what, own in _same(table).items():
                same, told = own == _same(first)[what], f"the {what} of {first.name} at {table.name}"
                expect(same, "partition: source", told, Told("others"), "choose clients that have the same", DataError)
        features = pd.concat([table.features for table in tables])
        target = pd.concat([table.target for table in tables])
        known = [table.groups for table in tables if table.groups is not None]
        groups = np.concatenate(known) if len(known) == len(tables) else None
        if not features.index.is_unique:  # rows of several files
            features, target = features.reset_index(drop=True), target.reset_index(drop=True)
        splits, shared = self._drawn(tables, seed)
        whole = replace(first, features=features, target=target, splits=splits)
        hands = deal.deal(whole, self.clients, seed)
        kept, made = [str(column) for column in features if column not in deal.dropped], []
        for name, hand in hands.items():
            parts = [np.sort({**hand, **shared}[split]) for split in SPLITS]
            own = np.concatenate(parts)
            bounds = np.split(np.arange(len(own)), np.cumsum([len(part) for part in parts])[:-1])
            made.append(
                replace(
                    first,
                    name=name,
                    concept=None,
                    keys={},
                    features=features.iloc[own],
                    target=target.iloc[own],
                    groups=None if groups is None else groups[own],
                    splits=dict(zip(SPLITS, bounds, strict=True)),
                ).only(kept)
            )
        said = tuple(note for table in tables for note in table.notes)  # once, for all that are dealt
        return check_tables([replace(own, notes=() if place else said) for place, own in enumerate(made)])

    def _drawn(self, tables: list[ClientTable], seed: int) -> tuple[dict[Split, np.ndarray], dict[Split, np.ndarray]]:
        """Return the positions of rows in the concatenated tables, in a random order: those to deal, and those that all
        clients get.
        """
        starts = np.cumsum([0, *(len(table.features) for table in tables)])
        whole = {
            split: np.concatenate([start + table.splits[split] for start, table in zip(starts, tables, strict=False)])
            for split in SPLITS
        }
        if self.redraw is not None:
            used = np.sort(np.concatenate([whole[split] for split in self.redraw.splits]))
            drawn = random_split(len(used), seed, self.redraw.test, self.redraw.validation)
            whole = {split: used[rows] for split, rows in drawn.items()}
        for split, rows in whole.items():
            order = np.random.default_rng(derive_seed(seed, "partition", split)).permutation(rows)
            whole[split] = order[: (self.rows or {}).get(split)]
        return whole, {"test": whole.pop("test")} if self.shared_test else {}


def _same(table: ClientTable) -> dict[str, object]:
    """Return what must be the same at all clients whose rows are dealt."""
    return {
        "columns": (set(table.features), set(table.categorical)),
        "target": (table.target.name, table.positive),
        "task": table.task,
    }
