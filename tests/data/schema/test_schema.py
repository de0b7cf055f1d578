"""What raw columns hold, found in columns that are made of one kind, and applied to new rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.schema.schema import Schema
from fedlit.errors import ConfigError, DataError

ROWS = 60
MADE: dict[str, tuple[Callable[[int], Any], str]] = {
    "whole": (lambda n: str(n * 7 % 60), "numeric"),
    "stored as text": (lambda n: f"{n * 7 % 60 / 8}", "numeric"),
    "with a unit": (lambda n: f"{n * 7 % 60} mg", "numeric"),
    "mostly dots": (lambda n: "." if n % 4 else str(n), "numeric"),
    "one odd word": (lambda n: "not measured" if n % 3 else str(n * 1.5), "numeric"),
    "limits": (lambda n: f"<{n % 9}" if n % 5 == 0 else str(n % 9), "numeric"),
    "spreadsheet errors": (lambda n: "#DIV/0!" if n % 9 == 0 else str(n % 9), "numeric"),
    "two units": (lambda n: f"{n} mg" if n % 2 else f"{n} g", "several units"),
    "post code": (lambda n: f"0{n % 9}123", "categorical"),
    "ward": (lambda n: "ABC"[n % 3], "categorical"),
    "some numbers": (lambda n: f"E{n % 9}" if n % 3 else str(n % 9), "categorical"),
    "yes or no": (lambda n: ["Yes", "no"][n % 2], "boolean"),
    "ja oder nein": (lambda n: ["Ja", "nein", "Ja "][n % 3], "boolean"),
    "bool": (lambda n: n % 2 == 0, "boolean"),
    "day": (lambda n: f"2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}", "date"),
    "moment": (lambda n: pd.Timestamp(2024, 1, 1) + pd.Timedelta(hours=n), "date"),
    "zone": (lambda n: pd.Timestamp(2024, 1, 1, tz="Europe/Rome") + pd.Timedelta(days=n), "date"),
    "span": (lambda n: pd.Timedelta(days=n * 7 % 60), "numeric"),
    "row": (lambda n: n + 1, "identifier"),
    "person_id": (lambda n: 1000 + n // 2, "identifier"),
    "code": (lambda n: str(uuid.UUID(int=n * 2**90 + 7)), "identifier"),
    "remark": (lambda n: f"patient {n} felt rather well today", "free text"),
    "site": (lambda n: "Bern", "constant"),
    "nothing": (lambda n: None, "empty"),
    "list": (lambda n: [n, 1], "nested values"),
    "raw": (lambda n: bytes([n]), "binary"),
    "complex": (lambda n: complex(n, 1), "complex numbers"),
}


def made(name: str, rows: range = range(ROWS)) -> pd.DataFrame:
    return pd.DataFrame({name: [MADE[name][0](n) for n in rows]})


@pytest.mark.parametrize("name", MADE)
def test_each_kind_is_found_said_and_kept(name: str) -> None:
    expected = MADE[name][1]
    schema, notes = Schema.find(made(name))
    found = schema.columns[name]
    kept = expected in ("numeric", "categorical", "boolean", "date")
    assert (found.kind if kept else found.why) == expected
    assert kept or any(note.startswith(f"{name}: left out: it ") for note in notes)
    again = Schema.of(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    typed, _ = schema.apply(made(name), "here")
    for column in typed:
        assert typed[column].dtype == "float64" or column in schema.categorical(typed)
    # new rows are read by what was found, whatever they look like by themselves
    one, _ = again.apply(made(name, range(3, 4)), "here")
    pd.testing.assert_frame_equal(one.reset_index(drop=True), typed.iloc[[3]].reset_index(drop=True), check_dtype=False)


def test_values_are_those_meant() -> None:
    raw = pd.DataFrame(
        {name: made(name)[name] for name in ("with a unit", "mostly dots", "yes or no", "span", "limits")}
    )
    typed, notes = Schema.find(raw)[0].apply(raw, "here")
    assert typed["with a unit"].tolist() == [n * 7 % 60 for n in range(ROWS)]
    assert typed["mostly dots"].dropna().tolist() == [n for n in range(ROWS) if n % 4 == 0]
    assert typed["yes or no"].tolist() == [n % 2 == 0 for n in range(ROWS)]
    assert typed["span"].tolist() == [n * 7 % 60 * 86400.0 for n in range(ROWS)]
    assert "with a unit: 60 cells with mg, such as '0 mg', read as numbers" in notes
    assert any(note.startswith("limits: 12 cells with <") for note in notes)


def test_words_for_a_missing_value_are_counted() -> None:
    raw = pd.DataFrame(
        {"a": ["NA", "1", "3", "unknown"] * 15, "b": ["x", "y", "?", "z"] * 15, "c": ["-999", "4", "6", "5"] * 15}
    )
    _, notes = Schema.find(raw)
    assert "'NA' counts as missing in a (15)" in notes
    assert "'unknown' counts as missing in a (15)" in notes
    assert any(note.startswith("c: does -999 (15 cells) mean that there is no value?") for note in notes)
    schema, notes = Schema.find(raw, missing={"c": [-999], "*": ["Unknown", "x"]})
    typed, _ = schema.apply(raw, "here")
    assert typed["c"].isna().sum() == 15 and typed["b"].isna().sum() == 30
    assert not any("does -999" in note for note in notes)


def test_what_is_declared_goes_before_what_is_found() -> None:
    raw = pd.DataFrame(
        {"stage": ["I", "III", "II"] * 20, "ward": [1, 2, 3] * 20, "id": range(60), "when": ["01/02/2024"] * 60}
    )
    types = {"stage": ["I", "II", "III"], "ward": "categorical", "id": "numeric", "when": {"date": "%d/%m/%Y"}}
    schema, notes = Schema.find(raw, types)
    typed, _ = schema.apply(raw, "here")
    assert typed["stage"].tolist() == [0, 2, 1] * 20
    assert schema.categorical(typed) == ("ward",) and typed["id"].tolist() == [*range(60)]
    assert typed["when.month"].tolist() == [2] * 60
    assert notes == []
    for wrong in ({"stage": "nummeric"}, {"stage": ["I"]}, {"stag": "numeric"}, {"stage": {"date": 3}}):
        with pytest.raises(ConfigError, match="expected"):
            Schema.find(raw, wrong)  # type: ignore[arg-type]


def test_new_rows_that_do_not_fit() -> None:
    raw = pd.DataFrame(
        {"dose": [f"{n * 7 % 60} mg" for n in range(ROWS)], "sex": ["m", "f", "M "] * 20, "note": ["a"] * ROWS}
    )
    schema, notes = Schema.find(raw)
    assert "sex: spellings that are taken for one value: 'm' = 'M'" in notes
    with pytest.raises(
        DataError, match=r"here: expected the column 'dose', found none of this name; .* Did you mean 'Dose'"
    ):
        schema.apply(raw.rename(columns={"dose": "Dose"}), "here")
    with pytest.raises(
        DataError, match=r"here, column 'dose': expected numbers, found 60 other cells of 60, such as 'high'"
    ):
        schema.apply(raw.assign(dose="high"), "here")
    some = raw.copy()
    some.loc[:3, "dose"] = "7 g"  # another unit is another number
    typed, notes = schema.apply(some, "here")
    assert typed["dose"].isna().sum() == 4
    assert "dose: 4 cells are no numbers and count as missing: '7 g' (4)" in notes
    typed, _ = schema.apply(raw.drop(columns="note").assign(sex="F", more=1), "here")
    assert typed["sex"].unique().tolist() == ["f"] and list(typed) == ["dose", "sex"]


def test_a_wide_and_a_long_table_take_seconds() -> None:
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(30, 3000)), columns=[f"c{n}" for n in range(3000)])
    assert len(Schema.find(wide)[0].used) == 3000
    long = pd.DataFrame(
        {"k": [f"k{n}" for n in rng.integers(0, 20_000, 200_000)], "x": rng.normal(size=200_000).astype(str)}
    )
    schema, _ = Schema.find(long)
    assert [own.kind for own in schema.columns.values()] == ["categorical", "numeric"]


def one(values: list[Any], **rest: Any) -> tuple[Schema, pd.Series, list[str]]:
    raw = pd.DataFrame({"x": pd.Series(values)})
    schema, notes = Schema.find(raw, **rest)
    return schema, schema.apply(raw, "here")[0].iloc[:, 0], notes


def test_typed_cells_are_what_they_are_in_any_company() -> None:
    values = [20.5 + n for n in range(60)]
    schema, _typed, _ = one(values)
    for same in (pd.Series(values, dtype=object), pd.Series(values).astype("category"), pd.Series(map(str, values))):
        found, _ = schema.apply(same.to_frame("x"), "here")
        assert found["x"].tolist() == values
    mixed = [*values[:45], *map(str, values[45:])]  # as SQLite may give them
    assert one(mixed)[1].tolist() == values
    ordinal, found, _ = one([1, 2, 3] * 20, types={"x": [1, 2, 3]})
    assert found.tolist() == [0, 1, 2] * 20
    assert ordinal.apply(pd.DataFrame({"x": [1.0, "3"]}, dtype=object), "here")[0]["x"].tolist() == [0, 2]


def test_one_slip_changes_one_cell() -> None:
    _, typed, notes = one([*(f"{n}.7" for n in range(99)), "3,4"])
    assert typed.isna().sum() == 1 and any("'3,4' (1)" in note for note in notes)
    _, typed, notes = one([*(f"{n % 12 + 1:02d}/{n % 12 + 1:02d}/2024" for n in range(97)), "13/02/2024", "25/12/2023"])
    assert typed.notna().all() and not any("month/day" in note for note in notes)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1a", "3c", "2b", "7d"] * 15, "categorical"),
        (["20240131T101010", "20240201T111111"] * 30, "categorical"),
        ([f"{1234 + n * 77}-{n % 12 + 1:02d}" for n in range(60)], "left out"),  # codes, another in each row
        (["08:15", "23:59", "12:30"] * 20, "date"),
        (["+", "-", "-", "+"] * 15, "categorical"),
        (["Y", "n", "1", "0"] * 15, "boolean"),
        (["yes", None, None] * 20, "categorical"),
    ],
)
def test_what_could_be_taken_for_something_else(values: list[Any], kind: str) -> None:
    schema, _ = Schema.find(pd.DataFrame({"x": values}))
    assert schema.columns["x"].kind == kind


def test_a_file_may_be_written_in_another_way_than_the_one_that_was_trained_on() -> None:
    schema, _, _ = one([f"{n},5" for n in range(60)])
    found, notes = schema.apply(pd.DataFrame({"x": ["1.25", "2.5"]}), "here")
    assert found["x"].tolist() == [1.25, 2.5]
    schema, _typed, _ = one([f"{n % 28 + 1:02d}.01.2024" for n in range(60)])
    found, notes = schema.apply(pd.DataFrame({"x": ["2024-01-03"]}), "here")
    assert found.iloc[0, -1] == schema.apply(pd.DataFrame({"x": ["03.01.2024"]}), "here")[0].iloc[0, -1]
    assert any("dates are written as" in note for note in notes)
    with pytest.raises(DataError, match="expected dates, found numbers such as 20240101"):
        schema.apply(pd.DataFrame({"x": [20240101]}), "here")
