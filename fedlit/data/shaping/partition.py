"""Federations whose clients get the rows of other clients, and the simple ways of dealing rows."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_fractions, check_names, check_tables, client_name
from fedlit.data.splitting import random_split
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.data.targets import has_classes, without_classes
from fedlit.errors import ConfigError, DataError, Told, expect, must_be_known
from fedlit.seeding import derive_seed
from fedlit.show.text import counted

if TYPE_CHECKING:
    pass

Hand = Mapping[Split, np.ndarray]
"""What a client gets: positions of rows, by split."""

_DRAWS = 1000


class Deal(ABC):
    """A way of dealing rows to clients c01, c02, …. Each row stays in its split.

    Attributes:
        dropped: the columns that the clients do not get.
        by_classes: whether the target must be one of several classes.
        least: the minimum number of training rows of each client.
    """

    by_classes: ClassVar[bool] = True
    dropped: tuple[str, ...] = ()
    least: int = 1

    def deal(self, whole: ClientTable, clients: int | None, seed: int) -> dict[str, Hand]:
        """Return the rows of each client, by name.

        Args:
            whole: the rows to deal: its splits, in an order drawn by the seed; it may have further
                rows.
            clients: the number of clients; None if the rows determine it.
            seed: the run's seed, which draws everything that is random.

        Raises:
            ConfigError: The number of clients is not defined, or the target has no classes although
                they are needed.
            DataError: There are too few rows.
        """
        problem = Told(without_classes(whole))
        advice = "deal by fedlit.Iid or fedlit.ByColumn"
        expect(self.takes(whole), "partition: deal", "classes to deal by", problem, advice)
        # Rows outside of the splits are neither measured nor dealt.
        used = np.sort(np.concatenate(list(whole.splits.values())))
        splits = {split: np.searchsorted(used, rows) for split, rows in whole.splits.items()}
        whole = replace(
            whole, features=whole.features.iloc[used], target=whole.target.iloc[used], splits=splits
        )
        names = self.names(whole, clients)
        for split, rows in whole.splits.items():
            needed = len(names) * self.needs(split)
            if len(rows) < needed:
                raise DataError(
                    f"partition: deal: expected at least {needed} {split} rows for {len(names)} "
                    f"clients, found {len(rows)}; take fewer clients"
                )
        owner = self.owners(whole, len(names), seed)
        hands = dict[str, Hand]()
        for number, name in enumerate(names):
            hands[name] = {
                split: np.sort(used[rows[owner[rows] == number]])
                for split, rows in whole.splits.items()
            }
        return hands

    def names(self, whole: ClientTable, clients: int | None) -> list[str]:
        """Return the clients' names: c01, c02, …"""
        if clients is None or clients < 1:
            raise ConfigError(
                f"partition: clients: expected the number of clients, at least 1, found {clients!r}"
            )
        digits = max(2, len(str(clients)))
        return [f"c{number:0{digits}d}" for number in range(1, clients + 1)]

    def takes(self, whole: ClientTable) -> bool:
        """Return whether rows with this target can be dealt."""
        return has_classes(whole) or not self.by_classes

    def needs(self, split: Split) -> int:
        """Return the minimum number of rows of a split that each client has."""
        return self.least if split == "train" else 1

    @abstractmethod
    def owners(self, whole: ClientTable, clients: int, seed: int) -> np.ndarray:
        """Return the client (counted from 0) of each row of a table whose rows are all in a split,
        (n,).
        """


class Iid(Deal):
    """Homogeneous clients: the rows of each split are distributed at random and as evenly as
    possible.
    """

    by_classes = False

    def owners(self, whole: ClientTable, clients: int, seed: int) -> np.ndarray:
        """Return the client of each row, see the class."""
        owner = np.zeros(len(whole.target), np.int64)
        for rows in whole.splits.values():
            for client, part in enumerate(np.array_split(rows, clients)):
                owner[part] = client
        return owner


@dataclass(eq=False)
class Dirichlet(Deal):
    """Clients that differ in the frequencies of labels: each class is distributed in proportions
    drawn from a symmetric Dirichlet distribution, the same in every split (Hsu et al. 2019,
    arXiv:1909.06335).

    NOTE[DIFF]: there a client draws its classes' proportions; here, as in most code since
    (Yurochkin et al. 2019, arXiv:1905.12022), a class draws its clients', so that all rows are
    dealt.

    Args:
        alpha: α, the parameter of the distribution, above 0: if it is small, each client has few
            classes; if it is large, clients are homogeneous.
        least: the minimum number of training rows of each client (and one row of every other
            split): proportions are drawn again until this is reached.
    """

    alpha: float = 0.5
    least: int = 20

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(0 < self.alpha < np.inf, "partition: deal: alpha", "above 0", self.alpha)

    def owners(self, whole: ClientTable, clients: int, seed: int) -> np.ndarray:
        """Return the client of each row, see the class."""
        from fedlit.data.shaping.values import codes_of

        codes, labels = codes_of(whole.target)
        # The rank of each row among those of its split and label, in a random order, in (0, 1).
        ranks = np.zeros(len(codes))
        for split, rows in whole.splits.items():
            for code, label in enumerate(labels):
                same_label = np.sort(rows[codes[rows] == code])
                count = len(same_label)
                rng = np.random.default_rng(derive_seed(seed, "dealing", split, str(label)))
                ranks[same_label] = (rng.permutation(count) + 0.5) / max(count, 1)
        rngs = [
            np.random.default_rng(derive_seed(seed, "dirichlet", str(label))) for label in labels
        ]
        for _ in range(_DRAWS):
            proportions = np.stack([rng.dirichlet(np.full(clients, self.alpha)) for rng in rngs])
            bounds = proportions.cumsum(axis=1)[codes, :-1]
            owner: np.ndarray = (ranks[:, None] >= bounds).sum(axis=1)
            fewest = {
                split: np.bincount(owner[rows], minlength=clients).min()
                for split, rows in whole.splits.items()
            }
            if all(rows >= self.needs(split) for split, rows in fewest.items()):
                return owner
        raise DataError(
            f"partition: deal: expected proportions that leave each of {clients} clients "
            f"{self.least} training rows and one of other splits, found none in {_DRAWS} draws; "
            f"take a larger alpha than {self.alpha:g}, fewer clients, or fewer least rows"
        )


@dataclass(eq=False)
class ByColumn(Deal):
    """One client for each value of a column, named after it, as in a federation that exists
    already; or one for each range of numbers.

    Args:
        column: a column with a value in every row.
        drop: whether the column is removed from the clients' tables, in each of which it is
            constant.
        cuts: ascending numbers that divide the column into ranges: ``[45, 60]`` makes clients
            ``below-45``, ``45-to-60`` (including 45) and ``from-60``.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"site": ["Bern", "St. Gallen", "Bern"]})
        >>> ByColumn("site").deal(ClientTable("all", rows, rows["site"], {"train": np.arange(3)}), None, seed=0)
        {'Bern': {'train': array([0, 2])}, 'St_Gallen': {'train': array([1])}}
    """

    by_classes: ClassVar[bool] = False

    column: str
    drop: bool = False
    cuts: list[float] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        if self.cuts is not None:
            are_distinct = 0 < len(self.cuts) == len({*self.cuts})
            are_rising = are_distinct and sorted(self.cuts) == [*self.cuts]
            expected = "numbers, each larger than the one before"
            expect(are_rising, "partition: deal: cuts", expected, self.cuts)
        self.dropped = (self.column,) if self.drop else ()

    def names(self, whole: ClientTable, clients: int | None) -> list[str]:
        """Return a name for each value."""
        names = check_names(list(map(client_name, self._values(whole)[1])))
        expected = f"{len(names)}, the number of values of {self.column}"
        is_right = clients in (None, len(names))
        expect(is_right, "partition: clients", expected, clients, "leave it out")
        return names

    def owners(self, whole: ClientTable, clients: int, seed: int) -> np.ndarray:
        """Return the client of each row, see the class. Nothing is drawn."""
        return self._values(whole)[0]

    def _values(self, whole: ClientTable) -> tuple[np.ndarray, list[Any]]:
        """Return the position of each row's value (n,) among the values that become clients, and
        these values.
        """
        from fedlit.data.shaping.values import codes_of, ranges_of

        columns = list(map(str, whole.features))
        expected = f"one of {', '.join(columns)}"
        is_column = self.column in columns
        expect(is_column, "partition: deal: column", expected, self.column, known=columns)
        values = whole.features[self.column]
        if self.cuts is not None:
            values = ranges_of(values, self.cuts)
        gaps = values.isna().sum()
        if gaps:
            raise DataError(
                f"partition: deal: expected a value of {self.column} in every row, found "
                f"{counted(gaps, 'row')} without one; deal by another column"
            )
        return codes_of(values)


# ---------------------------------------------------------------------- the source


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


@dataclass(eq=False)
class Partition(Source):
    """The rows of all clients of another source, dealt to new clients: homogeneous ones, for
    experiments in which clients differ only by what you inject, or clients that differ as a
    ``deal`` defines.

    No row changes its split, unless ``redraw`` is set; the run's seed decides which client gets
    which rows. Clients are called ``c01``, ``c02``, … Rows keep their numbers if these are unique;
    otherwise, as with several files, they are numbered again, in the order of the source's clients.

    Args:
        source: a source whose clients have the same columns.
        clients: the number of new clients; None if the deal defines it
            (:class:`ByColumn`).
        rows: the largest total number of rows for each split, drawn at random; all rows if left
            out.
        redraw: how to draw new splits; if None, those of the source are kept.
        shared_test: whether every client is tested on all test rows; otherwise they are dealt like
            the others.
        deal: how rows are dealt (:class:`Deal`); at random and evenly, split by split, if
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

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the source's tables and deal their rows; ``seed`` determines which client gets which
        rows.
        """
        import pandas as pd

        must_be_known("partition: rows", self.rows or (), SPLITS)
        tables = self.source.tables(seed)
        first = tables[0]
        for table in tables:
            if _in_common(table) != _in_common(first):
                raise DataError(
                    "partition: source: expected the columns, the target and the task of "
                    f"{first.name} at {table.name}, found others; choose clients that have the same"
                )
        features = pd.concat([table.features for table in tables])
        target = pd.concat([table.target for table in tables])
        groups_of_tables = [table.groups for table in tables if table.groups is not None]
        groups = None
        if len(groups_of_tables) == len(tables):
            groups = np.concatenate(groups_of_tables)
        if not features.index.is_unique:  # They are rows of several files.
            features = features.reset_index(drop=True)
            target = target.reset_index(drop=True)
        splits, shared = self._drawn(tables, seed)
        whole = replace(
            first, features=features, target=target, splits=splits, concept=None, keys={}, notes=()
        )
        deal = self.deal or Iid()
        dealt = []
        columns = [str(column) for column in features if column not in deal.dropped]
        for name, hand in deal.deal(whole, self.clients, seed).items():
            parts = [np.sort({**hand, **shared}[split]) for split in SPLITS]
            rows = np.concatenate(parts)
            ends = np.cumsum(list(map(len, parts)))
            client_groups = None if groups is None else groups[rows]
            table = replace(
                whole,
                name=name,
                features=features.iloc[rows],
                target=target.iloc[rows],
                splits=dict(zip(SPLITS, np.split(np.arange(len(rows)), ends[:-1]), strict=True)),
                groups=client_groups,
            )
            dealt.append(table.only(columns))
        # The notes of all tables stand once, at the first client.
        notes = list(itertools.chain.from_iterable(table.notes for table in tables))
        dealt[0] = replace(dealt[0], notes=tuple(notes))
        return check_tables(dealt)

    def _drawn(
        self, tables: list[ClientTable], seed: int
    ) -> tuple[dict[Split, np.ndarray], dict[Split, np.ndarray]]:
        """Return the positions of rows in the concatenated tables, in a random order: those to
        deal, and those that all clients get.
        """
        starts = np.cumsum([0, *(len(table.features) for table in tables)]).tolist()
        whole = dict[Split, np.ndarray]()
        for split in SPLITS:
            parts = [
                start + table.splits[split] for start, table in zip(starts, tables, strict=False)
            ]
            whole[split] = np.concatenate(parts)
        if self.redraw is not None:
            used = np.sort(np.concatenate([whole[split] for split in self.redraw.splits]))
            drawn = random_split(len(used), seed, self.redraw.test, self.redraw.validation)
            whole = {split: used[rows] for split, rows in drawn.items()}
        for split, rows in whole.items():
            order = np.random.default_rng(derive_seed(seed, "partition", split)).permutation(rows)
            whole[split] = order[: max(0, (self.rows or {}).get(split, len(order)))]
        if not self.shared_test:
            return whole, {}
        return whole, {"test": whole.pop("test")}


def _in_common(table: ClientTable) -> object:
    """Return what must be the same at all clients whose rows are dealt."""
    return {*table.features}, {*table.categorical}, table.target.name, table.positive, table.task
