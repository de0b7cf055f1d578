"""What raw columns hold: a table of cells → kind, values and notes; and how new rows are read."""

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.data.reading import ReadOptions
from fedlit.data.reading.options import Declared
from fedlit.data.schema.numbers import Notation
from fedlit.data.schema.schema import Schema
from fedlit.errors import ConfigError, DataError

ROWS = 60
NO_VALUE = "mean that there is no value"
NUMERIC: dict[str, Declared] = {"income": "numeric"}
UNSEEN = ["a", "a\u200b", "b\u00a0c"]
MONTHS = ("JAN", "FEB", "MAR")
Make = Callable[[int], Any]

# name of the column → cells by row, what is found (a kind, or why it is left out), a typed cell by
# row (None: as it stands; of a date its first part), what a note says
COLUMNS: dict[str, tuple[Make, str, Make | None, str]] = {
    "whole": (
        lambda n: str(n * 7 % 60),
        "numeric",
        lambda n: n * 7 % 60,
        "different value in each row",
    ),
    "stored as text": (lambda n: f"{n % 9 / 8}", "numeric", lambda n: n % 9 / 8, ""),
    "milligrams": (
        lambda n: f"{n % 9} mg",
        "numeric",
        lambda n: n % 9,
        "60 cells read as numbers: '0 mg' as 0",
    ),
    "areas": (lambda n: f"{n % 9} m²", "numeric", lambda n: n % 9, "'0 m²' as 0"),
    "some kilograms": (
        lambda n: f"{n % 9} kg" if n % 3 else n % 9,
        "numeric",
        lambda n: n % 9,
        "20 cells without",
    ),
    "percent": (lambda n: f"{n % 9 / 4} %", "numeric", lambda n: n % 9 / 4, "'0.0 %' as 0"),
    "price": (lambda n: f"€ {n % 9},50", "numeric", lambda n: n % 9 + 0.5, "'€ 0,50' as 0.5"),
    "francs": (
        lambda n: f"CHF {n % 9 + 1}'250.50",
        "numeric",
        lambda n: (n % 9 + 1) * 1000 + 250.5,
        "60 cells",
    ),
    "decimal commas": (lambda n: f"{n % 9},5", "numeric", lambda n: n % 9 + 0.5, "60 cells read"),
    "thousands": (
        lambda n: f"1,{n % 9:03d}",
        "numeric",
        lambda n: 1000 + n % 9,
        "if not, say decimal",
    ),
    "bounds": (
        lambda n: f"<{n % 9}" if n % 5 == 0 else n % 9,
        "numeric",
        lambda n: n % 9,
        "12 cells read",
    ),
    "dots": (
        lambda n: "." if n % 4 else n,
        "numeric",
        lambda n: np.nan if n % 4 else n,
        "'.' counts as missing",
    ),
    "errors": (
        lambda n: "#DIV/0!" if n % 9 == 0 else n % 9,
        "numeric",
        None,
        "counts as missing in errors (7)",
    ),
    "an odd word": (
        lambda n: "lost" if n % 3 else n,
        "numeric",
        lambda n: np.nan if n % 3 else n,
        "'lost' (40)",
    ),
    "a slip": (
        lambda n: "3,4" if n == 9 else f"{n}.7",
        "numeric",
        lambda n: np.nan if n == 9 else n + 0.7,
        "'3,4'",
    ),
    "span": (lambda n: pd.Timedelta(days=n % 9), "numeric", lambda n: n % 9 * 86400, ""),
    "mixed objects": (
        lambda n: n % 9 / 2 if n < 45 else str(n % 9 / 2),
        "numeric",
        lambda n: n % 9 / 2,
        "",
    ),
    "points": (
        lambda n: "1.583" if n % 2 else str(900 + n),
        "numeric",
        None,
        "'1.583' is read as 1.583, beside whole",
    ),
    "points and gaps": (
        lambda n: ["1.583", f"{900 + n}", "NA"][n % 3],
        "numeric",
        None,
        "'1.583' is read as 1.583",
    ),
    "Total": (lambda n: "Total" if n == 59 else n * 7 % 61, "numeric", None, "'Total' (1)"),
    "visit_number": (lambda n: n % 30, "numeric", None, ""),
    "age": (lambda n: n * 7 % 97, "numeric", lambda n: n * 7 % 97, "different value in each row"),
    "two units": (
        lambda n: f"{n} mg" if n % 2 else f"{n} g",
        "several units",
        None,
        "'g' (30 cells) and 'mg' (30",
    ),
    "three currencies": (
        lambda n: f"{['$', '€', '£'][n % 3]}{n}.50",
        "several units",
        None,
        "Convert them",
    ),
    "strengths": (
        lambda n: ["500 mg", "1 g", "250 mg"][n % 3],
        "categorical",
        None,
        "40 of its 60 values are numbers",
    ),
    "one unit": (
        lambda n: f"{n % 9} {['kg', 'Kg', 'KG'][n % 3]}",
        "numeric",
        lambda n: n % 9,
        "'1 Kg' as 1",
    ),
    "accounts": (
        lambda n: f"({n % 9}.25)" if n % 3 else f"{n % 9}.25",
        "numeric",
        None,
        "'(1.25)' as -1.25",
    ),
    "SAP": (
        lambda n: f"{n % 9},25-" if n % 3 else f"{n % 9},25",
        "numeric",
        None,
        "'1,25-' as -1.25",
    ),
    "in brackets": (lambda n: f"({n % 3 + 1})", "categorical", None, ""),
    # ---- numbers of several parts
    "stay": (
        lambda n: f"{n}:{n * 7 % 60:02d}",
        "numeric",
        lambda n: n * 3600 + n * 7 % 60 * 60,
        "is read in seconds",
    ),
    "one long stay": (
        lambda n: f"{26 if n == 9 else n % 5}:30",
        "numeric",
        lambda n: (26 if n == 9 else n % 5) * 3600 + 1800,
        "in seconds",
    ),
    "pandas' spans": (
        lambda n: str(pd.Timedelta(minutes=n * 99 - 99)),
        "numeric",
        lambda n: n * 5940 - 5940,
        "seconds",
    ),
    "ISO spans": (
        lambda n: f"P{n % 5}DT{n % 24}H",
        "numeric",
        lambda n: n % 5 * 86400 + n % 24 * 3600,
        "seconds",
    ),
    "hours in words": (
        lambda n: f"{n % 30}h {n % 60}m",
        "numeric",
        lambda n: n % 30 * 3600 + n % 60 * 60,
        "seconds",
    ),
    "height": (
        lambda n: f"{5 + n % 2}'{n % 12}\"",
        "numeric",
        lambda n: (5 + n % 2) * 12 + n % 12,
        "read in inches",
    ),
    "latitude": (
        lambda n: f"{n}.5{'NS'[n % 2]}",
        "numeric",
        lambda n: (n + 0.5) * (1 - n % 2 * 2),
        "below zero in the",
    ),
    "turnover": (
        lambda n: ["$1.5K", "$900K", "$2M"][n % 3],
        "numeric",
        lambda n: [1500, 9e5, 2e6][n % 3],
        "a million",
    ),
    "wards": (lambda n: f"{n % 9}{'WE'[n % 2]}", "categorical", None, ""),
    "sizes": (lambda n: f"{n % 9}{'KM'[n % 2]}", "categorical", None, ""),
    # ---- what may mean that there is no value is asked
    "-9": (lambda n: [-9, 3, 4, 5.5, 6][n % 5], "numeric", None, f"-9 (12 cells) {NO_VALUE}"),
    "99": (lambda n: 99 if n % 7 == 0 else n % 10, "numeric", None, f"99 (9 cells) {NO_VALUE}"),
    "-999": (
        lambda n: -999 if n % 5 == 0 else n % 10,
        "numeric",
        None,
        f"-999 (12 cells) {NO_VALUE}",
    ),
    "-1": (lambda n: -1 if n == 5 else 20 + n % 30, "numeric", None, NO_VALUE),
    "-1 to 3": (lambda n: n % 5 - 1, "numeric", None, ""),
    "up to 999": (lambda n: 980 + n % 20, "numeric", None, ""),
    "98 and 99": (
        lambda n: [98, 99][n % 2] if n % 7 == 0 else n % 12 + 1,
        "numeric",
        None,
        f"99 (4 cells) {NO_VALUE}",
    ),
    "-77, -88": (
        lambda n: [-77, -88][n % 2] if n % 7 == 0 else n % 6,
        "numeric",
        None,
        f"-77 (5 cells) {NO_VALUE}",
    ),
    "-8 and -9": (
        lambda n: [-8, -9][n % 2] if n % 7 == 0 else n % 40,
        "numeric",
        None,
        f"and -8 (5 cells) {NO_VALUE}",
    ),
    "income, -1": (
        lambda n: [-1, -2][n % 2] if n % 7 == 0 else n * 50,
        "numeric",
        None,
        f"-1 (5 cells) {NO_VALUE}",
    ),
    "scale": (lambda n: 9 if n % 7 == 0 else n % 5 + 1, "numeric", None, f"9 (9 cells) {NO_VALUE}"),
    "refused": (
        lambda n: 7 + n % 3 if n % 7 == 0 else n % 5 + 1,
        "numeric",
        None,
        f"9 (3 cells) {NO_VALUE}",
    ),
    "half glucose": (
        lambda n: 0 if n % 2 == 0 else 90 + n % 40,
        "numeric",
        None,
        f"0 (30 cells) {NO_VALUE}",
    ),
    "glucose": (
        lambda n: 0 if n % 9 == 0 else 90 + n % 40,
        "numeric",
        None,
        f"0 (7 cells) {NO_VALUE}",
    ),
    "a slip of 100": (
        lambda n: 11012 if n == 9 else 20 + n % 50,
        "numeric",
        None,
        "1 cell is over 8 standard",
    ),
    "children": (lambda n: 9 if n == 3 else min(n % 7, n % 11), "numeric", None, ""),
    "celsius": (lambda n: n % 31 - 9, "numeric", None, ""),
    "cigarettes": (lambda n: 0 if n % 9 == 0 else 5 + n % 35, "numeric", None, ""),
    "ten places": (lambda n: n % 10, "numeric", None, ""),
    "1900": (
        lambda n: f"2020-0{n % 9 + 1}-11" if n % 7 else "1900-01-01",
        "date",
        None,
        f"(9 cells) {NO_VALUE}",
    ),
    "20240101": (lambda n: 20240101 + n % 28, "numeric", None, "looks like a date"),
    "marks of two ways": (
        lambda n: ["5.249", "4,207"][n % 2],
        "numeric",
        lambda n: [5.249, 4207][n % 2],
        "'4,207'",
    ),
    "1.2k": (lambda n: [f"1.{n % 9}k", "894"][n % 2], "numeric", None, "If 'k' means a thousand"),
    "lakhs": (
        lambda n: f"1,23,{100 + n % 9}",
        "numeric",
        lambda n: 123_100 + n % 9,
        "60 cells read",
    ),
    # ---- levels are never lost
    "a rare level": (lambda n: "2. Black" if n == 7 else "1. White", "categorical", None, ""),
    "several words": (
        lambda n: ["1. Never Married", "2. Married", "3. Widowed"][n % 3],
        "categorical",
        None,
        "",
    ),
    "ranges": (lambda n: ["<=20", "20-50", ">50"][n % 3], "categorical", None, ""),
    "two bounds": (lambda n: ["<20", ">=20"][n % 2], "categorical", None, ""),
    "one bound": (lambda n: ["<20 %", "20 %", ">20 %"][n % 3], "categorical", None, ""),
    "beyond float64": (lambda n: 2**60 + n % 3, "categorical", lambda n: str(2**60 + n % 3), ""),
    "numbered": (lambda n: ["1 White", "2 Black"][n % 2], "categorical", None, ""),
    "one number": (
        lambda n: "4 mg" if n % 9 else "not done",
        "categorical",
        None,
        "is treated as text, though 53 of",
    ),
    "few numbers": (
        lambda n: f"{n}" if n < 12 else ["negative", "positive"][n % 2],
        "categorical",
        None,
        "",
    ),
    "boats": (
        lambda n: f"{n % 17}" if n % 9 else ["C", "D"][n % 2],
        "categorical",
        None,
        "'C' (4), 'D' (3) are",
    ),
    "ICD-9": (lambda n: ["008.45", "038.9", "428.0"][n % 3], "categorical", None, ""),
    "mixed decimals": (
        lambda n: ["250.00", "401.9", "428.0"][n % 3],
        "numeric",
        None,
        "may be a code",
    ),
    "dx_code": (lambda n: ["250.1", "401.9", "428.5"][n % 3], "numeric", None, "may be a code"),
    "two decimals": (lambda n: f"{n % 30 / 7:.2f}", "numeric", None, ""),
    "as programs": (lambda n: str(n % 30 / 8), "numeric", None, ""),
    "post code": (lambda n: f"0{n % 9}123", "categorical", None, ""),
    "long codes": (lambda n: f"990000000000000000000{n % 5:05d}", "categorical", None, ""),
    "letters": (lambda n: ["1a", "3c", "2b", "7d"][n % 4], "categorical", None, ""),
    "unseen letters": (
        lambda n: UNSEEN[n % 3],
        "categorical",
        lambda n: ["a", "a", "b c"][n % 3],
        "20 cells with",
    ),
    "nearly unique JSON": (
        lambda n: json.dumps({"dose": min(n, 55)}),
        "categorical",
        None,
        "56 different texts in 60",
    ),
    "signs": (lambda n: "+-"[n % 2], "categorical", None, ""),
    "yes or nothing": (lambda n: None if n % 3 else "yes", "categorical", None, "and 40 gaps"),
    "spellings": (
        lambda n: ["m", "f", "M "][n % 3],
        "categorical",
        lambda n: "mfm"[n % 3],
        "'m' = 'M'",
    ),
    "pressure": (
        lambda n: f"{100 + n % 55}/{60 + n % 55}",
        "categorical",
        None,
        "55 different texts in 60",
    ),
    # ---- yes or no, dates
    "ja oder nein": (lambda n: ["Ja", "nein", "Ja "][n % 3], "boolean", lambda n: n % 3 != 1, ""),
    "y, n, 1, 0": (lambda n: "Yn10"[n % 4], "boolean", lambda n: n % 2 == 0, ""),
    "bool": (lambda n: n % 2 == 0, "boolean", None, ""),
    "day": (lambda n: f"2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}", "date", lambda n: n % 12 + 1, ""),
    "month or day": (
        lambda n: f"0{n % 9 + 1}/0{n % 7 + 1}/2024",
        "date",
        lambda n: n % 9 + 1,
        "is read as month/day",
    ),
    "day first": (lambda n: f"{n % 28 + 1}/0{n % 7 + 1}/2024", "date", lambda n: n % 7 + 1, ""),
    "short year": (lambda n: f"11.0{n % 7 + 1}.24", "date", lambda n: n % 7 + 1, ""),
    "US Excel": (
        lambda n: f"{n % 12 + 1}/{n % 28 + 1}/96 {n % 24}:38",
        "date",
        lambda n: n % 12 + 1,
        "",
    ),
    "noon": (
        lambda n: f"{n % 12 + 1}:30 {'AP'[n % 2]}M",
        "date",
        lambda n: (n + 1) % 12 + n % 2 * 12 + 0.5,
        "",
    ),
    "months": (
        lambda n: f"{['May', 'June'][n % 2]} 20{n % 9 + 10}",
        "date",
        lambda n: n % 9 + 2010,
        "",
    ),
    "US noon": (
        lambda n: f"{n % 12 + 1}/{n % 28 + 1}/1996 {n % 12 + 1}:38 PM",
        "date",
        lambda n: n % 12 + 1,
        "",
    ),
    "US or not": (
        lambda n: f"{n % 12 + 1}/{n % 12 + 1}/19 0{n % 9}:07:00",
        "date",
        None,
        "read as month/day",
    ),
    "German Excel": (
        lambda n: f"{n % 28 + 1}.{n % 12 + 1:02d}.19 0{n % 9}:15",
        "date",
        lambda n: n % 12 + 1,
        "",
    ),
    "with letters": (
        lambda n: f"{n % 28 + 1}-Feb-{10 + n % 9} 14:38",
        "date",
        lambda n: 2010 + n % 9,
        "",
    ),
    "SAS": (lambda n: f"{n % 28 + 1:02d}{MONTHS[n % 3]}2020", "date", lambda n: n % 3 + 1, ""),
    "SAS times": (
        lambda n: f"{n % 28 + 1:02d}{MONTHS[n % 3]}20:14:38:{n:02d}",
        "date",
        lambda n: n % 3 + 1,
        "",
    ),
    "month and year": (
        lambda n: f"{MONTHS[n % 3].title()}-{10 + n % 9}",
        "date",
        lambda n: 2010 + n % 9,
        "",
    ),
    "born": (lambda n: f"11.0{n % 7 + 1}.{64 + n % 9}", "date", None, "years have two digits"),
    "clock": (lambda n: f"{n % 24:02d}:30", "date", lambda n: n % 24 + 0.5, ""),
    "moment": (lambda n: pd.Timestamp(2020 + n, 1, 1), "date", lambda n: 2020 + n, ""),
    "offset": (
        lambda n: f"2024-01-{n % 28 + 1:02d} 23:00+02:00",
        "date",
        lambda n: n % 28 % 7,
        "of Greenwich",
    ),
    "zone": (
        lambda n: pd.Timestamp(2020 + n, 7, 1, tz="Europe/Rome"),
        "date",
        lambda n: 2020 + n,
        "of Greenwich",
    ),
    "a wrong day": (
        lambda n: "2020-13-45" if n == 7 else f"{2001 + n}-01-1{n % 7}",
        "date",
        None,
        "'2020-13-45' (1)",
    ),
    "several formats": (
        lambda n: [f"2024-01-0{n % 8 + 1}", f"{n % 9}.1.24"][n % 2],
        "categorical",
        None,
        "format",
    ),
    "stamps": (lambda n: ["20240131T101010", "20240201T111111"][n % 2], "categorical", None, ""),
    # ---- what is left out
    "row": (lambda n: n + 7, "identifier", None, "an identifier"),
    "pid": (lambda n: 10_000 + n * 7919 % 4001, "identifier", None, "identifier"),
    "Patient ID": (lambda n: f"{10_000 + n * 7919 % 4001}", "identifier", None, "identifier"),
    "caseNo": (lambda n: 10_000 + n * 7919 % 4001, "identifier", None, ""),
    "phone": (
        lambda n: "lost" if n == 4 else f"{1000 + n * 7919 % 4001}",
        "identifier",
        None,
        "'lost' (1)",
    ),
    "person_id": (lambda n: 1000 + n // 2, "identifier", None, "split: {group: person_id}"),
    "code": (lambda n: str(uuid.UUID(int=n * 2**90 + 7)), "identifier", None, ""),
    "26 digits": (lambda n: f"990000000000000000000{n:05d}", "identifier", None, ""),
    "case_no": (lambda n: f"{2020 + n % 5}/{n + 1}", "identifier", None, "such as '2020/1'"),
    "file": (lambda n: f"{2020 + n % 5}/{n:04}", "identifier", None, "such as '2020/0000'"),
    "all formats": (
        lambda n: [f"{2000 + n}-01-31", f"1.1.{2000 + n}"][n % 2],
        "unread dates",
        None,
        "no one format",
    ),
    "SSN": (lambda n: f"123-{n:02d}-{6789 + n}", "identifier", None, ""),
    "remark": (lambda n: f"patient {n} felt rather well today", "free text", None, ""),
    "site": (lambda n: "Bern", "constant", None, "the single value 'Bern'"),
    "nothing": (lambda n: None, "empty", None, ""),
    "list": (lambda n: [n, 1], "nested values", None, ""),
    "raw": (lambda n: bytes([n]), "binary values", None, ""),
    "before pandas": (
        lambda n: np.datetime64("0700-01-01", "s") + np.timedelta64(n, "D"),
        "date",
        None,
        "",
    ),
    "decimals": (lambda n: decimal.Decimal(n % 9) / 4, "numeric", lambda n: n % 9 / 4, ""),
    "times": (lambda n: datetime.time(n % 24, n), "date", lambda n: n % 24 + n / 60, ""),
    "complex": (lambda n: complex(n, 1), "complex numbers", None, ""),
}


def made(name: str, rows: range = range(ROWS)) -> pd.DataFrame:
    return pd.DataFrame({name: [COLUMNS[name][0](n) for n in rows]})


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


NUMBERS = st.lists(
    st.integers(-(10**9), 10**9).map(lambda n: n / 100), min_size=3, max_size=30, unique=True
)
MARKS = [(".", ","), (".", ""), (",", "."), (",", ""), (",", " "), (".", "\u202f"), (".", "'")]


@settings(max_examples=30, deadline=None)
@given(
    NUMBERS,
    st.sampled_from(MARKS),
    st.sampled_from(["{}", "{} mg", "{}%", "€ {}", "{} €", "${}", "CHF {}"]),
)
def test_numbers_of_one_notation_are_read_back(
    numbers: list[float], marks: tuple[str, str], form: str
) -> None:
    def written(number: float) -> str:
        text = f"{abs(number):,.2f}".replace(",", "T").replace(".", marks[0]).replace("T", marks[1])
        return ("-" if number < 0 else "") + form.format(text)

    raw = pd.DataFrame({"x": map(written, numbers)})
    assert Schema.find(raw, {"x": "numeric"})[1]["x"].tolist() == numbers


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.dates(datetime.date(1930, 1, 1), datetime.date(2030, 12, 31)),
        min_size=2,
        max_size=30,
        unique=True,
    ),
    st.sampled_from(
        [
            "%Y-%m-%d",
            "%d.%m.%Y",
            "%Y/%m/%d",
            "%d %b %Y",
            "%B %d, %Y",
            "%Y-%m-%d %H:%M",
            "%d.%m.%Y %H:%M",
        ]
    ),
)
def test_dates_of_one_format_are_read_back(days: list[datetime.date], form: str) -> None:
    schema, typed, _ = Schema.find(
        raw := pd.DataFrame({"x": [day.strftime(form) for day in days]}), {"x": "date"}
    )
    assert schema.columns["x"].times(raw["x"]).dt.date.tolist() == days
    if "x.weekday" in typed:
        assert typed["x.weekday"].tolist() == [day.weekday() for day in days]
    elapsed = [(day - datetime.date(1970, 1, 1)).days for day in days]
    assert typed["x.elapsed"].tolist() == elapsed


LANGUAGES = {
    "{day}. {month} {year}": "Januar Februar März April Mai Juni Juli August September Oktober "
    "November Dezember",
    "{day}-{month}-{year}": "Jan Feb Mrz Apr Mai Jun Jul Aug Sep Okt Nov Dez",
    "{day} {month} {year}": "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
    "{day} de {month} de {year}": (
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
    ),
    "{day}/{month}/{year}": "ene feb mar abr may jun jul ago sep oct nov dic",
}


@pytest.mark.parametrize("form", LANGUAGES)
def test_months_of_other_languages_are_read(form: str) -> None:
    """Also in a file of one new row."""
    days = [datetime.date(2000 + n % 20, n % 12 + 1, n % 28 + 1) for n in range(60)]
    names = LANGUAGES[form].split()
    texts = [form.format(day=own.day, month=names[own.month - 1], year=own.year) for own in days]
    schema, typed, _ = Schema.find(pd.DataFrame({"x": texts}))
    assert schema.columns["x"].kind == "date"
    again = Schema.of(schema.to_dict())
    assert again.columns["x"].times(pd.Series(texts, name="x")).dt.date.tolist() == days
    row, _ = again.apply(pd.DataFrame({"x": texts[4:5]}), "here")
    assert row.iloc[0].tolist() == typed.iloc[4].tolist()


TEXTS: dict[str, float | None] = {
    "−5": -5.0,
    "–5": -5.0,
    "<0.3": 0.3,
    "≥ 90": 90.0,
    "+7": 7.0,
    "$-3": -3.0,
    "-$3": -3.0,
    ".5": 0.5,
    "5.": 5.0,
    "1e-3": 0.001,
    "-1.5e-07": -1.5e-7,
    "1.5E+300": 1.5e300,
    "1 234 567": 1234567.0,
    **dict.fromkeys(
        [
            "12mg",
            "1-2",
            "1/2",
            "2024-01-01",
            "1.2.3",
            "12 34",
            "1,23,4",
            "e5",
            "--5",
            "(5",
            "1e",
            "x",
            "",
        ]
    ),
    **dict.fromkeys(["5 6", "0x1A", "12:30", "5. $"]),
}


def test_single_texts_and_what_is_said_of_their_marks() -> None:
    read = Notation(thousands=",", unit="$").read([*TEXTS])
    assert (
        dict(zip(TEXTS, [None if np.isnan(own) else own for own in read.tolist()], strict=True))
        == TEXTS
    )
    marks: list[dict[str, Any]] = [
        {"decimal": ","},
        {"decimal": ",", "thousands": "."},
        {"thousands": "."},
    ]
    for options in marks:
        typed = Schema.find(
            pd.DataFrame({"x": ["1,25", "1.250"], "y": ["1.250", "7"]}),
            options=ReadOptions(**options),
        )[1]
        assert typed.to_dict("list") == {"x": [1.25, 1250.0], "y": [1250.0, 7.0]}


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


def test_no_advice_deletes_levels() -> None:
    """A text with a digit may be a level; only of a mere word it is asked whether it means that
    there is no value."""
    for text, asked in (("5 or more", False), ("3b", False), ("many", True)):
        (note,) = Schema.find(pd.DataFrame({"x": ["1", "2", "3", text] * 15}))[2]
        assert (
            f"{text!r} (15) are not" in note and ("write missing: {x: ['many']}" in note) == asked
        )


def test_words_for_a_missing_value() -> None:
    raw = pd.DataFrame(
        {
            "a": ["NA", "1", "3", "unknown"] * 15,
            "b": ["x", "y", "?", "z"] * 15,
            "c": [-999, 4, 6, 5] * 15,
        }
    )
    _, _, notes = Schema.find(raw)
    assert {"'NA' counts as missing in a (15)", "'unknown' counts as missing in a (15)"} <= set(
        notes
    )
    _, typed, notes = Schema.find(
        raw, options=ReadOptions(missing={"c": [-999], "*": ["Unknown", "x"]})
    )
    assert typed["c"].isna().sum() == 15 and typed["b"].isna().sum() == 30
    assert not any(NO_VALUE in note for note in notes)
    days = pd.DataFrame(
        {"seen": [*pd.date_range("2024-01-01", periods=30), *[pd.Timestamp("1970-01-01")] * 3]}
    )
    assert any(NO_VALUE in note for note in Schema.find(days)[2])
    for types in ({}, {"seen": "date"}):
        _, typed, notes = Schema.find(
            days, types, options=ReadOptions(missing={"seen": ["never", "1970-01-01"]})
        )
        assert typed["seen.weekday"].isna().sum() == 3 and not any(
            NO_VALUE in note for note in notes
        )
    commas = pd.DataFrame({"dose": ["-9,0", "-9", "3,5", "4,25"] * 10})
    assert (
        Schema.find(commas, options=ReadOptions(missing={"dose": [-9]}))[1]["dose"].isna().sum()
        == 20
    )


def test_dates_of_summer_and_winter_are_read() -> None:
    at = [
        f"{day:02d}.0{month}.2024 10:00 +0{zone}00"
        for month, zone in ((1, 1), (7, 2))
        for day in range(1, 29)
    ]
    assert set(Schema.find(pd.DataFrame({"at": at}))[1]["at.hour"]) == {9.0, 8.0}  # of Greenwich


@pytest.mark.parametrize(
    ("form", "cells"),
    [
        ("excel", ["43831", "43832.5", None]),
        ("unix", [1577836800, 1577966400, None]),
        ("unix_ms", ["1577836800000", "1577966400000.0", "?"]),
    ],
)
def test_days_may_be_numbers(form: str, cells: list[Any]) -> None:
    raw = pd.DataFrame({"seen": cells})
    schema, typed, _ = Schema.find(raw, {"seen": {"date": form}})
    days = typed["seen.elapsed"].to_numpy()
    assert np.array_equal(days, [18262, 18263.5, np.nan], equal_nan=True)
    again, _ = Schema.of(schema.to_dict()).apply(raw, "north")
    assert again.equals(typed)


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
