"""ColumnSplit: some columns stay common, each other one goes to one client, in few or many ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlit.data.agree import Terms, negotiate
from fedlit.data.shaping.column_split import ColumnSplit
from fedlit.data.shaping.partition import Partition, Redraw
from fedlit.data.sources import Bundled
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

DEALT = Partition(Bundled(clients=["breast_cancer"]), clients=4)  # 30 columns


def columns(tables: list[ClientTable]) -> list[tuple[str, ...]]:
    return [tuple(table.features) for table in tables]


def test_a_share_is_common_and_every_other_column_is_at_one_client() -> None:
    tables = ColumnSplit(DEALT, common=0.3).tables(seed=2)
    (group,) = negotiate(tables, Terms(common="all")).groups or ()
    assert len(group.columns) == 9
    own = [set(names) - set(group.columns) for names in columns(tables)]
    assert [len(names) for names in own] == [6, 5, 5, 5]
    assert len(set.union(*own)) == 21  # none twice, none lost
    whole = {table.name: table for table in DEALT.tables(seed=2)}
    for table in tables:
        assert table.features.equals(whole[table.name].features[list(table.features)])
        for split, rows in whole[table.name].splits.items():
            np.testing.assert_array_equal(table.splits[split], rows)


def test_ways_are_counted_modulo_the_seed() -> None:
    source = ColumnSplit(DEALT, common=0.3, ways=3)
    ways = [columns(source.tables(seed)) for seed in range(6)]
    assert ways[:3] == ways[3:] and len({tuple(way) for way in ways}) == 3
    redrawn = Partition(Bundled(clients=["breast_cancer"]), clients=4, redraw=Redraw())
    source = ColumnSplit(redrawn, common=0.3, ways=2, by="maximum")  # the same whatever rows a seed draws
    assert columns(source.tables(0)) == columns(source.tables(2))


def test_test_rows_have_no_say_in_which_columns_are_common() -> None:
    class Disturbed(Partition):
        def tables(self, seed: int) -> list[ClientTable]:
            tables = super().tables(seed)
            for table in tables:
                table.features.iloc[table.splits["test"]] = 1e6 * np.arange(30)
            return tables

    plain = ColumnSplit(DEALT, by="maximum").tables(seed=1)
    disturbed = ColumnSplit(Disturbed(Bundled(clients=["breast_cancer"]), clients=4), by="maximum").tables(seed=1)
    assert columns(plain) == columns(disturbed)


def test_by_correlation_common_columns_say_much_little_or_something_about_the_others() -> None:
    (whole,) = Bundled(clients=["breast_cancer"]).tables(seed=0)
    related = whole.features.corr().abs()

    def told(by: str) -> float:
        tables = ColumnSplit(DEALT, common=0.3, by=by).tables(seed=0)  # type: ignore[arg-type]
        common = list((negotiate(tables, Terms(common="all")).groups or ())[0].columns)
        return float(related.loc[common, [name for name in whole.features if name not in common]].to_numpy().sum())

    low, middle, high = told("minimum"), told("median"), told("maximum")
    chance = [told_of_chance(related.to_numpy(), number) for number in range(200)]
    assert low < np.quantile(chance, 0.05) < middle < np.quantile(chance, 0.95) < high


def told_of_chance(related: np.ndarray, number: int) -> float:
    order = np.random.default_rng(1000 + number).permutation(len(related))
    return float(related[np.ix_(order[:9], order[9:])].sum())


@pytest.mark.parametrize(
    ("source", "settings", "error", "message"),
    [
        (DEALT, {"common": 1}, ConfigError, "column split: common"),
        (DEALT, {"by": "most"}, ConfigError, "column split: by"),
        (DEALT, {"common": 0.9}, DataError, "found 30 columns of which 27 are common"),
        (Bundled(clients=["breast_cancer", "wine"]), {}, DataError, "the columns of breast_cancer at wine"),
    ],
)
def test_what_is_refused(source: Source, settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ColumnSplit(source, **settings).tables(0)
