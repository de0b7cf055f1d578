"""Clients that are as far apart as wanted, by the earth mover's distance, joint over features and labels (Lucchetti et
al. 2022, Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets, Eq. 9).
"""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args  # noqa: F401  (jsonargparse reads Deal's ClassVar here)

import numpy as np

from fedlit.data.shaping.dealing import Deal, Hand, Whole
from fedlit.data.table import SPLITS
from fedlit.errors import ConfigError, expect
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NORMAL", "SAMPLE", "Distance", "Distances", "Features", "Space", "emd"]

Features = Literal["standardised", "raw"]
NORMAL = 0.05
"""The p-value above which distances pass for normally distributed."""
SAMPLE = 200
"""Rows of a client that are measured, at most, where nobody says otherwise."""
_PAIRS = 200  # of clients that are measured, at most
_SEQUENCES = 5
_MOVES = 50


def emd(x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray, label: float) -> float:
    """The earth mover's distance between two sets of labelled rows, each row of a set with the same weight.

    NOTE[DIFF]: the paper does not say what it costs to move (x, y) to (x′, y′). Here that is
    ‖x − x′‖ + label · [y ≠ y′], as classes have no order.

    Args:
        x: features, shape (n, d).
        y: labels as numbers, shape (n,).
        other_x: features, shape (m, d).
        other_y: labels, shape (m,).
        label: what another label costs, at least 0.

    Example:
        >>> emd(np.zeros((2, 1)), np.array([0, 1]), np.full((1, 1), 3.0), np.array([1]), label=2.0)
        4.0
    """
    import ot
    from scipy.spatial.distance import cdist

    cost = cdist(x, other_x) + label * (np.asarray(y)[:, None] != np.asarray(other_y)[None, :])
    return float(ot.emd2([], [], cost, numItermax=1_000_000))


@dataclass(frozen=True)
class Distances:
    """The distances of clients' rows, by name.

    Attributes:
        to_whole: client → its earth mover's distance to all rows.
        mean: their mean, weighted by the clients' rows (Eq. 9).
        pairwise: between any two clients, in the order of their names; of 200 drawn pairs if there are more.
        p: of Shapiro and Wilk's test that the pairwise distances are normally distributed; NaN for fewer than three.
    """

    to_whole: Mapping[str, float]
    mean: float
    pairwise: tuple[float, ...]
    p: float


class Space:
    """Rows as points, for distances between sets of them.

    Args:
        features: all rows' columns.
        target: their labels.
        train: positions of the training rows: by these are features standardised, and these are the whole.
        categorical: columns that hold categories: each becomes a column of 0 and 1, a missing one is 0 in all.
        seed: the run's seed.
        how: ``standardised`` by the training rows of all clients, or ``raw``.
        rows: at most so many rows of each client, and of the whole, are measured, drawn by the seed. The distance
            between samples is larger than that between distributions, the more so the fewer they are: compare only
            distances of the same number.

    Attributes:
        x: shape (rows, d), float32; a missing number is the training mean.
        y: labels as numbers, shape (rows,).

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"a": [0.0, 1.0, 0.0, 1.0]})
        >>> space = Space(rows, pd.Series([0, 0, 1, 1]), np.arange(4), how="raw")
        >>> round(space.between({"one": np.array([0, 1]), "two": np.array([2, 3])}).mean, 3)
        0.333
    """

    def __init__(
        self,
        features: pd.DataFrame,
        target: pd.Series,
        train: np.ndarray,
        categorical: tuple[str, ...] = (),
        seed: int = 0,
        how: Features = "standardised",
        rows: int = SAMPLE,
    ) -> None:
        from scipy.spatial.distance import pdist

        # in the order of their numbers, so that it is all the same who has which row, and where it stands
        train = train[np.argsort(features.index.to_numpy()[train], kind="stable")]
        drawn = train[np.random.default_rng(derive_seed(seed, "distance")).permutation(len(train))]
        self.seed, self.rows = seed, rows
        self.x = _points(features, train, categorical, how != "raw")
        self.y: np.ndarray = np.unique(target.to_numpy(), return_inverse=True)[1]
        self._turn = np.full(len(self.x), -1)  # a row comes in a turn of its own, whoever has it
        self._turn[drawn] = np.arange(len(drawn))
        self._whole = drawn[:rows]
        self._label = float(pdist(self.x[self._whole]).mean())  # what another label costs

    def emd(self, rows: np.ndarray, others: np.ndarray | None = None) -> float:
        """Between the samples of two sets of training rows (positions); to the whole if there is no other."""
        one, two = (
            own[np.argsort(self._turn[own])][: self.rows] for own in (rows, self._whole if others is None else others)
        )
        return emd(self.x[one], self.y[one], self.x[two], self.y[two], self._label)

    def to_whole(self, clients: Mapping[Any, np.ndarray]) -> tuple[dict[Any, float], float]:
        """The distance of each client (name → rows) to the whole, and their mean weighted by rows (Eq. 9)."""
        found = {name: self.emd(rows) for name, rows in clients.items()}
        total = sum(map(len, clients.values()))
        return found, sum(len(clients[name]) * distance for name, distance in found.items()) / total

    def between(self, clients: Mapping[Any, np.ndarray]) -> Distances:
        """Compute all distances of clients (name → rows)."""
        from scipy.stats import shapiro

        pairs = list(combinations(sorted(clients), 2))
        if len(pairs) > _PAIRS:
            chosen = np.random.default_rng(derive_seed(self.seed, "pairs")).permutation(len(pairs))[:_PAIRS]
            pairs = [pairs[place] for place in np.sort(chosen)]
        pairwise = tuple(self.emd(clients[a], clients[b]) for a, b in pairs)
        p = float(shapiro(pairwise).pvalue) if len(pairwise) > 2 else float("nan")
        return Distances(*self.to_whole(clients), pairwise, p)


def _points(features: pd.DataFrame, train: np.ndarray, categorical: tuple[str, ...], standardise: bool) -> np.ndarray:
    """Columns of numbers, then the indicators of categories, which stay 0 and 1: a rare one is not to count more."""
    import pandas as pd

    numbers = features.drop(columns=list(categorical)).to_numpy(np.float32, na_value=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any number
        mean = np.nan_to_num(np.nanmean(numbers[train], axis=0, dtype=np.float64)).astype(np.float32)
        scale = np.nan_to_num(np.nanstd(numbers[train], axis=0, dtype=np.float64)).astype(np.float32)
    numbers = np.where(np.isnan(numbers), mean, numbers)
    if standardise:
        numbers = (numbers - mean) / np.where(scale > 0, scale, 1)
    coded = [pd.get_dummies(features[name].astype("category"), dtype=np.float32).to_numpy() for name in categorical]
    return np.concatenate([numbers, *coded], axis=1)


@dataclass(eq=False)
class Distance(Deal):
    """Clients that differ in features and labels by a wanted earth mover's distance (Lucchetti et al. 2022, Federated
    Geometric Monte Carlo Clustering to Counter Non-IID Datasets).

    k-means cuts the rows into one subset a client: the highest distance. Then rows drawn at random change places
    between the subset that is farthest from the whole and the others, until the distance (Eq. 9, see
    ``Space.mean``) is as wanted. Of five such sequences the first is taken after which
    the distances between clients pass Shapiro and Wilk's test for a normal distribution (p > 0.05), else that with the
    largest p: ``fedlit partition describe`` tells it. So that training rows decide, only these are measured, and
    clustered; other rows join the nearest subset.

    NOTE[DIFF]: in the paper rows leave the farthest subset. Rows drawn from it at random leave its distribution what
    it was, so it would be emptied before it came nearer: here as many rows of the others come in return, and subsets
    keep the sizes that k-means gave them.

    Args:
        emd: the wanted distance: a number, which is reached from above; ``highest``, that of the k-means subsets;
            ``lowest``, that of rows dealt at random; ``middle``, halfway between these two.
        features: whether features are ``standardised`` by the training rows of all clients, or ``raw``. Another label
            costs the mean distance between two rows.
        sample: rows per client on which distances are measured, at most. It changes them: see :class:`Space`.
        least: training rows that each client has at least (and one of every other split): a smaller subset gets
            rows of the largest.
    """

    emd: float | Literal["lowest", "middle", "highest"] = "middle"
    features: Features = "standardised"
    sample: int = SAMPLE
    least: int = 20

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        number = isinstance(self.emd, int | float) and bool(np.isfinite(self.emd))
        fits = number or self.emd in ("lowest", "middle", "highest")
        expect(fits, "partition: deal: emd", "a number, lowest, middle or highest", self.emd)
        kinds = get_args(Features)
        expect(self.features in kinds, "partition: deal: features", f"one of {', '.join(kinds)}", self.features)
        expect(self.sample >= 2, "partition: deal: sample", "at least 2 rows", self.sample)

    def owners(self, whole: Whole, clients: int, seed: int) -> Hand:
        """See the class."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        used = np.sort(np.concatenate(list(whole.splits.values())))  # the others are neither measured nor dealt
        rows = {split: np.searchsorted(used, np.sort(whole.splits[split])) for split in SPLITS if split in whole.splits}
        features, target = whole.features.iloc[used], whole.target.iloc[used]
        with threadpool_limits(1):  # with more, sums depend on which thread is first
            space = Space(features, target, rows["train"], whole.categorical, seed, self.features, self.sample)
            owner = self._choose(space, rows, self._start(space, rows, clients, seed), seed)
        return {split: owner[own] for split, own in rows.items()}

    def _start(self, space: Space, splits: Hand, clients: int, seed: int) -> np.ndarray:
        """k-means: the subset of each row."""
        from sklearn.cluster import KMeans

        rng = np.random.default_rng(derive_seed(seed, "k-means"))
        means = KMeans(clients, n_init=1, random_state=int(rng.integers(2**31))).fit(space.x[splits["train"]])
        owner: np.ndarray = means.predict(space.x)
        for split, rows in splits.items():
            while (sizes := np.bincount(owner[rows], minlength=clients)).min() < self.needs(split):
                owner[rng.choice(rows[owner[rows] == sizes.argmax()])] = sizes.argmin()
        return owner

    def _choose(self, space: Space, splits: Hand, start: np.ndarray, seed: int) -> np.ndarray:
        """Turn the first subsets into clients that are as far from the whole as wanted."""
        if self.emd == "highest":
            return start
        train, made = splits["train"], list[tuple[float, np.ndarray]]()
        (_, highest), (_, lowest) = (
            space.to_whole(_sets(train, owner)) for owner in (start, _shuffled(splits, start, seed, 0))
        )
        wanted = (highest + lowest) / 2 if isinstance(self.emd, str) else self.emd
        reachable = f"a distance from {lowest:.4g} (rows dealt at random) to {highest:.4g} (the k-means subsets)"
        advice = "or write lowest, middle or highest"
        expect(lowest <= wanted <= highest, "partition: deal: emd", reachable, wanted, advice)
        for sequence in range(_SEQUENCES):
            if self.emd == "lowest":
                owner = _shuffled(splits, start, seed, sequence)
            else:
                owner = _move(space, splits, start, wanted, np.random.default_rng(derive_seed(seed, "moves", sequence)))
            made.append((space.between(_sets(train, owner)).p, owner))
            if not made[-1][0] <= NORMAL:  # nor where there are too few to test
                return owner
        return max(made, key=lambda own: own[0])[1]


def _sets(train: np.ndarray, owner: np.ndarray) -> dict[int, np.ndarray]:
    """Client → its training rows."""
    return {client: train[owner[train] == client] for client in range(int(owner.max()) + 1)}


def _shuffled(splits: Hand, start: np.ndarray, seed: int, sequence: int) -> np.ndarray:
    """Subsets of the same sizes, of rows drawn at random."""
    rng, owner = np.random.default_rng(derive_seed(seed, "shuffled", sequence)), start.copy()
    for rows in splits.values():
        owner[rows] = rng.permutation(owner[rows])
    return owner


def _move(space: Space, splits: Hand, start: np.ndarray, wanted: float, rng: np.random.Generator) -> np.ndarray:
    """Exchange rows between the subset that is farthest from the whole and the others until it is near enough."""
    train, clients, path = splits["train"], int(start.max()) + 1, [start]
    for move in range(_MOVES * clients):
        # one move changes the others little: they are measured again now and then
        if move % clients == 0:
            away, mean = space.to_whole(_sets(train, path[-1]))
            if mean <= wanted:
                near = bisect_left(path, True, key=lambda own: space.to_whole(_sets(train, own))[1] <= wanted)
                return path[near]
            path = path[-1:]
        far, owner = max(away, key=away.__getitem__), path[-1].copy()
        for rows in splits.values():
            own, others = rows[owner[rows] == far], rows[owner[rows] != far]
            count = min(len(others), max(1, min(len(own) // 5, len(rows) // 50)))
            leave, come = rng.choice(own, count, replace=False), rng.choice(others, count, replace=False)
            owner[leave], owner[come] = owner[come], far
        path.append(owner)
        away[far] = space.emd(train[owner[train] == far])
    raise ConfigError(
        f"partition: deal: emd: expected a distance that {_MOVES * clients} moves reach, found {mean:.4g} where "
        f"{wanted:.4g} is wanted; take a larger one, or lowest"
    )
