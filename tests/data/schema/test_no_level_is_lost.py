"""Guesses that once lost a level, a thousand or a row's name without a word, in columns as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from fedlit.data.schema.schema import Schema

ROWS = 60


def column(make: Callable[[int], Any]) -> list[Any]:
    return [make(n) for n in range(ROWS)]


LEVELS = {
    "numbered, one of them rare": column(lambda n: "2. Black" if n == 7 else "1. White"),
    "numbered, of several words": column(lambda n: ["1. Never Married", "2. Married", "3. Widowed"][n % 3]),
    "ranges": column(lambda n: ["<=20", "20-50", ">50"][n % 3]),
    "bounds of one number": column(lambda n: ["<20", ">=20"][n % 2]),
    "numbers of letters": column(lambda n: ["1 White", "2 Black"][n % 2]),
}


@pytest.mark.parametrize("name", LEVELS)
def test_levels_that_begin_with_numbers_are_categories(name: str) -> None:
    raw = pd.DataFrame({"x": LEVELS[name]})
    schema, notes = Schema.find(raw)
    typed, _ = schema.apply(raw, "here")
    assert schema.columns["x"].kind == "categorical"
    assert typed["x"].tolist() == LEVELS[name]
    assert not any("missing:" in note for note in notes)  # no advice would delete a level


def test_one_number_and_a_word_are_two_levels() -> None:
    cells = column(lambda n: "not done" if n % 9 == 0 else "4 mg")
    schema, _ = Schema.find(raw := pd.DataFrame({"x": cells}))
    assert schema.apply(raw, "here")[0]["x"].tolist() == cells


def test_cells_that_are_no_numbers_are_counted_though_the_column_is_left_out() -> None:
    cells = column(lambda n: "lost" if n == 4 else f"{1000 + n * 7919 % 4001}")
    schema, notes = Schema.find(pd.DataFrame({"case_no": cells}))
    assert schema.columns["case_no"].why == "identifier"
    assert any("'lost' (1)" in note for note in notes)


@pytest.mark.parametrize(
    "name", ["pid", "PID", "patient", "hospital_number", "case_no", "phone", "Patient ID", "caseNo"]
)
def test_names_of_rows_are_left_out_where_each_is_another(name: str) -> None:
    own = column(lambda n: 10_000 + n * 7919 % 4001)
    for raw in (own, [f"{number}" for number in own]):
        assert Schema.find(pd.DataFrame({name: raw}))[0].columns[name].why == "identifier"
    assert Schema.find(pd.DataFrame({name: [n % 3 for n in range(ROWS)]}))[0].columns[name].kind == "numeric"


def test_numbers_that_are_merely_different_are_kept_and_asked_about() -> None:
    schema, notes = Schema.find(pd.DataFrame({"age": [20 + n * 7 % 61 for n in range(40)]}))
    assert schema.columns["age"].kind == "numeric"
    assert any("another value in each row" in note and "identifier" in note for note in notes)
    assert Schema.find(pd.DataFrame({"row": range(7, 67)}))[0].columns["row"].why == "identifier"


def test_long_codes_stay_different() -> None:
    codes = column(lambda n: f"990000000000000000000{n:05d}")
    assert Schema.find(pd.DataFrame({"code": codes}))[0].columns["code"].why == "identifier"
    some = [codes[n % 5] for n in range(ROWS)]
    schema, _ = Schema.find(raw := pd.DataFrame({"code": some}))
    assert schema.apply(raw, "here")[0]["code"].tolist() == some


def test_a_point_is_a_thousand_where_other_columns_have_decimal_commas() -> None:
    income = column(lambda n: "1.583" if n % 2 else f"{900 + n}")
    share = column(lambda n: f"{n},5")
    raw = pd.DataFrame({"income": income, "share": share})
    typed = Schema.find(raw)[0].apply(raw, "here")[0]
    assert typed["income"].tolist() == column(lambda n: 1583.0 if n % 2 else 900.0 + n)
    schema, notes = Schema.find(raw[["income"]])  # nothing else tells
    assert schema.apply(raw, "here")[0]["income"].max() == 958
    assert any(note.startswith("income: '1.583' is read as 1.583") and "thousands: '.'" in note for note in notes)
    plain = pd.DataFrame({"x": column(lambda n: f"{1 + n / 1000:.3f}")})
    assert not Schema.find(plain)[1]


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (column(lambda n: -9 if n % 7 == 0 else n % 50 + 20), "-9"),
        (column(lambda n: 99 if n % 7 == 0 else n % 10), "99"),
        (column(lambda n: 99 if n % 5 == 0 else 20 + n), "99"),
        (column(lambda n: "1900-01-01" if n % 7 == 0 else f"2020-{n % 12 + 1:02d}-{n % 28 + 1:02d}"), "1900-01-01"),
    ],
)
def test_values_that_may_mean_missing_are_asked_about(cells: list[Any], value: str) -> None:
    _, notes = Schema.find(pd.DataFrame({"x": cells}))
    assert any(value in note and "mean that there is no value" in note for note in notes)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: f"{100 + n}/{60 + n}",
        lambda n: f'{{"a": {n}}}',
        lambda n: [f"2024-01-{n % 28 + 1:02d} {n}", f"{n % 28 + 1}.1.2024 {n}"][n % 2],
    ],
)
def test_texts_that_are_nearly_all_different_are_said(make: Callable[[int], str]) -> None:
    cells = column(make)
    cells[1] = cells[0]
    _, notes = Schema.find(pd.DataFrame({"x": cells}))
    assert any(note.startswith("x: ") and "different" in note for note in notes)


def test_a_second_header_row_is_said() -> None:
    raw = pd.DataFrame(
        {
            "age": ["years", *(f"{30 + n * 7 % 59}" for n in range(59))],
            "weight": ["kg", *(f"{50 + n * 7 % 50 / 4}" for n in range(59))],
            "sex": ["m/f", *("mf"[n % 2] for n in range(59))],
        }
    )
    _, notes = Schema.find(raw)
    assert any("second header" in note and "years" in note and "kg" in note for note in notes)


def test_what_is_counted_is_no_name() -> None:
    visits = [n * 7 % 30 + 1 for n in range(200)]
    assert Schema.find(pd.DataFrame({"visit_number": visits}))[0].columns["visit_number"].kind == "numeric"


def test_a_single_slip_leaves_a_column_of_dates_what_it_is() -> None:
    days = column(lambda n: "2020-13-45" if n == 7 else f"2020-0{n % 3 + 1}-1{n % 7}")
    schema, notes = Schema.find(pd.DataFrame({"x": days + days}))
    assert schema.columns["x"].kind == "date" and any("2020-13-45" in note for note in notes)


def test_a_row_of_sums_is_said() -> None:
    ages = [f"{20 + n * 7 % 61}" for n in range(ROWS)]
    _, notes = Schema.find(pd.DataFrame({"age": [*ages, *ages, "Total"]}))
    assert any("'Total'" in note and "sum" in note for note in notes)


def test_a_value_below_few_others_is_asked_about() -> None:
    _, notes = Schema.find(pd.DataFrame({"x": column(lambda n: [-9, 3, 4, 5.5, 6][n % 5])}))
    assert any("-9" in note and "mean that there is no value" in note for note in notes)
