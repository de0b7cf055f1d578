"""Ways to deal the rows of a partition."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.shaping.deal import Deal, Hand, Whole, at_least_one, check_enough, client_names, hands, places_by_label
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ByColumn", "Dirichlet", "Iid", "Shards"]

_DRAWS = 1000


class Iid(Deal):
    """Alike clients: the rows of each split, dealt at random and as evenly as can be."""

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = client_names(clients)
        dealt = {split: np.array_split(rows, len(names)) for split, rows in whole.splits.items()}
        return {name: {split: parts[place] for split, parts in dealt.items()} for place, name in enumerate(names)}


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
        self.alpha, self.least = alpha, at_least_one(least)

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class."""
        names = client_names(clients)
        check_enough(whole, len(names), self.least)
        labels, places = places_by_label(whole, seed)
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
                return hands(whole, names, owner)
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
        names = client_names(clients)
        check_enough(whole, len(names), self.each)
        places = {split: label + position for split, (label, position) in places_by_label(whole, seed)[1].items()}
        shards = np.array_split(np.sort(places["train"]), len(names) * self.each)
        # halfway between the last row of a shard and the first of the next
        bounds = [(before[-1] + after[0]) / 2 for before, after in itertools.pairwise(shards)]
        rng = np.random.default_rng(derive_seed(seed, "shards"))
        shard_owner = rng.permutation(np.repeat(np.arange(len(names)), self.each))
        owner = {split: shard_owner[np.searchsorted(bounds, place)] for split, place in places.items()}
        return hands(whole, names, owner)


class ByColumn(Deal):
    """A client for each value of a column, named after it: a federation as it is found. Or for each range of a number.

    Args:
        column: which has a value in every row.
        drop: whether clients get no such column; it is constant within each of them.
        cuts: numbers, rising, that part the column into ranges: ``[45, 60]`` makes clients ``below-45``, ``45-to-60``
            (45 among them) and ``from-60``.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"site": ["Bern", "St. Gallen", "Bern"]})
        >>> ByColumn("site").deal(Whole(rows, rows["site"], {"train": np.arange(3)}), None, seed=0)
        {'Bern': {'train': array([0, 2])}, 'St-Gallen': {'train': array([1])}}
    """

    def __init__(self, column: str, drop: bool = False, cuts: list[float] | None = None) -> None:
        if cuts is not None and (not cuts or list(cuts) != sorted(set(cuts))):
            raise ConfigError(f"partition: deal: cuts: expected numbers, each larger than the one before, found {cuts}")
        self.column, self.dropped, self.cuts = column, (column,) if drop else (), cuts

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
        if self.cuts is not None:
            own = _ranges(own, self.cuts)
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


def _ranges(own: pd.Series, cuts: list[float]) -> pd.Series:
    """The range of each number (n,), by its name; missing stays missing."""
    if own.dtype.kind not in "iuf":
        raise DataError(
            f"partition: deal: cuts: expected numbers in {own.name}, found {own.dropna().iloc[0]!r}; leave cuts out"
        )
    edges = [f"{cut:g}" for cut in cuts]
    middle = [f"{low}-to-{high}" for low, high in itertools.pairwise(edges)]
    names = np.array([f"below-{edges[0]}", *middle, f"from-{edges[-1]}"], dtype=object)
    place = np.searchsorted(cuts, own.to_numpy(np.float64), side="right")
    return own.astype(object).mask(own.notna(), names[place])


def _client_name(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(value)).strip("-_")
