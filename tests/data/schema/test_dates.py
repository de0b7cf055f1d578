"""Dates of many formats and languages are read back."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.data.schema.schema import Schema


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
