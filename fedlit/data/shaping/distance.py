"""How far clients' distributions are from that of all rows: the earth mover's distance, joint over features and labels
(Lucchetti et al. 2022, Federated Geometric Monte Carlo Clustering to Counter Non-IID Datasets, Eq. 9).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fedlit.errors import expect
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Distances", "Features", "Measure", "Space", "emd"]

Features = Literal["standardised", "raw"]
_PAIRS = 200
"""Pairs of clients that are measured, at most."""


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


@dataclass(frozen=True)
class Measure:
    """The space in which distances are measured, and the number of rows.

    Attributes:
        features: ``standardised`` by the training rows of all clients, or ``raw``.
        label: what another label costs, in mean feature distances between two rows, at least 0.
        sample: at most so many rows of each client, and of the whole, drawn by the run's seed. The distance between
            samples is larger than that between distributions, the more so the fewer they are: compare only distances
            of the same number.
    """

    features: Features = "standardised"
    label: float = 1.0
    sample: int = 200

    def __post_init__(self) -> None:
        kinds = get_args(Features)
        expect(self.features in kinds, "distance: features", f"one of {', '.join(kinds)}", self.features)
        finite = bool(np.isfinite(self.label)) and self.label >= 0
        expect(finite, "distance: label", "a number of at least 0", self.label)
        expect(self.sample >= 2, "distance: sample", "at least 2 rows", self.sample)


class Space:
    """Rows as points, for distances between sets of them.

    Args:
        measure: how.
        features: all rows' columns.
        target: their labels.
        train: positions of the training rows: by these are features standardised, and these are the whole.
        categorical: columns that hold categories: each becomes a column of 0 and 1, a missing one is 0 in all.
        seed: the run's seed.

    Attributes:
        x: shape (rows, d), float32; a missing number is the training mean.
        y: labels as numbers, shape (rows,).

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"a": [0.0, 1.0, 0.0, 1.0]})
        >>> space = Space(Measure("raw"), rows, pd.Series([0, 0, 1, 1]), np.arange(4))
        >>> round(space.between({"one": np.array([0, 1]), "two": np.array([2, 3])}).mean, 3)
        0.333
    """

    def __init__(
        self,
        measure: Measure,
        features: pd.DataFrame,
        target: pd.Series,
        train: np.ndarray,
        categorical: tuple[str, ...] = (),
        seed: int = 0,
    ) -> None:
        from scipy.spatial.distance import pdist

        # in the order of their numbers, so that it is all the same who has which row, and where it stands
        train = train[np.argsort(features.index.to_numpy()[train], kind="stable")]
        drawn = train[np.random.default_rng(derive_seed(seed, "distance")).permutation(len(train))]
        self.measure, self.seed = measure, seed
        self.x = _points(features, train, categorical, measure.features != "raw")
        self.y: np.ndarray = np.unique(target.to_numpy(), return_inverse=True)[1]
        self._turn = np.full(len(self.x), -1)
        self._turn[drawn] = np.arange(len(drawn))
        self._whole = drawn[: measure.sample]
        self._label = measure.label * float(pdist(self.x[self._whole]).mean())

    def sample(self, rows: np.ndarray) -> np.ndarray:
        """Those of some training rows (positions) that distances are measured on: each comes in a turn of its own,
        whoever has it.
        """
        chosen: np.ndarray = rows[np.argsort(self._turn[rows])][: self.measure.sample]
        return chosen

    def emd(self, rows: np.ndarray, others: np.ndarray | None = None) -> float:
        """Between the samples of two sets of rows; to the whole if there is no other."""
        first, second = self.sample(rows), self._whole if others is None else self.sample(others)
        return emd(self.x[first], self.y[first], self.x[second], self.y[second], self._label)

    def mean(self, clients: Mapping[Any, np.ndarray]) -> float:
        """Eq. 9: the mean distance of clients (name → rows) to the whole, weighted by their rows."""
        return self._mean(clients, {name: self.emd(rows) for name, rows in clients.items()})

    def between(self, clients: Mapping[Any, np.ndarray]) -> Distances:
        """Compute all distances of clients (name → rows)."""
        from scipy.stats import shapiro

        names = sorted(clients)
        to_whole = {name: self.emd(clients[name]) for name in names}
        pairs = list(combinations(names, 2))
        if len(pairs) > _PAIRS:
            chosen = np.random.default_rng(derive_seed(self.seed, "pairs")).permutation(len(pairs))[:_PAIRS]
            pairs = [pairs[place] for place in np.sort(chosen)]
        pairwise = tuple(self.emd(clients[a], clients[b]) for a, b in pairs)
        p = float(shapiro(pairwise).pvalue) if len(pairwise) > 2 else float("nan")
        return Distances(to_whole, self._mean(clients, to_whole), pairwise, p)

    @staticmethod
    def _mean(clients: Mapping[Any, np.ndarray], to_whole: Mapping[Any, float]) -> float:
        rows = sum(map(len, clients.values()))
        return sum(len(clients[name]) * distance for name, distance in to_whole.items()) / rows


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
