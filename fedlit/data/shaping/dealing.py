"""Deals the rows of a partition to clients: the interface of all ways, and the simple ways."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.sources.base import check_names, client_name
from fedlit.data.table import ClientTable, Split
from fedlit.data.target import has_classes, without_classes
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
