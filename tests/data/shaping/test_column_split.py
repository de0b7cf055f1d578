"""ColumnSplit: some columns stay common, each other one goes to one client, in few or many ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.agree import Terms, negotiate
from fedlit.data.shaping.column_split import ColumnSplit
from fedlit.data.shaping.dealing import ByColumn
from fedlit.data.shaping.partition import Partition
from fedlit.data.sources import Bundled, Tables
from fedlit.data.sources.base import Source
from fedlit.errors import ConfigError, DataError

DEALT = Partition(Bundled(clients=["breast_cancer"]), clients=4)  # 30 columns


def test_a_share_is_common_and_every_other_column_is_at_one_client() -> None:
    tables = ColumnSplit(DEALT, common=0.3).tables(seed=2)
    (group,) = negotiate(tables, Terms(common="all")).groups or ()
    assert len(group.columns) == 9
    own = [set(table.features) - set(group.columns) for table in tables]
    assert [len(names) for names in own] == [6, 5, 5, 5]
    assert len(set.union(*own)) == 21  # none twice, none lost
    whole = {table.name: table for table in DEALT.tables(seed=2)}
    for table in tables:
        assert table.features.equals(whole[table.name].features[list(table.features)])
        for split, rows in whole[table.name].splits.items():
            np.testing.assert_array_equal(table.splits[split], rows)


def test_ways_are_counted_modulo_the_seed() -> None:
    source = ColumnSplit(DEALT, common=0.3, ways=3)
    ways = [tuple(tuple(table.features) for table in source.tables(seed)) for seed in range(6)]
    assert ways[:3] == ways[3:] and len(set(ways)) == 3


def test_new_rows_need_no_column_that_a_client_does_not_have_and_notes_are_told_once(tmp_path: Path) -> None:
    rows = pd.DataFrame({f"x{k}": np.arange(60) * 7 % (41 + k) / 4 for k in range(6)})
    rows = rows.assign(site=["a", "b"] * 30, y=[0, 1, 1] * 20)
    for name in ("north", "south"):
        rows.assign(constant=1).to_csv(tmp_path / f"{name}.csv", index=False)
    source = Tables(str(tmp_path), "y")
    dealt = Partition(source, deal=ByColumn("site", drop=True))
    first, second = dealt.tables(0)
    assert first.notes == tuple(note for table in source.tables(0) for note in table.notes) and not second.notes
    for table in (first, second, *ColumnSplit(dealt).tables(0)):
        assert table.schema is not None and list(table.schema.used) == list(table.features)


@pytest.mark.parametrize(
    ("source", "settings", "error", "message"),
    [
        (DEALT, {"common": 1}, ConfigError, "column split: common"),
        (DEALT, {"common": 0.9}, DataError, "found 30 columns of which 27 are common"),
        (Bundled(clients=["breast_cancer", "wine"]), {}, DataError, "the columns of breast_cancer at wine"),
    ],
)
def test_what_is_refused(source: Source, settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ColumnSplit(source, **settings).tables(0)
