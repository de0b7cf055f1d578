"""Earth mover's distances against closed forms, scipy and a linear programme."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from scipy.stats import shapiro

from fedlit.data.shaping.by_distance import Distance, Features, Space, emd
from fedlit.data.shaping.dealing import Whole
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled
from fedlit.data.table import Split
from fedlit.errors import ConfigError


def space_of(x: np.ndarray, y: np.ndarray, index: np.ndarray | None = None, rows: int = 200) -> Space:
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(x.shape[1])], index=index)
    return Space(frame, pd.Series(y, index=index), np.arange(len(x)), how="raw", rows=rows)


def test_features_and_labels_together_are_a_linear_programme() -> None:
    rng = np.random.default_rng(1)
    a, b, y, z = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.integers(0, 2, 6), rng.integers(0, 2, 4)
    cost = np.array([[np.linalg.norm(p - q) + 0.7 * (k != m) for q, m in zip(b, z)] for p, k in zip(a, y)])  # noqa: B905
    leaves = np.kron(np.eye(6), np.ones((1, 4)))
    comes = np.kron(np.ones((1, 6)), np.eye(4))
    bounds = np.concatenate([np.full(6, 1 / 6), np.full(4, 1 / 4)])
    best = linprog(cost.ravel(), A_eq=np.concatenate([leaves, comes]), b_eq=bounds).fun
    assert emd(a, y, b, z, 0.7) == pytest.approx(best)


def test_the_mean_is_weighted_by_rows_and_another_label_costs_the_mean_distance() -> None:
    x, y = np.array([[0.0], [0.0], [0.0], [4.0]]), np.array([0, 0, 0, 1])
    found = space_of(x, y).between({"few": np.array([3]), "many": np.array([0, 1, 2])})
    label = 3 * 4.0 / 6  # three of six pairs of rows are 4 apart
    assert found.to_whole == pytest.approx({"few": 0.75 * (4 + label), "many": 0.25 * (4 + label)})
    assert found.mean == pytest.approx((1 * 0.75 + 3 * 0.25) / 4 * (4 + label))
    assert found.pairwise == pytest.approx((4 + label,)) and np.isnan(found.p)


def test_it_does_not_matter_where_rows_stand() -> None:
    rng = np.random.default_rng(2)
    x, y, order = rng.normal(size=(90, 3)), rng.integers(0, 3, 90), rng.permutation(90)
    owner = rng.integers(0, 4, 90)
    one = space_of(x, y, rows=15).between({str(k): np.flatnonzero(owner == k) for k in range(4)})
    moved = space_of(x[order], y[order], index=order, rows=15)
    assert moved.between({str(k): np.flatnonzero(owner[order] == k) for k in range(4)}) == one
    assert one.p == pytest.approx(shapiro(one.pairwise).pvalue)


def test_standardised_columns_indicators_and_missing_numbers() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 99.0], "kind": ["x", "y", None, "x"], "b": [5.0] * 4})
    space = Space(frame, pd.Series([0, 1, 0, 1]), np.arange(3), ("kind",))
    expected = [[-1, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [97, 0, 1, 0]]  # by the three training rows
    np.testing.assert_allclose(space.x, expected, rtol=1e-6)
    raw = Space(frame, pd.Series([0, 1, 0, 1]), np.arange(3), ("kind",), how="raw")
    np.testing.assert_allclose(raw.x[:, :2], [[1, 5], [2, 5], [3, 5], [99, 5]])


def distance_of(emd: Any, seed: int = 1, sample: int = 60, features: Features = "standardised") -> float:
    deal = Distance(emd, features, sample)
    tables = Partition(Bundled(clients=["digits"]), 5, deal=deal).tables(seed)
    assert min(len(table.splits["train"]) for table in tables) >= 20
    parts = [table.splits["train"] for table in tables]
    rows = pd.concat([table.features.iloc[part] for table, part in zip(tables, parts, strict=True)])
    labels = pd.concat([table.target.iloc[part] for table, part in zip(tables, parts, strict=True)])
    every = np.arange(len(rows))
    space = Space(rows, labels, every, tables[0].categorical, seed, features, sample)
    own = np.split(every, np.cumsum([len(part) for part in parts])[:-1])
    return space.between({table.name: part for table, part in zip(tables, own, strict=True)}).mean


@pytest.mark.parametrize("features", ["standardised", "raw"])
def test_the_dial_reaches_what_is_wanted(features: Features) -> None:
    highest, middle, lowest = (distance_of(emd, features=features) for emd in ("highest", "middle", "lowest"))
    assert highest > middle > lowest
    wanted = 0.8 * highest + 0.2 * lowest
    for found, goal in ((middle, (highest + lowest) / 2), (distance_of(wanted, features=features), wanted)):
        assert goal - 0.1 * (highest - lowest) <= found <= goal + 1e-6 + 0.02 * (highest - lowest)


def test_k_means_subsets_that_are_too_small_get_rows() -> None:
    far = pd.DataFrame({"x": [*np.zeros(97), 50.0, 100.0, 200.0]})
    rows: dict[Split, Any] = {"train": np.arange(20, 100), "validation": np.arange(10), "test": np.arange(10, 20)}
    hands = Distance("highest", least=15).deal(Whole(far, pd.Series([0, 1] * 50), rows), 4, seed=0)
    assert min(len(hand["train"]) for hand in hands.values()) == 15
    assert all(len(hand[split]) >= 1 for hand in hands.values() for split in rows)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Distance(features="row"), "features"),  # type: ignore[arg-type]
        (lambda: Distance(least=0), "least"),
        (lambda: Distance("low"), "emd"),  # type: ignore[arg-type]
        (lambda: distance_of(1000.0, sample=30), r"emd: expected a distance from [\d.]+"),
    ],
)
def test_what_is_refused(make: Callable[[], object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()
