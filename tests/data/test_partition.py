"""Partition: all rows once, splits kept, by the seed."""

from __future__ import annotations

import numpy as np
import pytest

from fedlit.data.partition import Partition, Redraw
from fedlit.data.sources import Bundled
from fedlit.data.table import SPLITS
from fedlit.errors import ConfigError, DataError


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
