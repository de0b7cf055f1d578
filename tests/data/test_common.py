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


EVERYONE, OF_SEX = ("cleveland", "faisalabad", "sa", "va"), ("cleveland", "faisalabad", "va")
PEOPLE = (("age", "sex"), OF_SEX)


@pytest.mark.parametrize(
    ("common", "groups"),
    [
        ("all", {"shared": (("age",), EVERYONE)}),
        (
            "groups",
            {"group1": (("age",), EVERYONE), "group2": PEOPLE, "group3": (("age", "chol", "cp", "sex"), OF_SEX[::2])},
        ),
        ({"people": ["sex", "age"], "chest": ["cp"]}, {"chest": (("cp",), ("cleveland", "va")), "people": PEOPLE}),
        (["age", "sex"], {"shared": PEOPLE}),
    ],
    ids=str,
)
def test_groups_have_the_clients_that_have_all_their_columns(common: Any, groups: dict[str, Any]) -> None:
    assert find_groups(TABLES[::-1], common) == [CommonColumns(name, *own) for name, own in groups.items()]


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
def test_clients_know_which_inputs_are_common_and_which_their_own(categories: Any) -> None:
    """How they are coded: test_encoding.py."""
    made = encode(TABLES, scaling="pooled", categories=categories, common={"people": ["sex", "age"], "chest": ["cp"]})
    cleveland, _, sa, va = (client.spec for client in made)
    chest = ("cp",) if categories == "codes" else ("cp=1", "cp=2", "cp=3", "cp=4")  # of both clients
    assert cleveland.common == va.common == {"chest": chest, "people": ("age", "sex")} and sa.common == {}
    assert cleveland.unique == va.unique == ("chol",)
    sa = encode(TABLES, align="features", common="all")[2].spec
    assert sa.unique == ("ldl",) and "chol" in sa.features  # a common input that it lacks is not its own


def test_a_column_without_values_is_told_as_what_it_is_at_others() -> None:
    tables = [table("a", ("stage",), stage=["I", "II"], age=NUMBERS), table("b", stage=[np.nan], age=NUMBERS)]
    told = agreement(tables, scaling="pooled", common="all").told("ab")
    assert told[-1]["numbers"] == {"a": 3, "b": 3} and told[-1]["columns"] == ["age"]
    clients = encode(tables, scaling="pooled", common="all")
    assert [client.categorical for client in clients] == [("stage",), ("stage",)]


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
