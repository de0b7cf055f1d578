"""Deals: what clients get, and how far they are from each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from fedlit.data.shaping.by_distance import Distance
from fedlit.data.shaping.deal import Deal, Hand, Whole
from fedlit.data.shaping.dealing import ByColumn, Dirichlet, Shards
from fedlit.data.shaping.describe import describe
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled
from fedlit.data.table import Split
from fedlit.errors import ConfigError, DataError


def whole_of(y: Sequence[object], sizes: Sequence[float] = (0.6, 0.2, 0.2)) -> Whole:
    rng = np.random.default_rng(0)
    ends = (np.cumsum(sizes)[:-1] * len(y)).astype(int)
    train, validation, test = np.split(rng.permutation(len(y)), ends)
    features = pd.DataFrame({"x": rng.normal(size=len(y))})
    return Whole(features, pd.Series(y), {"train": train, "validation": validation, "test": test})


def shares(whole: Whole, hands: dict[str, Hand], split: Split = "train") -> np.ndarray:
    """(clients, classes), the part of a class's rows that a client has."""
    counts = pd.DataFrame({name: whole.target.iloc[hand[split]].value_counts() for name, hand in hands.items()})
    return (counts.fillna(0).div(counts.sum(axis=1), axis=0)).sort_index().to_numpy().T


TEN = np.repeat(np.arange(10), 600)


def test_dirichlet_proportions_have_the_distribution_s_mean_and_variance() -> None:
    whole = whole_of(TEN)
    drawn = np.concatenate([shares(whole, Dirichlet(0.5, least=1).deal(whole, 4, seed)).ravel() for seed in range(60)])
    np.testing.assert_allclose(drawn.mean(), 1 / 4, atol=1e-6)
    np.testing.assert_allclose(drawn.var(), (1 / 4) * (3 / 4) / (4 * 0.5 + 1), rtol=0.1)


def test_dirichlet_s_splits_are_alike_and_a_large_alpha_makes_clients_alike() -> None:
    whole = whole_of(TEN)
    hands = Dirichlet(0.5).deal(whole, 4, seed=1)
    np.testing.assert_allclose(shares(whole, hands, "train"), shares(whole, hands, "test"), atol=0.02)
    assert shares(whole, hands).max() > 0.6
    np.testing.assert_allclose(shares(whole, Dirichlet(1e6).deal(whole, 4, seed=1)), 1 / 4, atol=0.01)


def test_dirichlet_depends_on_the_names_of_classes_and_draws_again_for_the_least_rows() -> None:
    whole = whole_of(TEN)
    fewer = whole_of(TEN[TEN < 5])
    all_classes, some = (shares(w, Dirichlet(0.5, least=1).deal(w, 4, seed=1)) for w in (whole, fewer))
    np.testing.assert_allclose(all_classes[:, :5], some, atol=0.02)
    for seed in range(5):
        hands = Dirichlet(0.1, least=150).deal(whole, 8, seed)
        assert min(len(hand["train"]) for hand in hands.values()) >= 150
    with pytest.raises(DataError, match=r"found none in 1000 draws; take a larger alpha than 0\.01"):
        Dirichlet(0.01, least=350).deal(whole, 10, 0)
    with pytest.raises(DataError, match="expected at least 4000 train rows for 10 clients, found 3600"):
        Dirichlet(0.5, least=400).deal(whole, 10, 0)


def test_shards_have_one_size_and_few_classes_the_same_in_every_split() -> None:
    whole = whole_of(TEN)
    hands = Shards(2).deal(whole, 10, seed=0)
    assert {len(hand["train"]) for hand in hands.values()} == {360}
    seen = [set(whole.target.iloc[hand["train"]]) for hand in hands.values()]
    # a shard of 180 rows is half a class, give or take the draw of splits: it meets two classes at most
    assert max(map(len, seen)) <= 4
    np.testing.assert_allclose(shares(whole, hands, "train"), shares(whole, hands, "validation"), atol=0.02)
    even = Whole(whole.features, whole.target, {"train": np.arange(len(TEN))})
    classes = [set(TEN[hand["train"]]) for hand in Shards(2).deal(even, 10, seed=0).values()]
    assert max(map(len, classes)) == 2


def test_the_deal_does_not_depend_on_the_order_of_rows_or_splits() -> None:
    whole = whole_of(np.repeat(["a", "b", "c"], 100))
    turned = Whole(whole.features, whole.target, {split: rows[::-1] for split, rows in [*whole.splits.items()][::-1]})
    deals: list[Deal] = [Dirichlet(1.0, least=1), Shards(2), Distance("middle", sample=30)]
    for deal in deals:
        for hand, other in zip(*(deal.deal(own, 3, 5).values() for own in (whole, turned)), strict=True):
            assert all(np.array_equal(hand[split], other[split]) for split in whole.splits)


def distance_of(deal: Distance, seed: int, clients: int = 5) -> float:
    tables = Partition(Bundled(clients=["digits"]), clients, deal=deal).tables(seed)
    assert min(len(table.splits["train"]) for table in tables) >= 20
    found = describe(tables, seed, deal.measure).distances
    assert found is not None
    return found.mean


@pytest.mark.parametrize("features", ["standardised", "raw", "autoencoded"])
def test_the_dial_reaches_what_is_wanted(features: str) -> None:
    def reached(emd: float | str) -> float:
        return distance_of(Distance(emd, features=features, sample=100), seed=1)  # type: ignore[arg-type]

    highest, middle, lowest = map(reached, ("highest", "middle", "lowest"))
    assert highest > middle > lowest
    wanted = 0.8 * highest + 0.2 * lowest
    for found, goal in ((middle, (highest + lowest) / 2), (reached(wanted), wanted)):
        assert goal - 0.1 * (highest - lowest) <= found <= goal + 1e-6 + 0.02 * (highest - lowest)


def test_a_distance_out_of_reach_is_refused_with_what_can_be_had() -> None:
    for emd in (1000.0, 0.1):
        with pytest.raises(
            ConfigError, match=r"expected a distance from [\d.]+, that of rows dealt at random, to [\d.]+"
        ):
            distance_of(Distance(emd, sample=30), seed=0)


def test_k_means_subsets_that_are_too_small_get_rows() -> None:
    far = pd.DataFrame({"x": [*np.zeros(97), 50.0, 100.0, 200.0]})
    splits: dict[Split, np.ndarray] = {
        "train": np.arange(20, 100),
        "validation": np.arange(10),
        "test": np.arange(10, 20),
    }
    hands = Distance("highest", least=15).deal(Whole(far, pd.Series([0, 1] * 50), splits), 4, seed=0)
    assert min(len(hand["train"]) for hand in hands.values()) == 15
    assert all(len(hand[split]) >= 1 for hand in hands.values() for split in splits)


def test_columns_whose_values_make_no_names() -> None:
    def deal(values: list[object]) -> dict[str, Hand]:
        frame = pd.DataFrame({"site": values})
        return ByColumn("site").deal(Whole(frame, frame["site"], {"train": np.arange(len(values))}), None, 0)

    assert list(deal([2.0, 1.0])) == ["1", "2"]
    with pytest.raises(
        DataError, match="expected values of site that make different names of clients, found 'a b', 'a-b'"
    ):
        deal(["a b", "a-b"])
    with pytest.raises(DataError, match="found 1 rows without one"):
        deal(["a", None])


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="alpha: expected a number above 0, found 0"):
        Dirichlet(0)
    with pytest.raises(ConfigError, match="each: expected at least 1 shard per client, found 0"):
        Shards(0)
    with pytest.raises(ConfigError, match="least: expected at least 1 training row per client, found 0"):
        Distance(least=0)
    with pytest.raises(ConfigError, match="emd: expected a number, lowest, middle or highest, found 'low'"):
        Distance("low")  # type: ignore[arg-type]


def test_ranges_of_a_number_are_clients() -> None:
    ages = [44.9, 45.0, 60.0, 59.9, 12.0, 88.0]
    rows = pd.DataFrame({"age": ages})
    whole = Whole(rows, rows["age"], {"train": np.arange(4), "validation": np.array([4]), "test": np.array([5])})
    hands = ByColumn("age", cuts=[45, 60]).deal(whole, None, 0)
    held = {name: [ages[row] for rows in hand.values() for row in rows] for name, hand in hands.items()}
    assert held == {"45-to-60": [45.0, 59.9], "below-45": [44.9, 12.0], "from-60": [60.0, 88.0]}
    with pytest.raises(ConfigError, match=r"cuts: expected numbers, each larger than the one before, found \[3, 3\]"):
        ByColumn("age", cuts=[3, 3])
    text = Whole(rows.astype(str), rows["age"], whole.splits)
    with pytest.raises(DataError, match=r"cuts: expected numbers in age, found '44\.9'"):
        ByColumn("age", cuts=[3]).deal(text, None, 0)
