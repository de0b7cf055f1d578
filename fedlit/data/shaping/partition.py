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
from fedlit.data.table import SPLITS, ClientTable, Split, has_classes, without_classes
from fedlit.errors import ConfigError, DataError, Told, expect
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

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

    def __post_init__(self) -> None:
        """Check the arguments that several deals have."""
        expect(self.least >= 1, "partition: deal: least", "at least 1 training row per client", self.least)

    def deal(self, whole: ClientTable, clients: int | None, seed: int) -> dict[str, Hand]:
        """Return the rows of each client, by name.

        Args:
            whole: the rows to deal: its splits, in an order drawn by the seed; it may have further rows.
            clients: the number of clients; None if the rows determine it.
            seed: the run's seed, which draws everything that is random.

        Raises:
            ConfigError: the number of clients is not defined, or the target has no classes although they are needed.
            DataError: there are too few rows.
        """
        fits, found = has_classes(whole) or not self.by_classes, Told(without_classes(whole.target))
        other = "deal by something else, with fedlit.Iid or fedlit.ByColumn"
        expect(fits, "partition: deal", "classes to deal by", found, other)
        names = self.names(whole, clients)
        for split, rows in whole.splits.items():
            needed, fewer = len(names) * self.needs(split), "take fewer clients, or fewer rows for each"
            told = f"at least {needed} {split} rows for {len(names)} clients"
            expect(len(rows) >= needed, "partition: deal", told, len(rows), fewer, DataError)
        ordered = {split: np.sort(rows) for split, rows in whole.splits.items()}
        owner = self.owners(whole, len(names), seed)
        return {
            name: {split: rows[owner[split] == place] for split, rows in ordered.items()}
            for place, name in enumerate(names)
        }

    def names(self, whole: ClientTable, clients: int | None) -> list[str]:
        """Return the clients' names: c01, c02, …"""
        if clients is None:
            raise ConfigError("partition: clients: expected how many there shall be, found none")
        return [f"c{number:0{max(2, len(str(clients)))}d}" for number in range(1, clients + 1)]

    def needs(self, split: Split) -> int:
        """Return the minimum number of rows of a split that each client has."""
        return self.least if split == "train" else 1

    @abstractmethod
    def owners(self, whole: ClientTable, clients: int, seed: int) -> Hand:
        """Return the client (counted from 0) of each row, by split, in the order of the rows' positions."""


class Iid(Deal):
    """Homogeneous clients: the rows of each split are distributed at random and as evenly as possible."""

    by_classes = False

    def owners(self, whole: ClientTable, clients: int, seed: int) -> Hand:
        """Return the client of each row, see the class."""
        owner: dict[Split, np.ndarray] = {}
        for split, rows in whole.splits.items():
            parts = np.array_split(rows, clients)
            owner[split] = np.repeat(np.arange(clients), list(map(len, parts)))[np.argsort(rows)]
        return owner


@dataclass(eq=False)
class Dirichlet(Deal):
    """Clients that differ in the frequencies of labels: each class is distributed in proportions drawn from a symmetric
    Dirichlet distribution, the same in every split (Hsu et al. 2019, arXiv:1909.06335).

    NOTE[DIFF]: there a client draws its classes' proportions; here, as in most code since (Yurochkin et al. 2019,
    arXiv:1905.12022), a class draws its clients', so that all rows are dealt.

    Args:
        alpha: α, the parameter of the distribution, above 0: if it is small, each client has few classes; if it is
            large, clients are homogeneous.
        least: the minimum number of training rows of each client (and one row of every other split): proportions are
            drawn again until this is reached.
    """

    alpha: float = 0.5
    least: int = 20

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        expect(bool(np.isfinite(self.alpha)) and self.alpha > 0, "partition: deal: alpha", "above 0", self.alpha)

    def owners(self, whole: ClientTable, clients: int, seed: int) -> Hand:
        """Return the client of each row, see the class."""
        labels, places = _places_by_label(whole, seed)
        draws = [np.random.default_rng(derive_seed(seed, "dirichlet", str(label))) for label in labels]
        for _ in range(_DRAWS):
            proportions = np.stack([rng.dirichlet(np.full(clients, self.alpha)) for rng in draws])
            bounds = proportions.cumsum(axis=1)[:, :-1]
            owner = {split: (place[:, None] >= bounds[label]).sum(axis=1) for split, (label, place) in places.items()}
            if all(np.bincount(own, minlength=clients).min() >= self.needs(split) for split, own in owner.items()):
                return owner
        raise DataError(
            f"partition: deal: expected proportions that leave each of {clients} clients {self.least} training rows "
            f"and one of every other split, found none in {_DRAWS} draws; take a larger alpha than {self.alpha:g}, "
            "fewer clients, or fewer least rows"
        )


@dataclass(eq=False)
class Shards(Deal):
    """Clients that have few classes. Training rows are sorted by label and cut into shards of equal size, of which each
    client gets some at random (McMahan et al. 2017, arXiv:1602.05629). Rows of other splits are dealt in the same way
    as similar training rows.

    Args:
        each: the number of shards per client, at least 1.
    """

    each: int = 2

    def __post_init__(self) -> None:
        """Check the arguments."""
        expect(self.each >= 1, "partition: deal: each", "at least 1 shard per client", self.each)
        self.least = self.each

    def owners(self, whole: ClientTable, clients: int, seed: int) -> Hand:
        """Return the client of each row, see the class."""
        places = {split: label + place for split, (label, place) in _places_by_label(whole, seed)[1].items()}
        shards = np.array_split(np.sort(places["train"]), clients * self.each)
        # halfway between the last row of a shard and the first of the next
        bounds = [(before[-1] + after[0]) / 2 for before, after in itertools.pairwise(shards)]
        rng = np.random.default_rng(derive_seed(seed, "shards"))
        owner = rng.permutation(np.repeat(np.arange(clients), self.each))
        return {split: owner[np.searchsorted(bounds, place)] for split, place in places.items()}


def _places_by_label(whole: ClientTable, seed: int) -> tuple[list[object], dict[Split, tuple[np.ndarray, np.ndarray]]]:
    """Return the labels, and, for each row of each split in the order of positions, the position of its label among
    these, and its relative position, in (0, 1), in a random order of the split's rows with this label.
    """
    labels = sorted(whole.target.iloc[np.concatenate(list(whole.splits.values()))].unique().tolist())
    places: dict[Split, tuple[np.ndarray, np.ndarray]] = {}
    for split, rows in whole.splits.items():
        own = _codes(whole.target, rows, labels)
        position = np.empty(len(own))
        for place, label in enumerate(labels):
            rng = np.random.default_rng(derive_seed(seed, "dealing", split, str(label)))
            among = np.flatnonzero(own == place)
            position[among] = (rng.permutation(len(among)) + 0.5) / max(len(among), 1)
        places[split] = own, position
    return labels, places


@dataclass(eq=False)
class ByColumn(Deal):
    """One client for each value of a column, named after it, as in a federation that exists already; or one for each
    range of numbers.

    Args:
        column: a column with a value in every row.
        drop: whether the column is removed from the clients' tables, in each of which it is constant.
        cuts: ascending numbers that divide the column into ranges: ``[45, 60]`` makes clients ``below-45``,
            ``45-to-60`` (including 45) and ``from-60``.

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
        rising = self.cuts is None or (0 < len(self.cuts) == len({*self.cuts}) and sorted(self.cuts) == [*self.cuts])
        expect(rising, "partition: deal: cuts", "numbers, each larger than the one before", self.cuts)
        self.dropped = (self.column,) if self.drop else ()

    def names(self, whole: ClientTable, clients: int | None) -> list[str]:
        """Return a name for each value."""
        names = {value: client_name(value) for value in self._values(whole)[1]}
        told = f"{len(names)}, the number of values of {self.column}"
        expect(clients in (None, len(names)), "partition: clients", told, clients, "leave it out")
        return check_names(list(names.values()))

    def owners(self, whole: ClientTable, clients: int, seed: int) -> Hand:
        """Return the client of each row, see the class. Nothing is drawn."""
        own, values = self._values(whole)
        return {split: _codes(own, rows, values) for split, rows in whole.splits.items()}

    def _values(self, whole: ClientTable) -> tuple[pd.Series, list[Any]]:
        """Return the column, and the values that become clients."""
        columns = list(map(str, whole.features))
        has = self.column in columns
        expect(has, "partition: deal: column", f"one of {', '.join(columns)}", self.column, known=columns)
        own = whole.features[self.column]
        own = own if self.cuts is None else _ranges(own, self.cuts)
        values = own.iloc[np.concatenate(list(whole.splits.values()))]
        told, gaps = f"a value of {self.column} in every row", Told(f"{values.isna().sum()} rows without one")
        expect(bool(values.notna().all()), "partition: deal", told, gaps, "deal by another column", DataError)
        return own, sorted(values.unique().tolist())


def _codes(column: pd.Series, rows: np.ndarray, values: list[Any]) -> np.ndarray:
    """Return the position among ``values`` of each row's value, in the order of row positions."""
    codes: np.ndarray = (
        column.iloc[np.sort(rows)].map({value: place for place, value in enumerate(values)}).to_numpy(np.int64)
    )
    return codes


def _ranges(own: pd.Series, cuts: list[float]) -> pd.Series:
    """Return the name of the range of each number (n,). Missing values stay missing."""
    import pandas as pd

    told, first = f"numbers in {own.name}", next(iter(own.dropna()), None)
    expect(own.dtype.kind in "iuf", "partition: deal: cuts", told, first, "leave cuts out", DataError)
    edges = [f"{cut:g}" for cut in cuts]
    middle = [f"{low}-to-{high}" for low, high in itertools.pairwise(edges)]
    names = [f"below-{edges[0]}", *middle, f"from-{edges[-1]}"]
    return pd.cut(own, [-np.inf, *cuts, np.inf], right=False, labels=names, ordered=False).astype(object)


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
            (:class:`ByColumn`).
        rows: the largest total number of rows for each split, drawn at random; all rows if left out.
        redraw: how to draw new splits; if None, those of the source are kept.
        shared_test: whether every client is tested on all test rows; otherwise they are dealt like the others.
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
