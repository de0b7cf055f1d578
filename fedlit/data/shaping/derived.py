"""Federations made of other sources' clients: with fewer rows, fewer columns or other labels, or of
several sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedlit.data.shaping.common_columns import RANKS, choose_common, correlations
from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.data.targets import has_classes, without_classes
from fedlit.errors import DataError, Told, expect, must_be_known
from fedlit.seeding import derive_seed


@dataclass(eq=False)
class Subsample(Source):
    """The clients of a source, each with at most a given number of rows of a split, drawn by the
    run's seed, as for a learning curve.

    The rows of a smaller draw are among those of a larger one. A split that is not named keeps all
    its rows.

    Args:
        source: the source of the tables.
        rows: maps a split (``train``, ``validation``, ``test``) to the largest number of its rows
            that a client keeps.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> small = Subsample(Bundled(clients=["wine"]), rows={"train": 20}).tables(seed=0)[0]
        >>> {split: len(rows) for split, rows in small.splits.items()}
        {'train': 20, 'validation': 27, 'test': 45}
    """

    source: Source
    rows: Mapping[Split, int]

    def tables(self, seed: int) -> list[ClientTable]:
        """Read all tables of the source with this seed, and draw rows of each."""
        must_be_known("subsample: rows", self.rows, SPLITS)
        drawn = []
        for table in self.source.tables(seed):
            splits = dict(table.splits)
            for split, most in self.rows.items():
                rng = np.random.default_rng(derive_seed(seed, "subsample", table.name, split))
                splits[split] = np.sort(rng.permutation(splits[split])[: max(0, most)])
            drawn.append(replace(table, splits=splits))
        return drawn


@dataclass(eq=False)
class ColumnSplit(Source):
    """The clients of another source, which have the same columns, with a share of these in common
    and the rest dealt out: each other column stays at one client alone (the experiments of Mori et
    al. 2022, arXiv:2203.02108).

    Args:
        source: a source whose clients have the same columns.
        common: the share of the columns that all clients keep, in (0, 1).
        ways: the number of ways of dealing columns: the run with seed n uses way n modulo this
            number, so that seeds 0:14 with 3 ways are five runs of each. None for a new way with
            each seed.
        by: how the common columns are chosen: at ``random``, or so that the sum of the correlations
            between common and other columns is at its ``maximum``, ``median`` or ``minimum`` over
            all ways of choosing them (Section V-C, Table IV). NOTE[DIFF]: the paper does not say
            how coefficients of opposite signs are added; here absolute values are. Correlations are
            those of the training rows of the seed that has the way's number, so that all runs of a
            way have the same columns. Of more than 3 million ways, 100,000 are drawn.

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> dealt = Partition(Bundled(clients=["wine"]), clients=2)
        >>> for table in ColumnSplit(dealt, common=0.3).tables(seed=0):
        ...     print(table.name, len(table.features.columns))
        c01 9
        c02 8
    """

    source: Source
    common: float = 0.3
    ways: int | None = None
    by: Literal["random", "maximum", "median", "minimum"] = "random"

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and remove columns; ``seed`` determines the way."""
        must_be_known("column split: by", [self.by], ("random", *RANKS))
        tables = sorted(self.source.tables(seed), key=lambda table: table.name)
        columns = list(tables[0].features)
        for table in tables:
            if list(table.features) != columns:
                raise DataError(
                    f"column split: source: expected the columns of {tables[0].name} at "
                    f"{table.name}, found others; choose clients that have the same"
                )
        common = max(1, round(self.common * len(columns)))
        if len(columns) - common < len(tables):
            raise DataError(
                f"column split: common: expected a column of its own for each of {len(tables)} "
                f"clients, beside {common} common ones, found {len(columns)} columns; take fewer "
                "clients or a smaller share"
            )
        order = self._order(tables, seed, common)
        private = np.array_split(order[common:], len(tables))
        split = []
        for table, private_columns in zip(tables, private, strict=True):
            positions = np.sort([*order[:common], *private_columns])
            split.append(table.only([columns[position] for position in positions]))
        return check_tables(split)

    def _order(self, tables: list[ClientTable], seed: int, count: int) -> np.ndarray:
        """Return the positions of all columns: the common ones, then the others in the order of
        dealing.
        """
        way_seed = seed % self.ways if self.ways else seed
        rng = np.random.default_rng(derive_seed(way_seed, "columns"))
        order = rng.permutation(tables[0].features.shape[1])
        if self.by == "random":
            return order
        seen = tables if way_seed == seed else self.source.tables(way_seed)
        rng = np.random.default_rng(derive_seed(way_seed, "common"))
        common = choose_common(correlations(seen), count, self.by, rng)
        return np.concatenate([common, order[~np.isin(order, common)]])


@dataclass(eq=False)
class ConceptShift(Source):
    """The clients of another source, some of which label the same rows differently, in every split.

    Clients are divided among the concepts in equal parts, as drawn by the run's seed. The labels of
    the first concept's clients are kept. Those of another concept are permuted: each label becomes
    another one, which differs from what it becomes in any other concept. If there are two labels,
    the second concept exchanges them.

    Args:
        source: a source whose clients have labels in common.
        concepts: the number of concepts, which are called ``1``, ``2``, …

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> dealt = Partition(Bundled(clients=["breast_cancer"]), clients=2)
        >>> for table in ConceptShift(dealt).tables(seed=0):
        ...     print(table.name, table.concept, table.target.iloc[0])
        c01 1 malignant
        c02 2 benign
    """

    source: Source
    concepts: int = 2

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and change labels; ``seed`` determines whose, and how."""
        tables = self.source.tables(seed)
        names = sorted(table.name for table in tables)
        classes = set[Any]()
        for table in tables:
            expected = f"one of several classes a row at {table.name}"
            problem = Told(without_classes(table))
            expect(has_classes(table), "concept shift: source", expected, problem)
            classes.update(table.target.unique().tolist())
        # They are sorted by their text, as clients' labels may be of several types.
        labels = sorted(classes, key=repr)
        is_possible = 0 < self.concepts <= min(len(names), len(labels))
        expected = f"from 1 to {len(names)}, one a client, and {len(labels)}, the number of labels"
        expect(is_possible, "concept shift: concepts", expected, self.concepts)
        drawn = np.random.default_rng(derive_seed(seed, "concept", "clients")).permutation(names)
        turns = dict[str, int]()
        for turn, part in enumerate(np.array_split(drawn, self.concepts)):
            turns.update(dict.fromkeys(map(str, part), turn))
        rng = np.random.default_rng(derive_seed(seed, "concept", "labels"))
        ring = [labels[position] for position in rng.permutation(len(labels))]
        changed = []
        for table in tables:
            # Each concept turns the ring by another number of positions, so that no two concepts
            # agree on a label.
            turn = turns[table.name]
            meanings = dict(zip(ring, ring[turn:] + ring[:turn], strict=True))
            target = table.target.map(meanings).astype(table.target.dtype)
            changed.append(replace(table, target=target, concept=str(turn + 1)))
        return check_tables(changed)
