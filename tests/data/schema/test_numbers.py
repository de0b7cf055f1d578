"""Numbers as people write them are read back."""

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.data.reading import ReadOptions
from fedlit.data.schema.numbers import Notation
from fedlit.data.schema.schema import Schema

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
