"""What raw columns hold, alone and together, and how new rows are read."""

import datetime
import decimal
import json
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from raw_columns import COLUMNS, ROWS, made

from fedlit.data.reading.options import Declared
from fedlit.data.schema.schema import Schema
from fedlit.errors import ConfigError, DataError


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_what_is_meant_and_new_rows_are_read_alike(name: str) -> None:
    _, expected, value, said = COLUMNS[name]
    schema, typed, notes = Schema.find(made(name))
    column = schema.columns[name]
    assert column.kind == expected or (column.kind, column.why) == ("left out", expected)
    assert (
        any(said in note for note in notes) if said else column.kind == "left out" or not notes
    ), notes
    if value is not None or column.kind == "categorical":
        wanted = [(value or COLUMNS[name][0])(n) for n in range(ROWS)]
        got = typed.iloc[:, 0]
        assert [None if own is None or own != own else own for own in wanted] == [
            *got.astype(object).where(got.notna(), None)
        ]
    again = Schema.of(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    one, _ = again.apply(made(name, range(3, 4)), "here")
    pd.testing.assert_frame_equal(
        one.reset_index(drop=True), typed.iloc[[3]].reset_index(drop=True), check_dtype=False
    )


NUMERIC: dict[str, Declared] = {"income": "numeric"}


def test_columns_seen_together() -> None:
    raw = pd.concat(
        [made("points").rename(columns={"points": "income"}), made("decimal commas")], axis=1
    )
    incomes = [1583.0 if n % 2 else 900.0 + n for n in range(ROWS)]
    for income, types in (
        (raw["income"], {}),
        ([*raw["income"][:-1], "unknown"], {}),
        (raw["income"], NUMERIC),
    ):
        typed = Schema.find(raw.assign(income=income), types)[1]
        assert typed["income"].tolist()[:-1] == incomes[:-1]
    ages = [str(n * 7 % 59) for n in range(20)]
    weights = [f"{n / 4}" for n in range(20)]
    cells = {"age": ["years", *ages], "weight": ["kg", *weights]}
    assert any("second header (years, kg)" in note for note in Schema.find(pd.DataFrame(cells))[2])


def test_a_column_called_as_a_part_of_a_date_loses_nothing() -> None:
    raw = pd.DataFrame(
        {
            "seen": [f"2024-0{n % 9 + 1}-1{n % 7}" for n in range(ROWS)],
            "seen.month": [5.5, 7.5] * 30,
        }
    )
    for columns in (["seen", "seen.month"], ["seen.month", "seen"]):
        schema, typed, notes = Schema.find(raw[columns])
        assert typed["seen.month"].tolist() == [5.5, 7.5] * 30 and "seen.elapsed" in typed
        assert [note.column for note in notes if note.kind == "collision"] == ["seen.month"]
        assert schema.apply(raw, "here")[0].equals(typed[[*schema.apply(raw, "here")[0]]])


def test_what_is_declared_goes_before_what_is_found() -> None:
    raw = pd.DataFrame({"stage": ["I", "III", "II"] * 20, "ward": [1, 2, 3] * 20, "id": range(60)})
    raw = raw.assign(when="01/02/2024", grade=[3.0, 1.0, 2.0] * 20)
    types: dict[str, Any] = {
        "stage": ["I", "II", "III"],
        "ward": "categorical",
        "id": "numeric",
        "when": {"date": "%d/%m/%Y"},
    }
    schema, typed, notes = Schema.find(raw, {**types, "grade": [1, 2, 3]})
    assert typed["stage"].tolist() == [0, 2, 1] * 20 and typed["grade"].tolist() == [2, 0, 1] * 20
    assert schema.columns["ward"].kind == "coded" and schema.categorical(typed) == ("ward",)
    assert (
        typed["ward"].tolist() == [1, 2, 3] * 20
        and typed["id"].tolist() == [*range(60)]
        and not notes
    )
    assert typed["when.month"].tolist() == [2] * 60
    # codes of two sites have the same names, whether or not one site has letters
    here, there = (
        pd.DataFrame({"dx": ["250.0", "250.00", "428.0", other] * 9})
        for other in ("401.9", "V45.81")
    )
    levels = [{*Schema.find(own, {"dx": "categorical"})[1]["dx"]} for own in (here, there)]
    assert levels[0] - {"401.9"} == levels[1] - {"V45.81"} == {"250.0", "250.00", "428.0"}
    versions = pd.DataFrame({"version": ["1.1", "1.10", "2", "2.0"] * 15})
    assert Schema.find(versions, {"version": "categorical"})[1].equals(versions)  # no level is lost
    for wrong in (
        {"stage": "nummeric"},
        {"stage": ["I"]},
        {"stag": "numeric"},
        {"stage": {"date": 3}},
    ):
        with pytest.raises(ConfigError, match="expected"):
            Schema.find(raw, wrong)


def test_new_rows_that_do_not_fit() -> None:
    raw = pd.concat([made("milligrams"), made("spellings"), made("site")], axis=1)
    schema, _, _ = Schema.find(raw)
    with pytest.raises(
        DataError, match=r"here: expected the column 'milligrams'.* Did you mean 'Milligrams'"
    ):
        schema.apply(raw.rename(columns={"milligrams": "Milligrams"}), "here")
    with pytest.raises(
        DataError, match=r"here, column 'milligrams': expected numbers, found 60 other cells of 60"
    ):
        schema.apply(raw.assign(milligrams="high"), "here")
    days = pd.DataFrame({"seen": [f"2024-01-{n:02d}" for n in range(1, 29)] + ["pending"] * 40})
    with pytest.raises(
        DataError, match=r"there, column 'seen': expected dates, found 40 other cells"
    ):
        Schema.find(days, head="there")
    some = raw.copy()
    some.loc[:3, "milligrams"] = "7 g"  # another unit is another number
    typed, notes = schema.apply(some, "here")
    assert typed["milligrams"].isna().sum() == 4 and any("'7 g' (4)" in note for note in notes)
    typed, _ = schema.apply(raw.drop(columns="site").assign(spellings="F", more=1), "here")
    assert typed["spellings"].unique().tolist() == ["f"] and list(typed) == [
        "milligrams",
        "spellings",
    ]


def test_another_file_may_have_other_types_but_no_other_notation() -> None:
    values = [20.5 + n for n in range(ROWS)]
    schema = Schema.find(pd.DataFrame({"x": values}))[0]
    for same in (
        pd.Series(values, dtype=object),
        pd.Series(values).astype("category"),
        pd.Series(map(str, values)),
    ):
        assert schema.apply(same.to_frame("x"), "here")[0]["x"].tolist() == values
    schema = Schema.find(made("decimal commas").set_axis(["x"], axis=1))[0]
    dated = Schema.find(pd.DataFrame({"x": [f"{n % 28 + 1:02d}.01.2024" for n in range(60)]}))[0]
    for own, cell, found in (
        (schema, "1.25", "numbers"),
        (dated, "2024-01-03", "dates"),
        (dated, 20240101, "dates"),
    ):
        with pytest.raises(DataError, match=f"expected {found}, found .*{cell}.*[Ww]rite them as"):
            own.apply(pd.DataFrame({"x": [cell]}), "here")


def test_what_parquet_keeps() -> None:
    """Stored days, times and decimals are what their text would be; new rows may be stored where
    text was learnt."""
    stored: dict[str, tuple[pa.DataType, list[Any], str]] = {
        "day": (
            pa.date32(),
            [None, *(datetime.date(2024, 1, n % 28 + 1) for n in range(1, ROWS))],
            "date",
        ),
        "clock": (pa.time64("us"), [datetime.time(n % 24, 30) for n in range(ROWS)], "date"),
        "dose": (pa.decimal128(9, 2), [decimal.Decimal(n % 9) / 4 for n in range(ROWS)], "numeric"),
    }
    raw = pd.DataFrame(
        {name: pd.Series(own, dtype=pd.ArrowDtype(kind)) for name, (kind, own, _) in stored.items()}
    )
    schema, typed, _ = Schema.find(raw)
    assert {name: own.kind for name, own in schema.columns.items()} == {
        name: own[2] for name, own in stored.items()
    }
    texts = raw.astype(object).map(str, na_action="ignore")
    pd.testing.assert_frame_equal(Schema.find(texts)[1], typed)
    text = pd.DataFrame({"x": raw["day"].dropna().map("{:%d.%m.%Y}".format)})
    schema, typed, _ = Schema.find(text)
    pd.testing.assert_frame_equal(
        schema.apply(raw[["day"]].dropna().set_axis(["x"], axis=1), "here")[0], typed
    )
