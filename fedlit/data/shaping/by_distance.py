"""Deals rows to clients with a given earth mover's distance, joint over features and labels (Lucchetti et al. 2022,
Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets, Eq. 9).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import combinations, islice
from typing import ClassVar, Literal  # noqa: F401  (jsonargparse reads Deal's ClassVar here)

import numpy as np

from fedlit.data.shaping.partition import Deal, Hand
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import ConfigError
from fedlit.seeding import derive_seed

SAMPLE = 200
"""Rows of a client that are measured, at most."""
_NORMAL = 0.05  # the p-value above which distances pass for normally distributed
_MOVES, _SEQUENCES, _PAIRS = 50, 5, 200


def emd(x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray, label: float) -> float:
    """Return the earth mover's distance between two sets of labelled rows. All rows of a set have the same weight.

    NOTE[DIFF]: the paper does not say what it costs to move (x, y) to (x′, y′). Here that is
    ‖x − x′‖ + label · [y ≠ y′], as classes have no order.

    Args:
        x: features, shape (n, d).
        y: labels as numbers, shape (n,).
        other_x: features, shape (m, d).
        other_y: labels, shape (m,).
        label: the cost of a different label, at least 0.

    Example:
        >>> emd(np.zeros((2, 1)), np.array([0, 1]), np.full((1, 1), 3.0), np.array([1]), label=2.0)
        4.0
    """
    import ot
    from scipy.spatial.distance import cdist

    cost = cdist(x, other_x) + label * (np.asarray(y)[:, None] != np.asarray(other_y)[None, :])
    return float(ot.emd2([], [], cost, numItermax=1_000_000))


class Space:
    """Rows as points in a space, for the distances of clients to the whole, which are all training rows. At most
    :data:`SAMPLE` rows of each client, and of the whole, are measured, drawn by the seed.

    Args:
        whole: the rows to place in the space.
        train: the positions of the training rows.
        seed: the run's seed.
        raw: whether numbers are used unchanged; otherwise they are standardised by the training rows.

    Attributes:
        x: shape (rows, d), float32: numbers, with the training mean for a missing one; then a column of 0 and 1 for
            each category, which are all 0 if the category is missing.
        y: labels as numbers, shape (rows,).
    """

    def __init__(self, whole: ClientTable, train: np.ndarray, seed: int, raw: bool = False) -> None:
        from scipy.spatial.distance import pdist

        self.x, self.y, self.train = _points(whole, train, raw), whole.target.factorize()[0], train
        # in the order of their numbers, so that it is all the same who has which row, and where it stands
        ordered = train[np.argsort(whole.features.index.to_numpy()[train], kind="stable")]
        drawn = ordered[np.random.default_rng(derive_seed(seed, "distance")).permutation(len(ordered))]
        self._turn = np.full(len(self.x), -1)  # a row comes in a turn of its own, whoever has it
        self._turn[drawn] = np.arange(len(drawn))
        self._label = float(pdist(self.x[drawn[:SAMPLE]]).mean())  # what another label costs

    def away(self, owner: np.ndarray, client: int, other: int | None = None) -> float:
        """Return the distance of a client's training rows to those of another client, or to the whole, given the client
        of each row.
        """
        one, two = (self._sample(owner, own) for own in (client, other))
        return emd(self.x[one], self.y[one], self.x[two], self.y[two], self._label)

    def _sample(self, owner: np.ndarray, client: int | None) -> np.ndarray:
        own = self.train if client is None else self.train[owner[self.train] == client]
        return own[np.argsort(self._turn[own])][:SAMPLE]

    def mean(self, owner: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean distance of all clients to the whole, weighted by their training rows (Eq. 9), and the
        distance of each client.
        """
        sizes = np.bincount(owner[self.train])
        each = np.array([self.away(owner, client) for client in range(len(sizes))])
        return float(np.average(each, weights=sizes)), each

    def normal(self, owner: np.ndarray) -> float:
        """Return the p-value of Shapiro and Wilk's test that the distances between clients are normally distributed;
        NaN if there are fewer than three.
        """
        from scipy.stats import shapiro

        between = [self.away(owner, *pair) for pair in islice(combinations(range(owner.max() + 1), 2), _PAIRS)]
        return float(shapiro(between).pvalue) if len(between) > 2 else np.nan


def _points(whole: ClientTable, train: np.ndarray, raw: bool) -> np.ndarray:
    import pandas as pd

    categorical = list(whole.categorical)
    numbers = whole.features.drop(columns=categorical).astype(np.float32)
    seen = numbers.iloc[train].astype(np.float64)
    mean, scale = (own.fillna(0).astype(np.float32) for own in (seen.mean(), seen.std(ddof=0)))
    numbers = numbers.fillna(mean)
    if not raw:
        numbers = (numbers - mean) / scale.where(scale > 0, 1)
    # categories stay 0 and 1: a rare one is not to count more
    coded = [pd.get_dummies(whole.features[name]) for name in categorical]
    return np.concatenate([numbers, *coded], axis=1)


@dataclass(eq=False)
class Distance(Deal):
    """Clients that differ in features and labels by a given earth mover's distance (Lucchetti et al. 2022, Federated
    Geometric Monte Carlo Clustering to Counter Non-IID Datasets).

    k-means divides the rows into one subset for each client, which gives the highest distance. Then random rows are
    exchanged between the subset that is farthest from the whole and the others, until the mean distance (Eq. 9, see
    :meth:`Space.mean`) is as wanted. Of five such sequences, the first is used after which the distances between
    clients pass Shapiro and Wilk's test for a normal distribution (p > 0.05), otherwise the one with the largest p.
    Only training rows are measured and clustered, so that they alone decide; other rows join the nearest subset.
    Distances are those between samples of 200 rows, which are larger than those between distributions.

    NOTE[DIFF]: in the paper, rows leave the farthest subset. As rows drawn from it at random do not change its
    distribution, it would be empty before it came nearer. Here as many rows of the others replace them, and subsets
    keep the sizes that k-means gave them.

    Args:
        emd: the wanted distance: ``highest``, that of the k-means subsets; ``lowest``, that of rows dealt at random;
            ``middle``, halfway between these two, which is approached from above.
        features: whether features are ``standardised`` by the training rows of all clients, or ``raw``. A different
            label costs the mean distance between two rows.
        least: the minimum number of training rows of each client (and one row of every other split): a smaller subset
            gets rows of the largest.
    """

    emd: Literal["lowest", "middle", "highest"] = "middle"
    features: Literal["standardised", "raw"] = "standardised"
    least: int = 20

    def owners(self, whole: ClientTable, clients: int, seed: int) -> np.ndarray:
        """Return the client of each row, see the class."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        rows = {split: np.sort(whole.splits[split]) for split in SPLITS if split in whole.splits}
        with threadpool_limits(1):  # with more, sums depend on which thread is first
            space = Space(whole, rows["train"], seed, self.features == "raw")
            start = self._subsets(space, rows, clients, seed)
            return start if self.emd == "highest" else self._nearer(space, rows, start, seed)

    def _subsets(self, space: Space, splits: Hand, clients: int, seed: int) -> np.ndarray:
        """Return the k-means subset of each row."""
        from sklearn.cluster import KMeans

        rng = np.random.default_rng(derive_seed(seed, "k-means"))
        means = KMeans(clients, n_init=1, random_state=int(rng.integers(2**31))).fit(space.x[space.train])
        owner: np.ndarray = means.predict(space.x)
        for split, rows in splits.items():
            while (sizes := np.bincount(owner[rows], minlength=clients)).min() < self.needs(split):
                owner[rng.choice(rows[owner[rows] == sizes.argmax()])] = sizes.argmin()
        return owner

    def _nearer(self, space: Space, splits: Hand, start: np.ndarray, seed: int) -> np.ndarray:
        """Turn the first subsets into clients that are as far from the whole as wanted."""
        wanted = sum(space.mean(owner)[0] for owner in (start, _shuffled(splits, start, seed, 0))) / 2
        made = list[tuple[float, np.ndarray]]()
        for sequence in range(_SEQUENCES):
            dealt = splits, start, seed, sequence
            owner = _shuffled(*dealt) if self.emd == "lowest" else _moved(*dealt, space, wanted)
            made.append((space.normal(owner), owner))
            if not made[-1][0] <= _NORMAL:  # nor where there are too few to test
                break
        return max(made, key=lambda own: own[0])[1]


def _shuffled(splits: Hand, start: np.ndarray, seed: int, sequence: int) -> np.ndarray:
    """Return subsets of the same sizes, of rows drawn at random."""
    rng, owner = np.random.default_rng(derive_seed(seed, "shuffled", sequence)), start.copy()
    for rows in splits.values():
        owner[rows] = rng.permutation(owner[rows])
    return owner


def _moved(splits: Hand, start: np.ndarray, seed: int, sequence: int, space: Space, wanted: float) -> np.ndarray:
    """Exchange rows between the subset that is farthest from the whole and the others until it is near enough."""
    rng, clients, path = np.random.default_rng(derive_seed(seed, "moves", sequence)), int(start.max()) + 1, [start]
    for move in range(_MOVES * clients):
        # one move changes the others little: they are measured again now and then
        if move % clients == 0:
            mean, each = space.mean(path[-1])
            if mean <= wanted:
                return path[bisect_left(path, True, key=lambda own: space.mean(own)[0] <= wanted)]
            path = path[-1:]
        far, owner = int(each.argmax()), path[-1].copy()
        for rows in splits.values():
            own, others = rows[owner[rows] == far], rows[owner[rows] != far]
            count = min(len(others), max(1, min(len(own) // 5, len(rows) // 50)))
            leave, come = rng.choice(own, count, replace=False), rng.choice(others, count, replace=False)
            owner[leave], owner[come] = owner[come], far
        path.append(owner)
        each[far] = space.away(owner, far)
    raise ConfigError(
        f"partition: deal: emd: expected a distance that {_MOVES} moves a client reach, found {wanted:.4g}"
    )
