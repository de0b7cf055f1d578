"""Clients that are as far apart as wanted."""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import numpy as np

from fedlit.data.shaping.dealing import Deal, Hand, Whole
from fedlit.data.shaping.distance import Features, Measure, Space
from fedlit.data.table import SPLITS
from fedlit.errors import ConfigError, expect
from fedlit.seeding import derive_seed

__all__ = ["NORMAL", "Distance"]

_SEQUENCES = 5
_MOVES = 50
NORMAL = 0.05
"""The p-value above which distances pass for normally distributed."""


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
        known = emd in ("lowest", "middle", "highest") or (isinstance(emd, int | float) and np.isfinite(emd))
        expect(bool(known), "partition: deal: emd", "a number, lowest, middle or highest", emd)
        expect(least >= 1, "partition: deal: least", "at least 1 training row per client", least)
        self.emd, self.least = emd, least
        self.measure = Measure(features, label, sample)

    def owners(self, whole: Whole, clients: int, seed: int) -> Hand:
        """See the class."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        used = np.sort(np.concatenate(list(whole.splits.values())))
        splits = {
            split: np.searchsorted(used, np.sort(whole.splits[split])) for split in SPLITS if split in whole.splits
        }
        features, target = whole.features.iloc[used], whole.target.iloc[used]
        with threadpool_limits(1):  # with more, sums depend on which thread is first
            space = Space(self.measure, features, target, splits["train"], whole.categorical, seed)
            owner = self._choose(space, splits, self._start(space, splits, clients, seed), seed)
        return {split: owner[rows] for split, rows in splits.items()}

    def _start(self, space: Space, splits: Hand, clients: int, seed: int) -> np.ndarray:
        """k-means: the subset of each row."""
        from sklearn.cluster import KMeans

        rng = np.random.default_rng(derive_seed(seed, "k-means"))
        means = KMeans(clients, n_init=1, random_state=int(rng.integers(2**31))).fit(space.x[splits["train"]])
        owner: np.ndarray = means.predict(space.x)
        for split, rows in splits.items():
            while (sizes := np.bincount(owner[rows], minlength=clients)).min() < self.needs(split):
                donors = rows[owner[rows] == sizes.argmax()]
                owner[rng.choice(donors)] = sizes.argmin()
        return owner

    def _choose(self, space: Space, splits: Hand, start: np.ndarray, seed: int) -> np.ndarray:
        """Turn the first subsets into clients that are as far from the whole as wanted."""

        def shuffled(sequence: int) -> np.ndarray:
            rng, owner = np.random.default_rng(derive_seed(seed, "shuffled", sequence)), start.copy()
            for rows in splits.values():
                owner[rows] = rng.permutation(owner[rows])
            return owner

        if self.emd == "highest":
            return start
        train = splits["train"]
        highest, lowest = space.mean(_sets(train, start)), space.mean(_sets(train, shuffled(0)))
        wanted = (highest + lowest) / 2 if isinstance(self.emd, str) else self.emd
        reachable = f"a distance from {lowest:.4g} (rows dealt at random) to {highest:.4g} (the k-means subsets)"
        expect(
            lowest <= wanted <= highest, "partition: deal: emd", reachable, wanted, "or write lowest, middle or highest"
        )
        best, largest = start, -1.0
        for sequence in range(_SEQUENCES):
            if self.emd == "lowest":
                owner = shuffled(sequence)
            else:
                rng = np.random.default_rng(derive_seed(seed, "moves", sequence))
                owner = _move(space, splits, start, wanted, rng)
            p = space.between(_sets(train, owner)).p
            if p > largest or sequence == 0:
                best, largest = owner, p
            if not largest <= NORMAL:
                break
        return best


def _sets(train: np.ndarray, owner: np.ndarray) -> dict[int, np.ndarray]:
    """Client → its training rows."""
    return {client: train[owner[train] == client] for client in range(int(owner.max()) + 1)}


def _move(space: Space, splits: Hand, start: np.ndarray, wanted: float, rng: np.random.Generator) -> np.ndarray:
    """Exchange rows between the subset that is farthest from the whole and the others until it is near enough."""
    train, clients = splits["train"], int(start.max()) + 1

    def everyone(owner: np.ndarray) -> np.ndarray:
        return np.array([space.emd(rows) for rows in _sets(train, owner).values()])

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
        away[far] = space.emd(train[owner[train] == far])
    raise ConfigError(
        f"partition: deal: emd: expected a distance that {_MOVES * clients} moves reach, found {away @ weights:.4g} "
        f"where {wanted:.4g} is wanted; take a larger one, or lowest"
    )
