"""A client that comes later is encoded by what the others agreed on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_tables import mixed, numbers, table

from fedlit.data.agree import Agreement, Terms, negotiate
from fedlit.data.encoder import TableEncoder
from fedlit.data.newcomer import newcomer
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError


def join(table: ClientTable, terms: Terms, run: list[ClientTable]) -> tuple[TableEncoder, ClientTable]:
    """A client that joins a run of others, by what the run has saved."""
    agreement = negotiate(run, terms)
    encoders = {own.name: TableEncoder(own.name, agreement).fit(own).state_dict() for own in run}
    return newcomer(table, terms, Agreement.of(agreement.state_dict()).with_codes(encoders), encoders)


@pytest.mark.parametrize("categories", ["codes", "indicators", "auto"])
@pytest.mark.parametrize("scaling", ["client", "pooled"])
def test_the_same_rows_under_another_name_are_encoded_alike(categories: Any, scaling: Any) -> None:
    """The oracle is a client of the run itself: a newcomer with its rows must get its tensors, bit by bit."""
    terms = Terms(align="both", scaling=scaling, categories=categories)
    run = [mixed("bern", 1), mixed("chur", 2)]
    agreement = negotiate(run, terms)
    expected = TableEncoder("bern", agreement).fit(run[0])
    encoder, own = join(replace(run[0], name="thun"), terms, run)
    assert encoder.features == expected.features and own.notes == run[0].notes
    np.testing.assert_array_equal(encoder.transform(own.features), expected.transform(run[0].features))
    assert encoder.task.classes == expected.task.classes and encoder.seen == expected.seen


def test_columns_that_the_run_does_not_know_are_left_out_and_categories_counted() -> None:
    terms = Terms(align="both", categories="indicators")
    towns = ["Bonn", "Ulm"] * 10
    run = [table("bern", {"age": numbers(), "town": towns}, categorical=["town"])]
    later = table("thun", {"town": ["Köln", "Ulm"] * 10, "bmi": numbers()}, categorical=["town"])
    encoder, own = join(later, terms, run)
    assert encoder.features == ("age", "town") and list(own.features) == ["town"]
    made = encoder.transform(own.features)
    assert (made[:, 0] == 0).all() and made[::2, 1].tolist() == [0.5] * 10 and made[1::2, 1].tolist() == [1.0] * 10
    count = int((own.features["town"].iloc[own.splits["train"]] == "Köln").sum())
    assert any("no client of the run (bern) has it: bmi" in note for note in own.notes)
    assert any("enters as 0 (data.align): age" in note for note in own.notes)
    assert any(f"town: {count} training rows have a category" in note and "Köln" in note for note in own.notes)


@pytest.mark.parametrize(
    ("later", "error", "message"),
    [
        (table("thun", {"age": numbers()}, [0, 7] * 10), DataError, r"found 7; rename them"),
        (
            table("thun", {"age": ["a", "b"] * 10}, categorical=["age"]),
            DataError,
            "'age': expected numeric.*found categorical",
        ),
        (table("thun", {"bmi": numbers()}), ConfigError, "expected a column that clients of the run have.*age"),
    ],
)
def test_what_does_not_fit_is_refused(later: ClientTable, error: type[Exception], message: str) -> None:
    terms = Terms(align="both")
    with pytest.raises(error, match=message):
        join(later, terms, [table("bern", {"age": numbers()})])


def test_codes_are_not_taken_for_the_categories_of_the_run() -> None:
    run = [table("bern", {"sex": ["m", "f"] * 10}, categorical=["sex"])]
    for categories in ("codes", "indicators", "auto"):
        terms = Terms(align="both", categories=categories)
        with pytest.raises(DataError, match="'sex': expected categorical"):
            join(table("thun", {"sex": [1, 2] * 10}, categorical=["sex"]), terms, run)


def test_without_alignment_it_is_on_its_own() -> None:
    own = mixed("thun", 3)
    terms = Terms()
    encoder, same = join(own, terms, [mixed("bern", 1)])
    alone = TableEncoder("thun", negotiate([own], terms)).fit(own)
    assert same.notes == own.notes
    np.testing.assert_array_equal(encoder.transform(own.features), alone.transform(own.features))


def test_it_is_in_the_groups_of_whose_columns_it_has_all() -> None:
    terms = Terms(common="groups", scaling="pooled")
    run = [
        table("bern", {"age": numbers(1), "bmi": numbers(2)}),
        table("chur", {"age": numbers(3), "bmi": numbers(4)}),
        table("genf", {"age": numbers(5), "dose": numbers(6)}),
    ]
    agreement = negotiate(run, terms)
    encoder, _ = join(table("thun", {"age": numbers(7), "dose": numbers(8)}), terms, run)
    assert encoder.common == {group.name: ["age"] for group in agreement.groups or () if group.columns == ("age",)}
    assert encoder.columns["age"].moments == TableEncoder("bern", agreement).fit(run[0]).columns["age"].moments
    assert encoder.columns["dose"].moments != TableEncoder("genf", agreement).fit(run[2]).columns["dose"].moments


def test_codes_of_a_column_that_one_client_alone_had_are_that_clients() -> None:
    run = [
        table("bern", {"age": numbers(1), "town": ["Bonn", "Ulm"] * 10}, categorical=["town"]),
        table("chur", {"age": numbers(2)}),
    ]
    encoder, own = join(table("thun", {"town": ["Ulm", "Aalen"] * 10}, categorical=["town"]), Terms(align="both"), run)
    assert encoder.columns["town"].categories == ("Bonn", "Ulm")
    assert any("town" in note and "Aalen" in note for note in own.notes)
