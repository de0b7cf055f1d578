"""Measures how far clients' rows are from each other, by the earth mover's distance, joint over
features and labels (Lucchetti et al. 2022, Federated Geometric Monte Carlo Clustering to Counter
Non-IID Datasets, appendix A).
"""

from __future__ import annotations

import math
import warnings
from itertools import combinations, islice
from typing import Literal

import numpy as np

from fedlit.data.table import ClientTable
from fedlit.data.targets import has_classes
from fedlit.seeding import derive_seed

Features = Literal["standardised", "raw", "autoencoded"]

SAMPLE = 200
"""Rows of a client that are measured, at most."""
_LEARNT = 5000
"""Rows from which the autoencoder learns, at most."""
_BATCH = 128
_STEPS = 2000
"""Steps of the autoencoder, each on a batch of these rows."""
_PAIRS = 200
"""Pairs of clients whose distances are tested for a normal distribution, at most."""


def emd(
    x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray, label: float
) -> float:
    """Return the earth mover's distance between two sets of labelled rows (Eq. 8). All rows of a
    set have the same weight.

    NOTE[DIFF]: the paper does not say what it costs to move (x, y) to (x′, y′). Here that is
    ‖x − x′‖ + label · [y ≠ y′], as classes have no order; where a row has a label for each
    position, [y ≠ y′] is the share of positions whose labels differ.

    Args:
        x: features, shape (n, d).
        y: labels as numbers, shape (n,) or (n, positions).
        other_x: features, shape (m, d).
        other_y: labels, shape (m,) or (m, positions).
        label: the cost of different labels, at least 0.

    Example:
        >>> emd(np.zeros((2, 1)), np.array([0, 1]), np.full((1, 1), 3.0), np.array([1]), label=2.0)
        4.0
        >>> emd(np.zeros((1, 1)), np.array([[0, 1]]), np.zeros((1, 1)), np.array([[0, 0]]), label=2.0)
        1.0
    """
    import ot
    from scipy.spatial.distance import cdist

    labels = np.asarray(y).reshape(len(x), -1)
    other_labels = np.asarray(other_y).reshape(len(other_x), -1)
    cost = cdist(x, other_x) + label * cdist(labels, other_labels, "hamming")
    return float(ot.emd2([], [], cost, numItermax=1_000_000))


class Space:
    """Rows as points in a space, for the distances of clients to the whole, which are all training
    rows. At most :data:`SAMPLE` rows of each client, and of the whole, are measured, drawn by the
    seed.

    Args:
        whole: the rows to place in the space.
        train: the positions of the training rows.
        seed: the run's seed.
        features: whether numbers are ``standardised`` by the training rows, ``raw``, or
            standardised and then ``autoencoded`` (see :func:`codes_of_autoencoder`).
        code: the length of an autoencoder's codes.

    Attributes:
        x: shape (rows, d), float32: numbers, with the training mean for a missing one; then a
            column of 0 and 1 for each category, which are all 0 if the category is missing; or the
            codes of both.
        y: labels as numbers, shape (rows,), or (rows, positions) where a row has a label for each
            position.
    """

    def __init__(
        self,
        whole: ClientTable,
        train: np.ndarray,
        seed: int,
        features: Features = "standardised",
        code: int = 98,
    ) -> None:
        from scipy.spatial.distance import pdist

        self.x = _points(whole, train, raw=features == "raw")
        self.y = _labels(whole)
        self.train = train
        # Rows are drawn in the order of their numbers, so that it does not matter who has which
        # row, and where it stands.
        ordered = train[np.argsort(whole.features.index.to_numpy()[train], kind="stable")]
        rng = np.random.default_rng(derive_seed(seed, "distance"))
        drawn = ordered[rng.permutation(len(ordered))]
        if features == "autoencoded":
            self.x = codes_of_autoencoder(
                self.x, drawn[:_LEARNT], code, derive_seed(seed, "autoencoder")
            )
        # The turn of a row is the same for every owner.
        self._turn = np.full(len(self.x), -1)
        self._turn[drawn] = np.arange(len(drawn))
        # A different label costs the mean distance between two rows.
        self._label = float(pdist(self.x[drawn[:SAMPLE]]).mean())

    def away(self, owner: np.ndarray, client: int, second: int | None = None) -> float:
        """Return the distance of a client's training rows to those of another client, or to the
        whole, given the client of each row.
        """
        rows = self._sample(owner, client)
        second_rows = self._sample(owner, second)
        return emd(
            self.x[rows], self.y[rows], self.x[second_rows], self.y[second_rows], self._label
        )

    def _sample(self, owner: np.ndarray, client: int | None) -> np.ndarray:
        rows = self.train
        if client is not None:
            rows = rows[owner[rows] == client]
        return rows[np.argsort(self._turn[rows])][:SAMPLE]

    def mean(self, owner: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean distance of all clients to the whole, weighted by their training rows
        (Eq. 9), and the distance of each client.
        """
        sizes = np.bincount(owner[self.train])
        distances = np.array([self.away(owner, client) for client in range(len(sizes))])
        return float(np.average(distances, weights=sizes)), distances

    def normal(self, owner: np.ndarray) -> float:
        """Return the p-value of Shapiro and Wilk's test that the distances between clients are
        normally distributed; NaN if there are fewer than three.
        """
        from scipy.stats import shapiro

        pairs = islice(combinations(range(owner.max() + 1), 2), _PAIRS)
        distances = [self.away(owner, *pair) for pair in pairs]
        if len(distances) < 3:
            return np.nan
        return float(shapiro(distances).pvalue)


def _points(whole: ClientTable, train: np.ndarray, raw: bool) -> np.ndarray:
    import pandas as pd

    categorical = list(whole.categorical)
    numbers = whole.features.drop(columns=categorical).astype(np.float32)
    seen = numbers.iloc[train].astype(np.float64)
    mean = seen.mean().fillna(0).astype(np.float32)
    scale = seen.std(ddof=0).fillna(0).astype(np.float32)
    numbers = numbers.fillna(mean)
    if not raw:
        numbers = (numbers - mean) / scale.where(scale > 0, 1)
    # Categories stay 0 and 1, so that a rare one does not count more.
    coded = [pd.get_dummies(whole.features[name], dtype=np.float32) for name in categorical]
    return np.concatenate([numbers, *coded], axis=1)


def _labels(whole: ClientTable) -> np.ndarray:
    if has_classes(whole):
        return whole.target.factorize()[0]
    texts = whole.target.tolist()  # They have a letter for each position.
    length = len(texts[0])
    return np.array(texts, dtype=f"U{length}").view(np.uint32).reshape(len(texts), length)


def codes_of_autoencoder(x: np.ndarray, rows: np.ndarray, code: int, seed: int) -> np.ndarray:
    """Return the codes of an autoencoder: the hidden layer of a network that learns to reproduce
    its input with a small mean squared error, shape (len(x), code), float32, at least 0.

    NOTE[DIFF]: the paper's autoencoders (Table II) are four convolutions and their transposes for
    images, and two convolutions and two LSTM layers for reads, trained by SGD until the error is
    0.0001 %. This one has a single hidden layer of rectified units, as it takes any table, and Adam
    for 2,000 steps on batches of 128, as the paper's, of at most 5,000 rows.

    Args:
        x: the rows, shape (n, d), float32.
        rows: the positions of the rows to learn from.
        code: the length of a code; the paper has 98 (7 · 7 · 2) for EMNIST and 30 for reads.
        seed: draws the first weights and the order of rows.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    inputs = x[rows]
    batch = min(_BATCH, len(rows))
    passes = math.ceil(_STEPS * batch / len(rows))
    network = MLPRegressor(
        hidden_layer_sizes=code, batch_size=batch, max_iter=passes, random_state=seed % 2**32
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # The number of steps is fixed.
        network.fit(inputs, inputs if x.shape[1] > 1 else inputs.ravel())
    hidden = x @ network.coefs_[0] + network.intercepts_[0]
    codes: np.ndarray = np.maximum(hidden, 0).astype(np.float32)
    return codes
