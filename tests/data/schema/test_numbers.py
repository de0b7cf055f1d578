"""Numbers and dates as people write them: what is written with a format is read back."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.data.schema.dates import expand, find_format, parse_dates
from fedlit.data.schema.missing import suspects
from fedlit.data.schema.numbers import Notation, find_notation, parse

NUMBERS = st.lists(st.integers(-(10**9), 10**9).map(lambda n: n / 100), min_size=3, max_size=30, unique=True)


def written(number: float, decimal: str, thousands: str, form: str) -> str:
    text = f"{abs(number):,.2f}".replace(",", "T").replace(".", decimal).replace("T", thousands)
    return form.format(text) if number >= 0 else "-" + form.format(text)


@settings(max_examples=60, deadline=None)
@given(
    NUMBERS,
    st.sampled_from([(".", ","), (".", ""), (",", "."), (",", ""), (",", " "), (".", "\u202f"), (".", "'")]),
    st.sampled_from(["{}", "{} mg", "{}%", "€ {}", "{} €", "${}", "CHF {}"]),
)
def test_a_column_of_one_notation_is_read_back(numbers: list[float], marks: tuple[str, str], form: str) -> None:
    texts = [written(number, *marks, form) for number in numbers]
    notation, _ = find_notation(texts)
    assert parse(pd.Series(texts), notation).values.tolist() == numbers


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_what_python_writes_is_read_as_python_reads_it(numbers: list[float]) -> None:
    found = parse(pd.Series([repr(number) for number in numbers]), Notation())
    assert found.values.tolist() == numbers
    assert not found.failed and not found.ways


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *zip(("−5", "–5", "(1,234.5)", "<0.3", "≥ 90", "+7"), (-5.0, -5.0, -1234.5, 0.3, 90.0, 7.0), strict=True),
        *zip(("$-3", "-$3", ".5", "5.", "1e-3", "1 234 567"), (-3.0, -3.0, 0.5, 5.0, 0.001, 1234567.0), strict=True),
        *((text, None) for text in ("12mg", "1-2", "1/2", "2024-01-01", "1.2.3", "12 34", "1,23,4", "e5", "--5", "(5")),
        *((text, None) for text in ("1e", "x", "", "5 6", "0x1A", "12:30")),
    ],
)
def test_single_texts(text: str, value: float | None) -> None:
    found = Notation(thousands=",", unit="$").parse(text)
    assert (None if found is None else found[0]) == value


@pytest.mark.parametrize(
    ("texts", "decimal", "thousands", "asked"),
    [
        (["1,234", "999"], ".", ",", True),  # 1.234 or 1234: a guess, which is said
        (["1,234", "0,5"], ",", "", False),
        (["1.234,5", "7"], ",", ".", False),
        (["1,234.5", "7"], ".", ",", False),
        (["1.234.567", "7"], ",", ".", False),
        (["1.234", "7"], ".", "", False),
        (["0,123"], ",", "", False),
    ],
)
def test_decimal_mark_or_thousands(texts: list[str], decimal: str, thousands: str, asked: bool) -> None:
    notation, guess = find_notation(texts)
    assert (notation.decimal, notation.thousands, bool(guess)) == (decimal, thousands, asked)


def test_what_is_said_goes_before_what_is_found() -> None:
    assert find_notation(["1,234"], decimal=",")[0].parse("1,234") == (1.234, "with a decimal comma")
    assert find_notation(["1.234"], decimal=",", thousands=".")[0].parse("1.234") == (
        1234.0,
        "with '.' between thousands",
    )


DAYS = st.lists(st.dates(datetime.date(1930, 1, 1), datetime.date(2030, 12, 31)), min_size=2, max_size=30, unique=True)


@settings(max_examples=40, deadline=None)
@given(
    DAYS,
    st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%Y/%m/%d", "%d %b %Y", "%B %d, %Y", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M"]),
)
def test_dates_of_one_format_are_read_back(days: list[datetime.date], form: str) -> None:
    texts = [day.strftime(form) for day in days]
    found, guess = find_format(texts)
    assert found is not None and not guess
    assert parse_dates(pd.Series(texts), found).dt.date.tolist() == days


def test_days_and_months_that_could_be_either_are_asked_about() -> None:
    assert find_format(["13/02/2024", "01/02/2024"]) == ("%d/%m/%Y", "")
    assert find_format(["02/13/2024", "01/02/2024"]) == ("%m/%d/%Y", "")
    form, guess = find_format(["03/02/2024", "01/02/2024"])
    assert form == "%m/%d/%Y" and "%d/%m/%Y" in guess


def test_parts_of_a_date_against_pythons() -> None:
    times = pd.Series(pd.to_datetime(["2024-02-29 13:30", None, "1969-12-31 00:00"]), name="seen")
    made, moment = expand(times), datetime.datetime(2024, 2, 29, 13, 30)
    elapsed = (moment - datetime.datetime(1970, 1, 1)).total_seconds() / 86400
    assert made.iloc[0].tolist() == pytest.approx([2024, 2, moment.weekday(), 13.5, elapsed])
    assert made.iloc[1].isna().all()
    assert made.iloc[2].tolist() == [1969, 12, 2, 0, -1]


def test_suspects_are_few() -> None:
    rng = np.random.default_rng(0)
    age = rng.integers(18, 95, 300).astype(float)
    assert suspects(np.append(age, [999.0, 999.0])) == [999.0]
    assert suspects(np.append(age, [-9.0, 999.0])) in ([999.0], [999.0, -9.0], [-9.0, 999.0])
    assert suspects(np.append(age, -1.0)) == [-1.0]
    for honest in (
        age,
        rng.normal(size=300),
        rng.integers(0, 1000, 3000).astype(float),
        np.arange(100.0),
        np.array([-1.0, 0.0, 1.0]),
    ):
        assert suspects(honest) == []
