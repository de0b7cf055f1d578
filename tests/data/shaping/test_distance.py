"""Earth mover's distances against closed forms, scipy and a linear programme."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from scipy.stats import shapiro, wasserstein_distance

from fedlit.data.shaping.distance import Measure, Space, emd


def space_of(x: np.ndarray, y: np.ndarray, measure: Measure | None = None, index: np.ndarray | None = None) -> Space:
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(x.shape[1])], index=index)
    return Space(measure or Measure("raw"), frame, pd.Series(y, index=index), np.arange(len(x)))


def test_one_column_without_labels_is_what_scipy_computes() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(30, 1)), rng.normal(1, 2, size=(17, 1))
    zeros = np.zeros(30)
    assert emd(a, zeros, b, zeros[:17], 5.0) == pytest.approx(wasserstein_distance(a[:, 0], b[:, 0]))


def test_labels_alone_are_the_total_variation() -> None:
    first, second = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1, 3])
    p, q = np.bincount(first, minlength=4) / 4, np.bincount(second, minlength=4) / 5
    nothing = np.zeros((5, 2))
    assert emd(nothing[:4], first, nothing, second, 3.0) == pytest.approx(3.0 * np.abs(p - q).sum() / 2)


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
    for features in ("standardised", "autoencoded"):
        measure = Measure(features, sample=15)
        one = space_of(x, y, measure).between({str(k): np.flatnonzero(owner == k) for k in range(4)})
        moved = space_of(x[order], y[order], measure, index=order)
        assert moved.between({str(k): np.flatnonzero(owner[order] == k) for k in range(4)}) == one
        assert one.p == pytest.approx(shapiro(one.pairwise).pvalue)


def test_standardised_columns_indicators_and_missing_numbers() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 99.0], "kind": ["x", "y", None, "x"], "b": [5.0] * 4})
    space = Space(Measure(), frame, pd.Series([0, 1, 0, 1]), np.arange(3), ("kind",))
    expected = [[-1, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [97, 0, 1, 0]]  # by the three training rows
    np.testing.assert_allclose(space.x, expected, rtol=1e-6)
    raw = Space(Measure("raw"), frame, pd.Series([0, 1, 0, 1]), np.arange(3), ("kind",))
    np.testing.assert_allclose(raw.x[:, :2], [[1, 5], [2, 5], [3, 5], [99, 5]])


def test_autoencoded_features_are_few_and_keep_what_matters() -> None:
    rng = np.random.default_rng(3)
    hidden = rng.normal(size=(400, 2))
    x = hidden @ rng.normal(size=(2, 12)) + 0.01 * rng.normal(size=(400, 12))
    space = space_of(x, np.zeros(400), Measure("autoencoded"))
    assert space.x.shape == (400, 3)
    linear = np.column_stack([space.x, np.ones(400)])
    left = hidden - linear @ np.linalg.lstsq(linear, hidden, rcond=None)[0]
    assert left.var() < 0.2 * hidden.var()
