"""Deals rows to clients with a given earth mover's distance, joint over features and labels
(Lucchetti et al. 2022, Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets, Eq.
9).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args  # noqa: F401  (jsonargparse reads Deal's ClassVar here)

import numpy as np

from fedlit.data.shaping.partition import Deal, Hand
from fedlit.data.shaping.space import Features, Space
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.targets import has_classes, has_sequences
from fedlit.errors import ConfigError, expect, must_be_known
from fedlit.seeding import derive_seed

_NORMAL = 0.05
"""The p-value above which distances pass for normally distributed."""
_MOVES = 50
_SEQUENCES = 5


@dataclass(eq=False)
class Distance(Deal):
    """Clients that differ in features and labels by a given earth mover's distance (Lucchetti et
    al. 2022, Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets).

    k-means divides the rows into one subset for each client, which gives the highest distance. Then
    random rows are exchanged between the subset that is farthest from the whole and the others,
    until the mean distance (Eq. 9, see :meth:`Space.mean`) is as wanted. Of five such sequences,
    the first is used after which the distances between clients pass Shapiro and Wilk's test for a
    normal distribution (p > 0.05), otherwise the one with the largest p. Only training rows are
    measured and clustered, so that they alone decide; other rows join the nearest subset. Distances
    are those between samples of 200 rows, which are larger than those between distributions.

    NOTE[DIFF]: in the paper, rows leave the farthest subset. As rows drawn from it at random do not
    change its distribution, it would be empty before it came nearer. Here as many rows of the
    others replace them, and subsets keep the sizes that k-means gave them.

    NOTE[DIFF]: the paper's levels (17.1, 27.1 and 48.9 for EMNIST; 10.5, 20.6 and 26.3 for genomes,
    Table I) are in the space of its autoencoders' codes, whose scale it does not state. The same
    numbers can be asked for here; they are distances in the space that ``features`` names, with
    this class's cost of a label.

    Rows may be labelled by one of several classes, or be reads with a label for each position.

    Args:
        emd: the wanted distance: a number, from ``lowest`` to ``highest`` (an error says how much
            these are); ``highest``, that of the k-means subsets; ``lowest``, that of rows dealt at
            random; ``middle``, halfway between these two. It is approached from above.
        features: whether features are ``standardised`` by the training rows of all clients,
            ``raw``, or ``autoencoded``: the codes of an autoencoder of standardised features
            (appendix A; see :func:`~fedlit.data.shaping.space.codes_of_autoencoder`). A different
            label costs the mean distance between two rows.
        least: the minimum number of training rows of each client (and one row of every other
            split): a smaller subset gets rows of the largest.
        code: the length of an autoencoder's codes, at least 1; the paper has 98 for EMNIST and 30
            for reads (Table II).

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> iris = Bundled(clients=["iris"])
        >>> for emd in ("highest", 1.0):
        ...     tables = Partition(iris, clients=3, deal=Distance(emd)).tables(seed=0)
        ...     print(emd, [int((table.target == "setosa").sum()) for table in tables])
        highest [20, 0, 30]
        1.0 [13, 26, 11]
    """

    emd: float | Literal["lowest", "middle", "highest"] = "middle"
    features: Features = "standardised"
    least: int = 20
    code: int = 98

    def __post_init__(self) -> None:
        """Check the arguments."""
        is_number = isinstance(self.emd, int | float) and 0 <= self.emd < np.inf
        is_valid = is_number or self.emd in ("lowest", "middle", "highest")
        expected = "a number, lowest, middle or highest"
        expect(is_valid, "partition: deal: emd", expected, self.emd)
        must_be_known("partition: deal: features", [self.features], get_args(Features))
        expect(self.code >= 1, "partition: deal: code", "at least 1", self.code)

    def takes(self, whole: ClientTable) -> bool:
        """Return whether rows have classes, or a label for each position."""
        return has_classes(whole) or has_sequences(whole)

    def owners(self, whole: ClientTable, clients: int, seed: int) -> np.ndarray:
        """Return the client of each row, see the class."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        rows = {split: np.sort(whole.splits[split]) for split in SPLITS if split in whole.splits}
        with threadpool_limits(1):  # With more threads, sums depend on which one is first.
            space = Space(whole, rows["train"], seed, self.features, self.code)
            start = self._subsets(space, rows, clients, seed)
            if self.emd == "highest":
                return start
            return self._nearer(space, rows, start, seed)

    def _subsets(self, space: Space, splits: Hand, clients: int, seed: int) -> np.ndarray:
        """Return the k-means subset of each row."""
        from sklearn.cluster import KMeans

        rng = np.random.default_rng(derive_seed(seed, "k-means"))
        means = KMeans(clients, n_init=1, random_state=int(rng.integers(2**31)))
        means.fit(space.x[space.train])
        owner: np.ndarray = means.predict(space.x)
        for split, rows in splits.items():
            sizes = np.bincount(owner[rows], minlength=clients)
            while sizes.min() < self.needs(split):
                owner[rng.choice(rows[owner[rows] == sizes.argmax()])] = sizes.argmin()
                sizes = np.bincount(owner[rows], minlength=clients)
        return owner

    def _nearer(self, space: Space, splits: Hand, start: np.ndarray, seed: int) -> np.ndarray:
        """Turn the first subsets into clients that are as far from the whole as wanted."""
        aim = self._aim(space, splits, start, seed)
        attempts = list[tuple[float, np.ndarray]]()
        for sequence in range(_SEQUENCES):
            if self.emd == "lowest":
                owner = _shuffled(splits, start, seed, sequence)
            else:
                owner = _moved(splits, start, seed, sequence, space, aim)
            p = space.normal(owner)
            attempts.append((p, owner))
            if not p <= _NORMAL:  # It is NaN if there are too few distances to test.
                break
        return max(attempts, key=lambda attempt: attempt[0])[1]

    def _aim(self, space: Space, splits: Hand, start: np.ndarray, seed: int) -> float:
        """Return the wanted distance as a number."""
        highest = space.mean(start)[0]
        lowest = space.mean(_shuffled(splits, start, seed, 0))[0]
        if isinstance(self.emd, str):
            return (highest + lowest) / 2
        reachable = (
            f"a distance from {lowest:.4g} (rows dealt at random) to {highest:.4g} (the "
            "k-means subsets)"
        )
        advice = "or write lowest, middle or highest"
        is_reachable = lowest <= self.emd <= highest
        expect(is_reachable, "partition: deal: emd", reachable, self.emd, advice)
        return self.emd


def _shuffled(splits: Hand, start: np.ndarray, seed: int, sequence: int) -> np.ndarray:
    """Return subsets of the same sizes, of rows drawn at random."""
    rng = np.random.default_rng(derive_seed(seed, "shuffled", sequence))
    owner = start.copy()
    for rows in splits.values():
        owner[rows] = rng.permutation(owner[rows])
    return owner


def _moved(
    splits: Hand, start: np.ndarray, seed: int, sequence: int, space: Space, aim: float
) -> np.ndarray:
    """Exchange rows between the subset that is farthest from the whole and the others until it is
    near enough.
    """
    rng = np.random.default_rng(derive_seed(seed, "moves", sequence))
    clients = int(start.max()) + 1
    path = [start]
    for move in range(_MOVES * clients):
        # A move hardly changes the other clients, which are measured again now and then.
        if move % clients == 0:
            mean, distances = space.mean(path[-1])
            if mean <= aim:
                return path[bisect_left(path, True, key=lambda owner: space.mean(owner)[0] <= aim)]
            path = path[-1:]
        far = int(distances.argmax())
        owner = path[-1].copy()
        for rows in splits.values():
            inside = rows[owner[rows] == far]
            outside = rows[owner[rows] != far]
            count = min(len(outside), max(1, min(len(inside) // 5, len(rows) // 50)))
            leave = rng.choice(inside, count, replace=False)
            come = rng.choice(outside, count, replace=False)
            owner[leave] = owner[come]
            owner[come] = far
        path.append(owner)
        distances[far] = space.away(owner, far)
    raise ConfigError(
        f"partition: deal: emd: expected a distance that {_MOVES} moves a client reach, found "
        f"{aim:.4g}"
    )
