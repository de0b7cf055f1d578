"""Columns in common, found by name and kind, and no more told than that takes; bins of numbers, own
and agreed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import make_run
from made_tables import N, encode, mixed, numbers, table

from fedlit.data.agree import Agreement, negotiate
from fedlit.data.common import CommonColumns
from fedlit.data.encoder import TableEncoder
from fedlit.data.newcomer import newcomer
from fedlit.data.sent import SentStatement, describe_sent
from fedlit.data.table import ClientTable
from fedlit.data.terms import Terms
from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.nn.tabm import PiecewiseLinear
from fedlit.sketches import SKETCHED, agreed_edges, sketch


def small(name: str, categorical: tuple[str, ...] = (), **columns: Any) -> ClientTable:
    return table(
        name,
        {column: np.resize(own, N) for column, own in columns.items()},
        categorical=categorical,
    )


NUMBERS = [1.0, 2.0, 4.0]
TABLES = [
    small("cleveland", ("sex", "cp"), age=[40.0, 60.0], sex=[0, 1], cp=[1, 2, 3], chol=NUMBERS),
    small("va", ("sex", "cp"), chol=NUMBERS, cp=[2, 3, 4], sex=[1], age=[50.0, 70.0]),
    small("faisalabad", ("sex",), age=[60.0, 90.0], sex=[0, 1], platelets=NUMBERS),
    small("sa", age=[20.0, 30.0], ldl=NUMBERS),
]


def agreement(tables: Sequence[ClientTable], **terms: Any) -> Agreement:
    return negotiate(tables, Terms(**terms))[0]


def find_groups(tables: Sequence[ClientTable], common: Any) -> list[CommonColumns]:
    return list(agreement(tables, common=common).groups or ())


EVERYONE = ("cleveland", "faisalabad", "sa", "va")
OF_SEX = ("cleveland", "faisalabad", "va")
PEOPLE = (("age", "sex"), OF_SEX)


@pytest.mark.parametrize(
    ("common", "groups"),
    [
        ("all", {"shared": (("age",), EVERYONE)}),
        (
            "groups",
            {
                "group1": (("age",), EVERYONE),
                "group2": PEOPLE,
                "group3": (("age", "chol", "cp", "sex"), OF_SEX[::2]),
            },
        ),
        (
            {"people": ["sex", "age"], "chest": ["cp"]},
            {"chest": (("cp",), ("cleveland", "va")), "people": PEOPLE},
        ),
        (["age", "sex"], {"shared": PEOPLE}),
    ],
    ids=str,
)
def test_groups_have_the_clients_that_have_all_their_columns(
    common: Any, groups: dict[str, Any]
) -> None:
    assert find_groups(TABLES[::-1], common) == [
        CommonColumns(name, *own) for name, own in groups.items()
    ]


def test_a_column_of_another_kind_is_another_unless_listed() -> None:
    odd = [
        small("a", age=NUMBERS, bmi=NUMBERS),
        small("b", ("bmi",), age=NUMBERS, bmi=["low", "high"]),
    ]
    assert find_groups(odd, "all")[0].columns == ("age",)
    with pytest.raises(
        ConfigError,
        match=r"'bmi': expected one kind .* found numeric at 'a' and categorical at 'b'",
    ):
        find_groups(odd, ["bmi"])
    (apart,) = agreement(odd, common="all").apart
    assert apart.startswith("not treated as common: column 'bmi': expected one kind")
    # no value says nothing about the kind
    empty = [small("a", age=NUMBERS), small("b", age=[np.nan])]
    assert find_groups(empty, "all")[0].columns == ("age",)


@pytest.mark.parametrize(
    ("tables", "common", "message"),
    [
        (TABLES, ["agee"], "found 'agee'.*Did you mean 'age'"),
        (
            TABLES,
            ["platelets"],
            "expected two clients that have all of platelets, found .faisalabad",
        ),
        (TABLES, ["ldl", "chol"], "found .none"),
        (TABLES, [], "expected all, groups, a list of columns, or lists .* found \\[\\]"),
        (TABLES, "age", r"found 'age'; write \[age\] for one column"),
        (
            TABLES,
            {"people": "age"},
            "data.common: people: expected a list of names of columns, found 'age'",
        ),
        (TABLES, {"a.b": ["age"]}, "expected a group's name of letters, digits and '_'"),
        (TABLES, {"values": ["age"]}, "that torch does not use itself, found 'values'"),
        (TABLES[:1], "all", "expected at least two clients, found .cleveland"),
        (
            [small("a", x=NUMBERS), small("b", y=NUMBERS)],
            "all",
            "expected a column that all of a, b have",
        ),
        (
            [small("a", x=NUMBERS), small("b", y=NUMBERS)],
            "groups",
            "expected a column that two clients have",
        ),
    ],
)
def test_what_cannot_be_found_says_why(
    tables: list[ClientTable], common: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        find_groups(tables, common)


@pytest.mark.parametrize("categories", ["codes", "indicators"])
def test_clients_know_which_inputs_are_common(categories: Any) -> None:
    """How they are coded: test_encoding.py."""
    made = encode(
        TABLES,
        scaling="pooled",
        categories=categories,
        common={"people": ["sex", "age"], "chest": ["cp"]},
    )
    cleveland, _, sa, va = (client.spec for client in made)
    # of both clients
    chest = ("cp",) if categories == "codes" else ("cp=1", "cp=2", "cp=3", "cp=4")
    assert (
        cleveland.common == va.common == {"chest": chest, "people": ("age", "sex")}
        and sa.common == {}
    )
    assert cleveland.unique == va.unique == ("chol",)
    sa = encode(TABLES, align="features", common="all")[2].spec
    # a common input that it lacks is not its own
    assert sa.unique == ("ldl",) and "chol" in sa.features


def test_listed_columns_alone_are_told() -> None:
    def plan(**settings: Any) -> list[SentStatement]:
        terms = Terms(**settings)
        return describe_sent(negotiate(TABLES, terms)[1], terms)

    listed = plan(scaling="pooled", common=["age", "sex"])
    assert [(entry["what"].split()[0], entry["columns"]) for entry in listed] == [
        ("names", ["age", "sex"]),
        ("categories", ["sex"]),
        ("count,", ["age"]),
    ]
    assert listed[2]["numbers"] == {"cleveland": 3, "faisalabad": 3, "va": 3, "sa": 0}
    assert [entry["columns"] for entry in plan(common="all")] == [
        # to find what is common, all names are sent
        ["age", "chol", "cp", "ldl", "platelets", "sex"]
    ]


def input_of(client: Any, name: str) -> Input:
    return next(own for own in client.spec.inputs if own.name == name)


POOL: dict[str, Any] = {"pool": True, "align": "both", "scaling": "pooled", "bins": "agreed"}


def far_apart(n: int = 1000) -> list[ClientTable]:
    """Two clients whose ages differ, and so their own scaling; a third that has other columns."""
    return [
        table("a", {"age": 20 + 0.03 * np.arange(n), "own": numbers(1, n)}),
        table(
            "b",
            {"age": 45 + 0.05 * np.arange(n) ** 1.01, "town": ["x", "y"] * (n // 2)},
            categorical=["town"],
        ),
        table("c", {"bmi": numbers(2, n), "town": np.arange(n) % 7}),
    ]


@pytest.mark.parametrize("scaling", ["client", "pooled", "none"])
def test_equal_numbers_have_equal_places_where_bins_are_agreed(scaling: Any) -> None:
    # whose town is of another kind
    tables = [own for own in far_apart() if scaling != "pooled" or own.name != "c"]
    terms = Terms(scaling=scaling, bins="agreed", num_bins=8)
    agreement, *_ = negotiate(tables, terms)
    ages = np.array([-5.0, 21.0, 33.3, 47.0, 60.0, 95.0, 200.0])
    places = []
    for own in tables[:2]:
        encoder = TableEncoder(own.name, agreement).fit(own)
        client = encoder.encode(own)
        new = own.features.head(len(ages)).assign(age=ages)
        embedding = PiecewiseLinear([input_of(client, "age")], bins=8, width=1)
        places.append(embedding.encode(torch.from_numpy(encoder.transform(new))[:, :1]))
        raw = np.concatenate(
            [each.features["age"].iloc[each.splits["train"]] for each in tables[:2]]
        )
        met = agreement.shared(own.name, "age")
        assert met is not None and len(met.edges) == 9
        shares = np.searchsorted(np.sort(raw), met.edges) / len(raw)
        np.testing.assert_allclose(shares, np.linspace(0, 1, 9), atol=0.01)
        assert (met.edges[0], met.edges[-1]) == (raw.min(), raw.max())
    torch.testing.assert_close(places[0], places[1], rtol=1e-4, atol=1e-4)


def test_bins_are_at_quantiles_of_training_rows() -> None:
    (client,) = encode([mixed("a")], num_bins=4)
    (pooled,) = encode([mixed("a", 1), mixed("b", 2)], num_bins=4, **POOL)
    for own in (client, pooled):
        x = own.train.x[:, own.spec.features.index("age")].numpy()
        np.testing.assert_allclose(
            input_of(own, "age").edges, np.quantile(x, [0, 0.25, 0.5, 0.75, 1]), rtol=1e-6
        )
    assert (
        input_of(client, "town").values == ("Aachen", "Bonn", "Köln")
        and not input_of(client, "town").edges
    )
    assert input_of(client, "ward").values == ("1", "2", "7")
    assert [own.name for own in client.spec.inputs] == list(client.spec.features)
    (none,) = encode([mixed("a")], bins="none")
    assert not any(own.edges for own in none.spec.inputs)


def test_what_is_told_is_what_the_plan_says(tmp_path: Path) -> None:
    terms = Terms(bins="agreed")
    tables = far_apart(20)
    agreement, sent, _ = negotiate(tables, terms)
    assert {name: list(own.get("sketches", ())) for name, own in sent.items()} == {
        "a": ["age"],
        "b": ["age"],
        "c": [],
    }
    names, sketches = describe_sent(sent, terms)
    assert (
        names["columns"] == ["age", "bmi", "own", "town"] and "column 'town'" in agreement.apart[0]
    )
    assert sketches["numbers"] == {"a": SKETCHED + 1, "b": SKETCHED + 1, "c": 0}
    assert "(1032 to 1290 numbers per client)" in str(
        make_run(tmp_path, data={"bins": "agreed"}).describe()
    )


def test_sketches_of_no_value_one_value_and_close_values() -> None:
    nothing = sketch(np.array([np.nan]))
    one = sketch(np.array([5.0, 5.0, np.nan]))
    assert nothing == [0] and one[0] == 2
    assert agreed_edges([nothing], 4) == () and agreed_edges([nothing, one], 4) == (5.0,)
    edges = agreed_edges([sketch(np.array([0.0, 1.0, 1.0 + 1e-9])), sketch(np.array([1e9]))], 32)
    assert np.diff(edges).min() > 1e-6 * 1e9 and (edges[0], edges[-1]) == (0.0, 1e9)


def test_bins_of_a_run_are_those_of_a_client_that_joins() -> None:
    tables = far_apart(40)
    terms = Terms(bins="agreed")
    agreement, *_ = negotiate(tables, terms)
    later, own = newcomer(replace(tables[0], name="d"), terms, agreement, ["a", "b"])
    run = agreement.shared("b", "age")
    moments = later.columns["age"].moments
    assert run is not None and moments is not None
    np.testing.assert_array_equal(
        input_of(later.encode(own), "age").edges, moments.standardise(np.array(run.edges))
    )
