"""Partition: all rows once, splits kept, by the seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedlit.data.shaping.by_distance import Distance
from fedlit.data.shaping.deal import Deal
from fedlit.data.shaping.dealing import ByColumn, Dirichlet, Iid, Shards
from fedlit.data.shaping.partition import Partition, Redraw
from fedlit.data.sources import Bundled
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import ConfigError, DataError
from fedlit.seeding import derive_seed


def test_every_row_goes_to_one_client_in_its_own_split() -> None:
    source = Bundled(clients=["digits"])
    (whole,) = source.tables(seed=3)
    parts = Partition(source, clients=5).tables(seed=3)
    assert [part.name for part in parts] == ["c01", "c02", "c03", "c04", "c05"]
    for split in SPLITS:
        dealt = [part.features.index.to_numpy()[part.splits[split]] for part in parts]
        assert sorted(np.concatenate(dealt)) == sorted(whole.features.index.to_numpy()[whole.splits[split]])
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    for part in parts:
        assert part.features.equals(whole.features.loc[part.features.index])
        assert part.target.equals(whole.target.loc[part.target.index])


def test_the_seed_deals_and_rows_can_be_fewer() -> None:
    source = Partition(Bundled(clients=["digits"]), clients=4, rows={"train": 400})
    first, again, other = source.tables(1), source.tables(1), source.tables(2)
    assert all(a.features.index.equals(b.features.index) for a, b in zip(first, again, strict=True))
    assert not first[0].features.index.equals(other[0].features.index)
    assert sum(len(table.splits["train"]) for table in first) == 400


def test_splits_can_be_drawn_anew_from_some_and_all_be_tested_on_the_same_rows() -> None:
    source = Bundled(clients=["digits"])
    (whole,) = source.tables(seed=3)
    used = np.concatenate([whole.splits["train"], whole.splits["validation"]])
    rows = set(whole.features.index.to_numpy()[used])
    parts = Partition(source, 5, redraw=Redraw(("train", "validation"), 0.2, 0.25), shared_test=True).tables(seed=3)
    own = {split: [set(part.features.index.to_numpy()[part.splits[split]]) for part in parts] for split in SPLITS}
    assert all(test == own["test"][0] for test in own["test"])
    dealt = [*own["train"], *own["validation"], own["test"][0]]
    assert set().union(*dealt) == rows and sum(map(len, dealt)) == len(rows)
    shares = [sum(map(len, own[split])) / len(rows) for split in ("train", "validation")]
    np.testing.assert_allclose([*shares, len(own["test"][0]) / len(rows)], [0.6, 0.2, 0.2], atol=0.001)
    again = Partition(source, 5, redraw=Redraw(("train", "validation")), shared_test=True).tables(seed=4)
    assert set(again[0].features.index.to_numpy()[again[0].splits["test"]]) != own["test"][0]


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition: clients: expected at least 2, found 1"):
        Partition(Bundled(), clients=1)
    with pytest.raises(ConfigError, match=r"rows: expected at least one row a client .* found train: 3"):
        Partition(Bundled(), clients=4, rows={"train": 3})
    with pytest.raises(ConfigError, match=r"test: expected a share of the rows above 0 and below 1, found 1\.0"):
        Redraw(test=1.0)
    with pytest.raises(ConfigError, match=r"redraw\.splits: expected some of train, validation, test, none twice"):
        Redraw(splits=("tset",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"none twice, found \['train', 'train'\]"):
        Redraw(splits=("train", "train"))
    with pytest.raises(DataError, match="expected the columns of breast_cancer at wine, found others"):
        Partition(Bundled(clients=["breast_cancer", "wine"]), clients=2).tables(0)


def test_without_a_deal_rows_go_where_they_always_went() -> None:
    source = Bundled(clients=["digits"])
    (whole,) = source.tables(seed=3)
    parts = Partition(source, clients=3, rows={"train": 100}).tables(seed=3)
    for split in SPLITS:
        order = np.random.default_rng(derive_seed(3, "partition", split)).permutation(whole.splits[split])
        for part, rows in zip(parts, np.array_split(order[:100] if split == "train" else order, 3), strict=True):
            np.testing.assert_array_equal(part.features.index[part.splits[split]], whole.features.index[np.sort(rows)])


@pytest.mark.parametrize("deal", [Iid(), Dirichlet(0.5), Shards(2), Distance("middle", sample=50)])
def test_every_deal_gives_each_row_to_one_client_in_its_own_split(deal: Deal) -> None:
    source = Bundled(clients=["digits"])
    (whole,) = source.tables(seed=3)
    split_of = {row: split for split in SPLITS for row in whole.features.index[whole.splits[split]]}
    parts = Partition(source, clients=4, deal=deal).tables(seed=3)
    again, other = (Partition(source, clients=4, deal=deal).tables(seed) for seed in (3, 4))
    rows = np.concatenate([part.features.index for part in parts])
    assert sorted(rows) == sorted(whole.features.index)
    for part, same in zip(parts, again, strict=True):
        assert all(set(map(split_of.get, part.features.index[part.splits[split]])) == {split} for split in SPLITS)
        assert part.features.equals(same.features) and part.target.equals(whole.target.loc[part.target.index])
    assert any(not part.features.index.equals(new.features.index) for part, new in zip(parts, other, strict=True))


@pytest.mark.parametrize("deal", [Iid(), Dirichlet(0.5, least=5), Shards(2), Distance("middle", sample=50, least=5)])
def test_rows_and_redraw_come_before_the_deal_and_test_rows_can_be_shared(deal: Deal) -> None:
    made = Partition(
        Bundled(clients=["digits"]), 3, rows={"train": 300, "test": 100}, redraw=Redraw(), shared_test=True, deal=deal
    ).tables(seed=0)
    test = made[0].features.index[made[0].splits["test"]]
    assert len(test) == 100 and sum(len(table.splits["train"]) for table in made) == 300
    for table in made:
        assert table.features.index[table.splits["test"]].equals(test)
        assert not set(test) & set(table.features.index[np.concatenate([table.splits["train"]])])


def test_a_client_for_each_value_of_a_column() -> None:
    class Sites(Bundled):
        def tables(self, seed: int) -> list[ClientTable]:
            (table,) = super().tables(seed)
            site = np.array(["Bern", "St. Gallen", "Zug"])[np.arange(len(table.features)) % 3]
            return [replace(table, features=table.features.assign(site=site), categorical=("site",))]

    source = Sites(clients=["wine"])
    (whole,) = source.tables(0)
    made = Partition(source, deal=ByColumn("site")).tables(seed=0)
    assert [table.name for table in made] == ["Bern", "St-Gallen", "Zug"]
    for table, site in zip(made, ["Bern", "St. Gallen", "Zug"], strict=True):
        assert sorted(table.features.index) == sorted(whole.features.index[whole.features["site"] == site])
        assert set(table.features["site"]) == {site}
    dropped = Partition(source, deal=ByColumn("site", drop=True)).tables(seed=0)
    assert all("site" not in table.features and table.categorical == () for table in dropped)
    with pytest.raises(ConfigError, match="clients: expected 3, the number of values of site, found 4"):
        Partition(source, 4, deal=ByColumn("site")).tables(0)
    with pytest.raises(ConfigError, match=r"column: expected one of .*, found 'sit'\. Did you mean 'site'\?"):
        Partition(source, deal=ByColumn("sit")).tables(0)
    with pytest.raises(ConfigError, match="clients: expected how many there shall be, found none"):
        Partition(source).tables(0)
