"""Columns in common: found by name and kind, coded alike, and nothing more told than that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_tables import encode

from fedlit.data.agree import Agreement, Terms, negotiate
from fedlit.data.common import CommonColumns
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError

ROWS = 12


def table(name: str, categorical: tuple[str, ...] = (), **columns: Any) -> ClientTable:
    features = pd.DataFrame({column: np.resize(values, ROWS) for column, values in columns.items()})
    splits = {"train": np.arange(8), "validation": np.arange(8, 10), "test": np.arange(10, 12)}
    return ClientTable(name, features, pd.Series([0, 1] * 6, name="y"), splits, categorical)  # type: ignore[arg-type]


NUMBERS = [1.0, 2.0, 4.0]
TABLES = [
    table("cleveland", ("sex", "cp"), age=[40.0, 60.0], sex=[0, 1], cp=[1, 2, 3], chol=NUMBERS),
    table("va", ("sex", "cp"), chol=NUMBERS, cp=[2, 3, 4], sex=[1], age=[50.0, 70.0]),
    table("faisalabad", ("sex",), age=[60.0, 90.0], sex=[0, 1], platelets=NUMBERS),
    table("sa", age=[20.0, 30.0], ldl=NUMBERS),
]


def agreement(tables: Sequence[ClientTable], **terms: Any) -> Agreement:
    return negotiate(tables, Terms(**terms))


def find_groups(tables: Sequence[ClientTable], common: Any) -> list[CommonColumns]:
    return list(agreement(tables, common=common).groups or ())


def test_all_is_one_group_with_what_every_client_has() -> None:
    everyone = ("cleveland", "faisalabad", "sa", "va")
    assert find_groups(TABLES, "all") == [CommonColumns("shared", ("age",), everyone)]


def test_groups_are_the_sets_of_clients_that_columns_tell_apart_with_all_that_they_share() -> None:
    assert find_groups(TABLES[::-1], "groups") == [
        CommonColumns("group1", ("age",), ("cleveland", "faisalabad", "sa", "va")),
        CommonColumns("group2", ("age", "sex"), ("cleveland", "faisalabad", "va")),
        CommonColumns("group3", ("age", "chol", "cp", "sex"), ("cleveland", "va")),
    ]


def test_listed_groups_have_the_clients_that_have_all_their_columns() -> None:
    found = find_groups(TABLES, {"people": ["sex", "age"], "chest": ["cp"]})
    assert found == [
        CommonColumns("chest", ("cp",), ("cleveland", "va")),
        CommonColumns("people", ("age", "sex"), ("cleveland", "faisalabad", "va")),
    ]
    assert find_groups(TABLES, ["age", "sex"]) == [CommonColumns("shared", *(found[1].columns, found[1].clients))]


def test_a_column_of_another_kind_is_another_column_unless_it_is_listed() -> None:
    odd = [table("a", age=NUMBERS, bmi=NUMBERS), table("b", ("bmi",), age=NUMBERS, bmi=["low", "high"])]
    assert find_groups(odd, "all")[0].columns == ("age",)
    with pytest.raises(ConfigError, match=r"'bmi': expected one kind .* found numeric at 'a' and categorical at 'b'"):
        find_groups(odd, ["bmi"])
    assert agreement(odd, common="all").apart == (
        "bmi is not treated as common, because it has several kinds: numeric at a, categorical at b",
    )
    empty = [table("a", age=NUMBERS), table("b", age=[np.nan])]  # no value says nothing about the kind
    assert find_groups(empty, "all")[0].columns == ("age",)


@pytest.mark.parametrize(
    ("tables", "common", "message"),
    [
        (TABLES, ["agee"], "found 'agee'.*Did you mean 'age'"),
        (TABLES, ["platelets"], "expected two clients that have all of platelets, found .faisalabad"),
        (TABLES, ["ldl", "chol"], "found .none"),
        (TABLES, [], "expected all, groups, a list of columns, or lists .* found \\[\\]"),
        (TABLES, {}, "expected all, groups, a list of columns, or lists .* found {}"),
        (TABLES, True, "found True"),
        (TABLES, "age", r"found 'age'; write \[age\] for one column"),
        (TABLES, {"people": "age"}, "data.common: people: expected a list of names of columns, found 'age'"),
        (TABLES, {"a.b": ["age"]}, "expected a group's name of letters, digits and '_'"),
        (TABLES, {1: ["age"]}, "expected a group's name of letters, digits and '_' .* found 1"),
        (TABLES, {"values": ["age"]}, "that torch does not use itself, found 'values'"),
        (TABLES[:1], "all", "expected at least two clients, found .cleveland"),
        ([table("a", x=NUMBERS), table("b", y=NUMBERS)], "all", "expected a column that all of a, b have"),
        ([table("a", x=NUMBERS), table("b", y=NUMBERS)], "groups", "expected a column that two clients have"),
    ],
)
def test_what_cannot_be_found_says_why(tables: list[ClientTable], common: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_groups(tables, common)


@pytest.mark.parametrize("categories", ["codes", "indicators"])
def test_common_columns_are_coded_alike_and_the_others_by_their_owner(categories: Any) -> None:
    common = {"people": ["sex", "age"], "chest": ["cp"]}
    clients = {
        client.spec.name: client for client in encode(TABLES, scaling="pooled", categories=categories, common=common)
    }
    cleveland, va, sa = clients["cleveland"], clients["va"], clients["sa"]
    assert cleveland.spec.common == va.spec.common and sa.spec.common == {}
    chest = ("cp",) if categories == "codes" else ("cp=1", "cp=2", "cp=3", "cp=4")  # of both clients
    assert va.spec.common == {"chest": chest, "people": ("age", "sex")}
    assert cleveland.spec.unique == va.spec.unique == ("chol",)

    def column(client: str, name: str) -> np.ndarray:
        return clients[client].train.x[:, clients[client].spec.features.index(name)].numpy()

    # age: standardised by the members' rows together, not by those of sa, whose own are its own matter
    members = np.concatenate([own.features["age"].to_numpy()[:8] for own in TABLES[:3]])
    expected = (TABLES[1].features["age"].to_numpy()[:8] - members.mean()) / members.std()
    np.testing.assert_allclose(column("va", "age"), expected, rtol=1e-6)
    np.testing.assert_allclose(column("sa", "age"), np.resize([-1.0, 1.0], 8), rtol=1e-6)
    # chol is at two clients, but not listed: each has its own scale
    own = TABLES[1].features["chol"].to_numpy()[:8]
    np.testing.assert_allclose(column("va", "chol"), (own - own.mean()) / own.std(), rtol=1e-6)
    if categories == "codes":
        assert column("cleveland", "cp").tolist() == np.resize([0, 1, 2], 8).tolist()
        assert column("va", "cp").tolist() == np.resize([1, 2, 3], 8).tolist()
        # va has seen one sex only, its code is that of the others
        assert set(column("va", "sex")) == {1.0}


def test_a_column_without_values_is_told_as_what_it_is_at_others() -> None:
    tables = [table("a", ("stage",), stage=["I", "II"], age=NUMBERS), table("b", stage=[np.nan], age=NUMBERS)]
    told = agreement(tables, scaling="pooled", common="all").told("ab")
    assert told[-1]["numbers"] == {"a": 3, "b": 3} and told[-1]["columns"] == ["age"]
    clients = encode(tables, scaling="pooled", common="all")
    assert [client.categorical for client in clients] == [("stage",), ("stage",)]


def test_a_common_input_that_a_client_lacks_is_not_its_own() -> None:
    (sa,) = [client for client in encode(TABLES, align="features", common="all") if client.spec.name == "sa"]
    assert sa.spec.unique == ("ldl",) and "chol" in sa.spec.features


def test_listed_columns_alone_are_told() -> None:
    listed = ["age", "sex"]
    names = [table.name for table in TABLES]
    told = agreement(TABLES, scaling="pooled", common=listed).told(names)
    assert [(entry["what"].split()[0], entry["columns"]) for entry in told] == [
        ("which", ["age", "sex"]),
        ("categories", ["sex"]),
        ("count,", ["age"]),
    ]
    assert told[2]["numbers"] == {"cleveland": 3, "faisalabad": 3, "va": 3, "sa": 0}
    found = agreement(TABLES, common="all").told(names)
    assert [entry["columns"] for entry in found] == [
        ["age", "chol", "cp", "ldl", "platelets", "sex"]  # to find what is common, all names are told
    ]
