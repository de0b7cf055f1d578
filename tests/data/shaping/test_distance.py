"""Earth mover's distances against SciPy and closed forms, and clients that are dealt by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from fedlit.data.shaping.by_distance import Distance, Space, emd
from fedlit.data.shaping.dealing import Whole
from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError


def test_it_is_scipys_for_one_label_and_that_of_an_assignment_for_several() -> None:
    rng = np.random.default_rng(1)
    a, b, y, z = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.integers(0, 2, 6), rng.integers(0, 2, 4)
    same = emd(a[:, :1], np.zeros(6), b[:, :1], np.zeros(4), 9.0)
    assert same == pytest.approx(wasserstein_distance(a[:, 0], b[:, 0]))
    cost = cdist(a, b) + 0.7 * (y[:, None] != z)
    twelve = cost.repeat(2, 0).repeat(3, 1)  # as many rows on both sides
    assert emd(a, y, b, z, 0.7) == pytest.approx(twelve[linear_sum_assignment(twelve)].mean())


def test_the_mean_is_weighted_by_rows_and_another_label_costs_the_mean_distance() -> None:
    frame, rows = pd.DataFrame({"x": [0.0, 0.0, 0.0, 4.0]}), np.arange(4)
    space = Space(Whole(frame, pd.Series([0, 0, 0, 1]), {"train": rows}), rows, seed=0, raw=True)
    mean, each = space.mean(np.array([0, 0, 0, 1]))
    label = 3 * 4.0 / 6  # three of six pairs of rows are 4 apart
    assert each == pytest.approx([0.25 * (4 + label), 0.75 * (4 + label)])
    assert mean == pytest.approx((1 * 0.75 + 3 * 0.25) / 4 * (4 + label))
    assert np.isnan(space.normal(np.array([0, 0, 0, 1])))


def test_standardised_columns_indicators_and_missing_numbers() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 99.0], "kind": ["x", "y", None, "x"], "b": [5.0] * 4})
    whole = Whole(frame, pd.Series([0, 1, 0, 1]), {}, ("kind",))
    expected = [[-1, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [97, 0, 1, 0]]  # by the three training rows
    np.testing.assert_allclose(Space(whole, np.arange(3), 0).x, expected, rtol=1e-6)
    raw = Space(whole, np.arange(3), 0, raw=True)
    np.testing.assert_allclose(raw.x[:, :2], [[1, 5], [2, 5], [3, 5], [99, 5]])


@pytest.mark.parametrize("features", ["standardised", "raw"])
def test_the_dial_reaches_what_is_wanted(features: Any) -> None:
    (table,) = Bundled(clients=["digits"]).tables(seed=1)
    whole, train = Whole(table.features, table.target, table.splits), np.sort(table.splits["train"])
    space = Space(whole, train, 1, features == "raw")

    def found(wanted: Any) -> float:
        hands = Distance(wanted, features).deal(whole, 5, seed=1)
        owner = np.empty(len(table.features), int)
        for client, hand in enumerate(hands.values()):
            assert len(hand["train"]) >= 20
            owner[hand["train"]] = client
        return space.mean(owner)[0]

    highest, middle, lowest = map(found, ("highest", "middle", "lowest"))
    assert highest > middle > lowest
    wanted = 0.8 * highest + 0.2 * lowest
    for reached, goal in ((middle, (highest + lowest) / 2), (found(wanted), wanted)):
        assert goal - 0.1 * (highest - lowest) <= reached <= goal + 1e-6 + 0.02 * (highest - lowest)
    with pytest.raises(ConfigError, match=r"emd: expected a distance from [\d.]+"):
        found(1000.0)


def test_k_means_subsets_that_are_too_small_get_rows() -> None:
    far = pd.DataFrame({"x": [*np.zeros(97), 50.0, 100.0, 200.0]})
    rows: Any = {"train": np.arange(20, 100), "validation": np.arange(10), "test": np.arange(10, 20)}
    hands = Distance("highest", least=15).deal(Whole(far, pd.Series([0, 1] * 50), rows), 4, seed=0)
    assert min(len(hand["train"]) for hand in hands.values()) == 15
    assert all(len(hand[split]) >= 1 for hand in hands.values() for split in rows)


@pytest.mark.parametrize("wrong", [{"features": "row"}, {"least": 0}, {"emd": "low"}])
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Distance(**wrong)
