"""Who gets which rows of a partition: alike clients, or clients that differ in labels, in features or in both."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedlit.data.shaping.distance import Features, Measure, Space
from fedlit.data.table import SPLITS, Split
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NORMAL", "ByColumn", "Deal", "Dirichlet", "Distance", "Hand", "Iid", "Shards", "Whole"]

Hand = Mapping[Split, np.ndarray]
"""What a client gets: positions of rows, by split."""

_DRAWS = 1000
_SEQUENCES = 5
_MOVES = 50
NORMAL = 0.05
"""The p-value above which distances pass for normally distributed."""


@dataclass(frozen=True, eq=False)
class Whole:
    """The rows to deal.

    Attributes:
        features: their columns; may have rows that are in no split, and are not dealt.
        target: their labels.
        splits: positions, by split, in an order drawn by the seed.
        categorical: columns that hold categories.
    """

    features: pd.DataFrame
    target: pd.Series
    splits: Mapping[Split, np.ndarray]
    categorical: tuple[str, ...] = ()


class Deal(ABC):
    """A way to deal rows to clients; each row stays in its split.

    Attributes:
        dropped: columns that the clients do not get.
    """

    dropped: tuple[str, ...] = ()

    @abstractmethod
    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """Who gets what, by the clients' names.

        Args:
            whole: the rows.
            clients: how many clients there shall be; None if the rows are to say so.
            seed: the run's seed, which draws all there is to draw.
        """


class Iid(Deal):
    """Alike clients: the rows of each split, dealt at random and as evenly as can be."""

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = _names(clients)
        dealt = {split: np.array_split(rows, len(names)) for split, rows in whole.splits.items()}
        return {name: {split: parts[place] for split, parts in dealt.items()} for place, name in enumerate(names)}


class ByColumn(Deal):
    """A client for each value of a column, named after it: a federation as it is found.

    Args:
        column: which has a value in every row.
        drop: whether clients get no such column; it is constant within each of them.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"site": ["Bern", "St. Gallen", "Bern"]})
        >>> ByColumn("site").deal(Whole(rows, rows["site"], {"train": np.arange(3)}), None, seed=0)
        {'Bern': {'train': array([0, 2])}, 'St-Gallen': {'train': array([1])}}
    """

    def __init__(self, column: str, drop: bool = False) -> None:
        self.column, self.dropped = column, (column,) if drop else ()

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class; nothing is drawn."""
        if self.column not in whole.features:
            columns = list(map(str, whole.features))
            raise ConfigError(
                f"partition: deal: column: expected one of {', '.join(columns)}, found {self.column!r}."
                + did_you_mean(self.column, columns)
            )
        splits = {split: np.sort(rows) for split, rows in whole.splits.items()}
        own = whole.features[self.column]
        values = own.iloc[np.concatenate(list(splits.values()))]
        if missing := int(values.isna().sum()):
            raise DataError(
                f"partition: deal: expected a value of {self.column} in every row, found {missing} rows without one; "
                "deal by another column"
            )
        names = {value: _client_name(value) for value in sorted(values.unique().tolist())}
        if clients is not None and clients != len(names):
            raise ConfigError(
                f"partition: clients: expected {len(names)}, the number of values of {self.column}, found {clients}; "
                "leave it out"
            )
        for name, times in Counter(names.values()).items():
            if times > 1 or not name:
                alike = [value for value in names if names[value] == name]
                raise DataError(
                    f"partition: deal: expected values of {self.column} that make different names of clients, found "
                    f"{', '.join(map(repr, alike))}, which become {name!r}; give them other names in the source"
                )
        return {
            name: {split: rows[(own.iloc[rows] == value).to_numpy()] for split, rows in splits.items()}
            for value, name in names.items()
        }


class Dirichlet(Deal):
    """Clients that differ in how frequent labels are: each class is dealt in proportions drawn from a symmetric
    Dirichlet distribution, the same ones in every split (Hsu et al. 2019, arXiv:1909.06335).

    NOTE[DIFF]: there a client draws its classes' proportions; here, as in most code since (Yurochkin et al. 2019,
    arXiv:1905.12022), a class draws its clients', so that all rows are dealt.

    Args:
        alpha: α, the distribution's parameter, above 0: each client has few classes where it is small; all are alike
            where it is large.
        least: training rows that each client has at least (and one of every other split): proportions are drawn anew
            until it has.
    """

    def __init__(self, alpha: float = 0.5, least: int = 20) -> None:
        if not (np.isfinite(alpha) and alpha > 0):
            raise ConfigError(f"partition: deal: alpha: expected a number above 0, found {alpha}")
        self.alpha, self.least = alpha, _checked(least)

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = _names(clients)
        _check_enough(whole, len(names), self.least)
        labels, places = _places(whole, seed)
        draws = [np.random.default_rng(derive_seed(seed, "dirichlet", str(label))) for label in labels]
        for _ in range(_DRAWS):
            proportions = np.stack([rng.dirichlet(np.full(len(names), self.alpha)) for rng in draws])
            bounds = proportions.cumsum(axis=1)[:, :-1]
            owner = {
                split: (position[:, None] >= bounds[label]).sum(axis=1) for split, (label, position) in places.items()
            }
            if all(
                np.bincount(owner[split], minlength=len(names)).min() >= (self.least if split == "train" else 1)
                for split in owner
            ):
                return _hands(whole, names, owner)
        raise DataError(
            f"partition: deal: expected proportions that leave each of {len(names)} clients {self.least} training rows "
            f"and one of every other split, found none in {_DRAWS} draws; take a larger alpha than {self.alpha:g}, "
            "fewer clients, or fewer least rows"
        )


class Shards(Deal):
    """Clients that have few classes: training rows are sorted by label and cut into shards of one size, of which each
    client gets some at random (McMahan et al. 2017, arXiv:1602.05629); the rows of other splits go where the like
    training rows go.

    Args:
        each: shards per client, at least 1.
    """

    def __init__(self, each: int = 2) -> None:
        if each < 1:
            raise ConfigError(f"partition: deal: each: expected at least 1 shard per client, found {each}")
        self.each = each

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = _names(clients)
        _check_enough(whole, len(names), self.each)
        places = {split: label + position for split, (label, position) in _places(whole, seed)[1].items()}
        shards = np.array_split(np.sort(places["train"]), len(names) * self.each)
        # halfway between the last row of a shard and the first of the next
        bounds = [(before[-1] + after[0]) / 2 for before, after in pairwise(shards)]
        rng = np.random.default_rng(derive_seed(seed, "shards"))
        shard_owner = rng.permutation(np.repeat(np.arange(len(names)), self.each))
        owner = {split: shard_owner[np.searchsorted(bounds, place)] for split, place in places.items()}
        return _hands(whole, names, owner)


class Distance(Deal):
    """Clients that differ in features and labels by a wanted earth mover's distance (Lucchetti et al. 2022, Federated
    Geometric Monte Carlo Clustering to Counter Non-IID Datasets).

    k-means cuts the rows into one subset a client: the highest distance. Then rows drawn at random change places
    between the subset that is farthest from the whole and the others, until the distance (Eq. 9, see
    :meth:`fedlit.data.shaping.distance.Space.mean`) is as wanted. Of five such sequences the first is taken after which
    the distances between clients pass Shapiro and Wilk's test for a normal distribution (p > 0.05), else that with the
    largest p: ``fedlit partition describe`` tells it. So that training rows decide, only these are measured, and
    clustered; other rows join the nearest subset.

    NOTE[DIFF]: in the paper rows leave the farthest subset. Rows drawn from it at random leave its distribution what
    it was, so it would be emptied before it came nearer: here as many rows of the others come in return, and subsets
    keep the sizes that k-means gave them.

    Args:
        emd: the wanted distance: a number, which is reached from above; ``highest``, that of the k-means subsets;
            ``lowest``, that of rows dealt at random; ``middle``, halfway between these two.
        features: in which space (see :class:`fedlit.data.shaping.distance.Measure`).
        label: what another label costs, in mean feature distances between two rows.
        sample: rows per client on which distances are measured, at most. It changes them: see there.
        least: training rows that each client has at least (and one of every other split): a smaller subset gets
            rows of the largest.
    """

    def __init__(
        self,
        emd: float | Literal["lowest", "middle", "highest"] = "middle",
        features: Features = "standardised",
        label: float = 1.0,
        sample: int = 200,
        least: int = 20,
    ) -> None:
        if emd not in ("lowest", "middle", "highest") and not (isinstance(emd, int | float) and np.isfinite(emd)):
            raise ConfigError(f"partition: deal: emd: expected a number, lowest, middle or highest, found {emd!r}")
        self.emd, self.least = emd, _checked(least)
        self.measure = Measure(features, label, sample)

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        names = _names(clients)
        _check_enough(whole, len(names), self.least)
        used = np.sort(np.concatenate(list(whole.splits.values())))
        splits = {
            split: np.searchsorted(used, np.sort(whole.splits[split])) for split in SPLITS if split in whole.splits
        }
        with threadpool_limits(1):  # with more, sums depend on which thread is first
            space = Space(
                self.measure,
                whole.features.iloc[used],
                whole.target.iloc[used],
                splits["train"],
                whole.categorical,
                seed,
            )
            owner = self._start(space, splits, len(names), seed)
            owner = self._choose(space, splits, owner, seed)
        return _hands(whole, names, {split: owner[rows] for split, rows in splits.items()})

    def _start(self, space: Space, splits: Hand, clients: int, seed: int) -> np.ndarray:
        """k-means: the subset of each row."""
        from sklearn.cluster import KMeans

        rng = np.random.default_rng(derive_seed(seed, "k-means"))
        means = KMeans(clients, n_init=1, random_state=int(rng.integers(2**31))).fit(space.x[splits["train"]])
        owner: np.ndarray = means.predict(space.x)
        for split, rows in splits.items():
            least = self.least if split == "train" else 1
            while (sizes := np.bincount(owner[rows], minlength=clients)).min() < least:
                donors = rows[owner[rows] == sizes.argmax()]
                owner[rng.choice(donors)] = sizes.argmin()
        return owner

    def _choose(self, space: Space, splits: Hand, start: np.ndarray, seed: int) -> np.ndarray:
        """From the subsets at the start to clients that are as far from the whole as wanted."""
        train, clients = splits["train"], int(start.max()) + 1

        def sets(owner: np.ndarray) -> dict[str, np.ndarray]:
            return {f"{client:06d}": train[owner[train] == client] for client in range(clients)}

        def shuffled(sequence: int) -> np.ndarray:
            rng, owner = np.random.default_rng(derive_seed(seed, "shuffled", sequence)), start.copy()
            for rows in splits.values():
                owner[rows] = rng.permutation(owner[rows])
            return owner

        if self.emd == "highest":
            return start
        highest, lowest = space.mean(sets(start)), space.mean(sets(shuffled(0)))
        wanted = (highest + lowest) / 2 if isinstance(self.emd, str) else self.emd
        if not lowest <= wanted <= highest:
            raise ConfigError(
                f"partition: deal: emd: expected a distance from {lowest:.4g}, that of rows dealt at random, to "
                f"{highest:.4g}, that of the k-means subsets, found {wanted:g}; or write lowest, middle or highest"
            )
        best, largest = start, -1.0
        for sequence in range(_SEQUENCES):
            if self.emd == "lowest":
                owner = shuffled(sequence)
            else:
                rng = np.random.default_rng(derive_seed(seed, "moves", sequence))
                owner = _move(space, splits, start, wanted, rng)
            p = space.between(sets(owner)).p
            if p > largest or sequence == 0:
                best, largest = owner, p
            if not largest <= NORMAL:
                break
        return best


def _move(space: Space, splits: Hand, start: np.ndarray, wanted: float, rng: np.random.Generator) -> np.ndarray:
    """Exchange rows between the subset that is farthest from the whole and the others until it is near enough."""
    train, clients = splits["train"], int(start.max()) + 1

    def distance(owner: np.ndarray, client: int) -> float:
        return space.emd(train[owner[train] == client])

    def everyone(owner: np.ndarray) -> np.ndarray:
        return np.array([distance(owner, client) for client in range(clients)])

    weights = np.bincount(start[train], minlength=clients) / len(train)
    path = [start]
    for move in range(_MOVES * clients):
        # one move changes the others little: they are measured again now and then
        if move % clients == 0:
            away = everyone(path[-1])
            if away @ weights <= wanted:
                return path[bisect_left(path, True, key=lambda owner: bool(everyone(owner) @ weights <= wanted))]
            path = path[-1:]
        far, owner = int(away.argmax()), path[-1].copy()
        for rows in splits.values():
            own, others = rows[owner[rows] == far], rows[owner[rows] != far]
            count = min(len(others), max(1, min(len(own) // 5, len(rows) // 50)))
            leave, come = rng.choice(own, count, replace=False), rng.choice(others, count, replace=False)
            owner[leave], owner[come] = owner[come], far
        path.append(owner)
        away[far] = distance(owner, far)
    raise ConfigError(
        f"partition: deal: emd: expected a distance that {_MOVES * clients} moves reach, found {away @ weights:.4g} "
        f"where {wanted:.4g} is wanted; take a larger one, or lowest"
    )


def _names(clients: int | None) -> list[str]:
    """c01, c02, …"""
    if clients is None:
        raise ConfigError(
            "partition: clients: expected how many there shall be, found none; only ByColumn can do without"
        )
    digits = max(2, len(str(clients)))
    return [f"c{number:0{digits}d}" for number in range(1, clients + 1)]


def _client_name(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(value)).strip("-_")


def _checked(least: int) -> int:
    if least < 1:
        raise ConfigError(f"partition: deal: least: expected at least 1 training row per client, found {least}")
    return least


def _check_enough(whole: Whole, clients: int, least: int) -> None:
    for split, rows in whole.splits.items():
        needed = clients * (least if split == "train" else 1)
        if len(rows) < needed:
            raise DataError(
                f"partition: deal: expected at least {needed} {split} rows for {clients} clients, found {len(rows)}; "
                "take fewer clients, or fewer rows for each"
            )


def _places(whole: Whole, seed: int) -> tuple[list[object], dict[Split, tuple[np.ndarray, np.ndarray]]]:
    """The labels, and by split for each row, in the order of positions, its label's place among them and its own in a
    random order of the split's rows of this label, in (0, 1).
    """
    used = np.concatenate(list(whole.splits.values()))
    labels = sorted(whole.target.iloc[used].unique().tolist())
    code = {label: place for place, label in enumerate(labels)}
    places: dict[Split, tuple[np.ndarray, np.ndarray]] = {}
    for split, rows in whole.splits.items():
        own = whole.target.iloc[np.sort(rows)].map(code).to_numpy(np.int64)
        position = np.empty(len(own))
        for label, place in code.items():
            rng = np.random.default_rng(derive_seed(seed, "dealing", split, str(label)))
            among = np.flatnonzero(own == place)
            position[among] = (rng.permutation(len(among)) + 0.5) / max(len(among), 1)
        places[split] = own, position
    return labels, places


def _hands(whole: Whole, names: list[str], owner: Mapping[Split, np.ndarray]) -> dict[str, Hand]:
    """``owner``: client's place in ``names``, by split for each row in the order of positions."""
    ordered = {split: np.sort(rows) for split, rows in whole.splits.items()}
    return {
        name: {split: rows[owner[split] == place] for split, rows in ordered.items()}
        for place, name in enumerate(names)
    }
