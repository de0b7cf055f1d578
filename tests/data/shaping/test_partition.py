"""Partition and its deals: all rows once, splits kept, by the seed, in the proportions that a deal says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.shaping.by_distance import Distance
from fedlit.data.shaping.dealing import ByColumn, Deal, Dirichlet, Hand, Iid, Shards, Whole
from fedlit.data.shaping.partition import Partition, Redraw
from fedlit.data.sources import Bundled
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.errors import ConfigError, DataError

DIGITS, DIABETES = Bundled(clients=["digits"]), Bundled(clients=["diabetes"])
TEN = np.repeat(np.arange(10), 600)


def whole_of(y: Sequence[object]) -> Whole:
    rng = np.random.default_rng(0)
    train, validation, test = np.split(rng.permutation(len(y)), [6 * len(y) // 10, 8 * len(y) // 10])
    features = pd.DataFrame({"x": rng.normal(size=len(y))})
    return Whole(features, pd.Series(y), {"train": train, "validation": validation, "test": test})


def shares(whole: Whole, hands: dict[str, Hand], split: Split = "train") -> np.ndarray:
    """(clients, classes), the part of a class's rows that a client has."""
    counts = pd.DataFrame({name: whole.target.iloc[hand[split]].value_counts() for name, hand in hands.items()})
    return (counts.fillna(0).div(counts.sum(axis=1), axis=0)).sort_index().to_numpy().T


@pytest.mark.parametrize("deal", [None, Shards(2), Distance("middle")])
def test_every_row_goes_to_one_client_in_its_own_split_by_the_seed(deal: Deal | None) -> None:
    (whole,) = DIGITS.tables(seed=3)
    split_of = {row: split for split in SPLITS for row in whole.features.index[whole.splits[split]]}
    parts, again, other = (Partition(DIGITS, clients=4, deal=deal).tables(seed) for seed in (3, 3, 4))
    assert [part.name for part in parts] == ["c01", "c02", "c03", "c04"]
    assert sorted(np.concatenate([part.features.index for part in parts])) == sorted(whole.features.index)
    for part, same in zip(parts, again, strict=True):
        assert all(set(map(split_of.get, part.features.index[part.splits[split]])) == {split} for split in SPLITS)
        assert part.features.equals(same.features) and part.features.equals(whole.features.loc[part.features.index])
        assert part.target.equals(whole.target.loc[part.target.index])
    assert any(not part.features.index.equals(new.features.index) for part, new in zip(parts, other, strict=True))


def test_splits_can_be_drawn_anew_from_some_and_all_be_tested_on_the_same_rows() -> None:
    (whole,) = DIGITS.tables(seed=3)
    rows = set(whole.features.index[np.concatenate([whole.splits["train"], whole.splits["validation"]])])
    parts = Partition(DIGITS, 5, redraw=Redraw(("train", "validation"), 0.2, 0.25), shared_test=True).tables(seed=3)
    own = {split: [set(part.features.index[part.splits[split]]) for part in parts] for split in SPLITS}
    assert all(test == own["test"][0] for test in own["test"])
    dealt = [*own["train"], *own["validation"], own["test"][0]]
    assert set().union(*dealt) == rows and sum(map(len, dealt)) == len(rows)
    found = [sum(map(len, own["train"])), sum(map(len, own["validation"])), len(own["test"][0])]
    np.testing.assert_allclose(np.array(found) / len(rows), [0.6, 0.2, 0.2], atol=0.001)


def test_dirichlet_proportions_have_the_distribution_s_mean_and_variance_in_every_split() -> None:
    whole = whole_of(TEN)
    hands = [Dirichlet(0.5, least=1).deal(whole, 4, seed) for seed in range(40)]
    drawn = np.concatenate([shares(whole, own).ravel() for own in hands])
    np.testing.assert_allclose(drawn.mean(), 1 / 4, atol=1e-6)
    np.testing.assert_allclose(drawn.var(), (1 / 4) * (3 / 4) / (4 * 0.5 + 1), rtol=0.1)
    np.testing.assert_allclose(shares(whole, hands[1], "train"), shares(whole, hands[1], "test"), atol=0.02)
    np.testing.assert_allclose(shares(whole, Dirichlet(1e6).deal(whole, 4, seed=1)), 1 / 4, atol=0.01)
    least = Dirichlet(0.1, least=150).deal(whole, 8, 0)
    assert min(len(hand["train"]) for hand in least.values()) >= 150


def test_shards_have_one_size_and_few_classes_the_same_in_every_split() -> None:
    whole = whole_of(TEN)
    hands = Shards(2).deal(whole, 10, seed=0)
    assert {len(hand["train"]) for hand in hands.values()} == {360}
    np.testing.assert_allclose(shares(whole, hands, "train"), shares(whole, hands, "validation"), atol=0.02)
    even = Whole(whole.features, whole.target, {"train": np.arange(len(TEN))})
    assert max(len(set(TEN[hand["train"]])) for hand in Shards(2).deal(even, 10, seed=0).values()) == 2


@pytest.mark.parametrize("deal", [Dirichlet(1.0, least=1), Shards(2), Distance("middle")])
def test_the_deal_does_not_depend_on_the_order_of_rows_or_splits(deal: Deal) -> None:
    whole = whole_of(np.repeat(["a", "b", "c"], 100))
    turned = replace(whole, splits={split: rows[::-1] for split, rows in [*whole.splits.items()][::-1]})
    for hand, other in zip(*(deal.deal(own, 3, 5).values() for own in (whole, turned)), strict=True):
        assert all(np.array_equal(hand[split], other[split]) for split in whole.splits)


class Sites(Bundled):
    def tables(self, seed: int) -> list[ClientTable]:
        (table,) = super().tables(seed)
        site = np.array(["Bern", "St. Gallen", "Zug"])[np.arange(len(table.features)) % 3]
        return [replace(table, features=table.features.assign(site=site), categorical=("site",))]


def test_a_client_for_each_value_of_a_column() -> None:
    source = Sites(clients=["wine"])
    (whole,) = source.tables(0)
    made = Partition(source, deal=ByColumn("site")).tables(seed=0)
    assert [table.name for table in made] == ["Bern", "St_Gallen", "Zug"]
    for table, site in zip(made, ["Bern", "St. Gallen", "Zug"], strict=True):
        assert sorted(table.features.index) == sorted(whole.features.index[whole.features["site"] == site])
    dropped = Partition(source, deal=ByColumn("site", drop=True)).tables(seed=0)
    assert all("site" not in table.features and table.categorical == () for table in dropped)


def by_column(values: list[Any], cuts: list[float] | None = None) -> dict[str, list[Any]]:
    frame = pd.DataFrame({"own": values})
    hands = ByColumn("own", cuts=cuts).deal(Whole(frame, frame["own"], {"train": np.arange(len(values))}), None, 0)
    return {name: [values[row] for row in hand["train"]] for name, hand in hands.items()}


def test_ranges_of_a_number_are_clients() -> None:
    held = by_column([44.9, 45.0, 60.0, 59.9, 88.0], [45, 60])
    assert held == {"45-to-60": [45.0, 59.9], "below-45": [44.9], "from-60": [60.0, 88.0]}
    assert by_column([2.0, 1.0]) == {"1": [1.0], "2": [2.0]}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Partition(DIGITS, 1), ConfigError, "partition: clients: expected at least 2, found 1"),
        (lambda: Partition(DIGITS, 4, rows={"train": 3}), ConfigError, "partition: rows: .*'train': 3"),
        (lambda: Redraw(test=1.0), ConfigError, "test: expected a share"),
        (lambda: Redraw(splits=("tset",)), ConfigError, "redraw.splits: .*'tset'"),  # type: ignore[arg-type]
        (lambda: Partition(DIGITS).tables(0), ConfigError, "partition: clients: expected how many"),
        (lambda: Partition(Bundled(), 2).tables(0), DataError, "expected the columns of .* found others"),
        (lambda: Partition(DIABETES, 3, deal=Shards()).tables(0), ConfigError, "classes to deal by, .*a number"),
        (lambda: Partition(Sites(clients=["wine"]), 4, deal=ByColumn("site")).tables(0), ConfigError, "clients: .* 3"),
        (lambda: Partition(Sites(clients=["wine"]), deal=ByColumn("sit")).tables(0), ConfigError, "column: .*'site'"),
        (lambda: Dirichlet(0.01, least=55).deal(whole_of(TEN[::10]), 6, 0), DataError, "larger alpha than 0.01"),
        (lambda: Dirichlet(0.5, least=400).deal(whole_of(TEN), 10, 0), DataError, "4000 train rows .* found 3600"),
        (lambda: by_column(["a b", "a_b"]), DataError, "different names of clients, found 'a b', 'a_b'"),
        (lambda: by_column(["44.9"], [3]), DataError, "cuts: expected numbers in own"),
        (lambda: ByColumn("age", cuts=[3, 3]), ConfigError, "cuts: .*found \\[3, 3\\]"),
        (lambda: Iid().deal(whole_of(TEN[:3]), 4, 0), DataError, "4 train rows"),
    ],
)
def test_what_is_refused(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
