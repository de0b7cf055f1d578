"""Targets as people write them."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fedlit.data.labels import Labels, read_target
from fedlit.errors import DataError


def read(values: list[Any], task: str | None = None, **rest: Any) -> Labels:
    return read_target("north", pd.Series(values, name="y"), task, **rest)


def test_spellings_are_one_class_and_said() -> None:
    made = read(["yes", "Yes", "yes ", "no", "NO", "yes"] * 5, positive="no")
    assert made.target.tolist() == ["yes", "yes", "yes", "no", "no", "yes"] * 5
    assert made.notes == ("north: y: spellings that are one class: 'yes' = 'Yes', 'no' = 'NO'",)
    assert made.positive == "no"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["0", "1", "1.0"], [0, 1, 1]),
        (["1.0", "2.0", "2"], [1, 2, 2]),
        ([0.0, 1.0, 1.0], [0, 1, 1]),
        (["True", "FALSE", "true"], [True, False, True]),
        (pd.array([1, 2, 2], dtype="Int64").tolist(), [1, 2, 2]),
        (["none", "unknown", "-"], ["none", "unknown", "-"]),  # words that may be classes
    ],
)
def test_labels_of_text_are_what_they_say(values: list[Any], expected: list[Any]) -> None:
    assert read(values).target.tolist() == expected
    assert [type(label) for label in read(values).target.tolist()] == [type(label) for label in expected]


def test_rows_without_a_label() -> None:
    values = ["a", None, "b", "?", "", "a", "NA", "n/a"]
    with pytest.raises(
        DataError,
        match=r"client 'north', target 'y': expected a label in every row, found 5 rows without one of 8. .* drop",
    ):
        read(values)
    made = read(values, unlabelled="drop")
    assert made.target.to_dict() == {0: "a", 2: "b", 5: "a"}
    assert "north: 5 of 8 rows have no label in y and were left out" in made.notes
    with pytest.raises(DataError, match="expected labels, found none"):
        read([None, "?"], unlabelled="drop")


def test_numbers_to_predict() -> None:
    made = read(["€ 1,200.50", "€ 7", "(3)"], "regression")
    assert made.target.tolist() == [1200.5, 7.0, -3.0]
    assert any("read as numbers" in note for note in made.notes)
    with pytest.raises(DataError, match=r"expected class labels, found numbers such as 1\.5"):
        read(["1.5", "2"])


def test_what_is_noted_and_asked() -> None:
    assert any("1 row of 'b' for 200 of 'a'" in note for note in read(["a"] * 400 + ["b"] * 2).notes)
    assert any("15 different whole numbers are taken for classes" in note for note in read([*range(15)] * 4).notes)
    assert any("AUROC and AUPRC are of 'right'" in note for note in read(["left", "right"] * 9).notes)
    assert read([0, 1] * 9).notes == ()


def test_the_positive_label_as_yaml_says_it() -> None:
    assert read(["no", "yes"] * 3, positive=True).positive == "yes"
    assert read(["no", "yes"] * 3, positive="NO").positive == "no"
    assert read([0, 1] * 3, positive="0").positive == 0
    with pytest.raises(DataError, match="positive: expected one of 'no', 'yes', found 'maybe'"):
        read(["no", "yes"] * 3, positive="maybe")


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, b"x"])
def test_no_labels(value: Any) -> None:
    with pytest.raises(
        DataError, match=r"client 'north', target 'y': expected labels or numbers, found (list|dict|bytes) values"
    ):
        read([value] * 4)


def test_codes_are_not_merged_and_words_are_asked_about() -> None:
    assert read(["010", "10"] * 5).target.tolist() == ["010", "10"] * 5
    assert read([str(2**53), str(2**53 + 1)] * 3).target.nunique() == 2
    assert any("'unknown' (5): a class, or no label?" in note for note in read(["ill", "well", "unknown"] * 5).notes)
    with pytest.raises(DataError, match=r"expected class labels, found numbers such as 0\.5"):
        read([f"{n},5" for n in range(20)])


def test_words_and_numbers_that_stand_for_no_label() -> None:
    made = read([1.5, -999.0, 2.5], "regression", unlabelled="drop", missing={"y": (-999.0,)})
    assert made.target.tolist() == [1.5, 2.5]
    made = read(["ill", "pending", "well"], unlabelled="drop", missing={"y": ("pending",)})
    assert made.target.tolist() == ["ill", "well"]
