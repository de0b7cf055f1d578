"""Words and numbers that mean that there is no value."""

import pandas as pd
from raw_columns import NO_VALUE

from fedlit.data.reading import ReadOptions
from fedlit.data.schema.schema import Schema


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
