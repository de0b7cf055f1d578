"""Targets as people write them."""

from typing import Any

import pandas as pd
import pytest

from fedlit.data.labels import Labels, read_target, unread
from fedlit.data.reading import ReadOptions
from fedlit.data.settings import ClientSettings
from fedlit.errors import DataError
from fedlit.tasks import TASKS


def read(values: Any, task: str | None = None, **rest: Any) -> Labels:
    target: str | tuple[str, ...] = "y"
    if isinstance(values, pd.DataFrame):
        rows = values
        target = tuple(map(str, rows))
    else:
        rows = pd.DataFrame({"y": values})
    settings = ClientSettings("north", target, task, asks_for_task=task is None, **rest)
    return read_target(settings, rows)


def missing(word: Any) -> dict[str, Any]:
    return {"unlabelled": "drop", "options": ReadOptions(missing={"y": [word]})}


# name → cells, settings, the labels that come of them, what a note says
TARGETS: dict[str, tuple[Any, dict[str, Any], list[Any], str]] = {
    "spellings": (["yes", "Yes", "yes ", "no", "NO", "yes"], {}, ["yes"] * 3 + ["no"] * 2 + ["yes"], "= "
        "'Yes'"),
    "unseen letters": (["a", "a\u200b", "b"], {}, ["a", "a", "b"], "1 cell with invisible"),
    "whole": (["0", "1", "1.0"], {}, [0, 1, 1], ""),
    "not 0": (["1.0", "2.0", "2"], {}, [1, 2, 2], ""),
    "floats": ([0.0, 1.0, 1.0], {}, [0, 1, 1], ""),
    "truth": (["True", "FALSE", "true"], {}, [True, False, True], ""),
    "nullable": (pd.array([1, 2, None], dtype="Int64"), {"unlabelled": "drop"}, [1, 2], "1 of 3 "
        "rows have no label"),
    "nullable truth": (pd.array([True, None, False], "boolean"), {"unlabelled": "drop"}, [True, False], "no "
        "label"),
    "words": (["none", "unknown", "-"], {}, ["none", "unknown", "-"], "a class, or no label?"),
    "bounds": (["<5", ">=5"], {}, ["<5", ">=5"], "AUROC and AUPRC are those of '>=5'"),
    "gaps": (["a", None, "b", "?", "", "a", "NA"], {"unlabelled": "drop"}, ["a", "b", "a"], "4 of "
        "7 rows"),
    "codes": (["010", "10"], {}, ["010", "10"], ""),
    "long codes": ([str(2**53), str(2**53 + 1)], {}, [str(2**53), str(2**53 + 1)], ""),
    "many numbers": ([*range(15)], {}, [*range(15)], "15 different whole numbers"),
    "money": (["€ 1,200.50", "€ 7", "€ -3"], {"task": "regression"}, [1200.5, 7.0, -3.0], "read as "
        "numbers"),
    "thousands": (["1.583", "950"], {"task": "regression"}, [1.583, 950.0], "If it is a thousand, "
        "write thousands"),
    "no number": ([1.5, -9.0], {"task": "counts", **missing(-9.0)}, [1.5], "no label"),
    "no number, in text": (["-9,0", "1,5"], {"task": "regression", **missing(-9.0)}, [1.5], "no "
        "label"),
    "no class, in text": (["-9.00", "1", "2"], missing(-9.0), [1, 2], "no label"),
    "no value": ([22.9, 71.2, -999.0], {"task": "regression"}, [22.9, 71.2, -999.0], "mean that "
        "there is no"),
    "no class": ([0, 1, 0, 1, 9], {}, [0, 1, 0, 1, 9], "mean that there is no"),
    "pending": (["ill", "pending"], missing("pending"), ["ill"], "no label"),
    "several": (
        pd.DataFrame({"a": ["yes", "Yes", None], "b": [0, None, None]}), {"unlabelled": "drop"},
        [("yes", 0), ("yes", None)], "'yes' = 'Yes'",
    ),
    "several numbers, all needed": (
        pd.DataFrame({"days": ["31,5", "", "8,0", None], "died": [0, 1, None, None]}),
        {"task": "claims.Claims", "unlabelled": "drop"}, [(31.5, 0)], "3 of 4 rows have no label in days, died",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_what_they_say(name: str) -> None:
    cells, given, expected, said = TARGETS[name]
    made = read(cells, **given)
    assert made.target.tolist() == expected
    assert [type(label) for label in made.target.tolist()] == [type(label) for label in expected]
    assert made.labelled.sum() == len(expected) and any(said in note for note in ("", *made.notes))
    assert all(note.kind and note.startswith("north: ") for note in made.notes)


@pytest.mark.parametrize(
    ("cells", "given", "message"),
    [
        (
            ["a", None, "b", "?", ""],
            {},
            "expected a label in every row, found 3 rows without one of 5. .* drop",
        ),
        ([None, "?"], {"unlabelled": "drop"}, "expected labels, found none"),
        (["1.5", "2"], {}, r"expected class labels, found numbers such as 1\.5 in row 0"),
        ([f"{n},5" for n in range(20)], {}, r"expected class labels, found numbers such as 0\.5"),
        ([[1, 2]] * 4, {}, "expected labels or numbers, found nested values"),
        ([b"x"] * 4, {}, "expected labels or numbers, found binary values"),
        (
            ["no", "yes"],
            {"positive": "maybe"},
            "positive: expected one of 'no', 'yes', found 'maybe'",
        ),
    ],
)
def test_what_is_no_target_is_refused(
    cells: list[Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=f"client 'north', target 'y': {message}"):
        read(cells, **given)


def test_the_positive_label_as_yaml_says_it() -> None:
    assert read(["no", "yes"] * 3, positive=True).positive == "yes"
    assert read(["no", "yes"] * 3, positive="NO").positive == "no"
    assert read([0, 1] * 3, positive="0").positive == 0
    assert read([0, 1] * 9).notes == ()


@pytest.mark.parametrize(
    ("cells", "task", "bad"),
    [
        (["1", None, "0", "", "1"], None, ["row 1", "row 3"]),
        (
            ["1.5", "2.5", "7.25.1", "9", "about 3"] + ["4.5"] * 5,
            "regression",
            ["'7.25.1' in row 2", "'about 3' in row 4"],
        ),
        (["1", "0", "1.5", "1"], None, ["1.5 in row 2"]),
    ],
)
def test_an_error_names_the_bad_cells_of_a_target(
    cells: list[Any], task: str | None, bad: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        read(cells, task)
    assert all(cell in str(caught.value) for cell in bad)


@pytest.mark.parametrize(("task", "bad"), [("regression", "inf"), ("counts", "-2")])
def test_a_task_names_the_bad_numbers_of_a_target(task: str, bad: str) -> None:
    with pytest.raises(DataError, match=rf"{bad} in row 7, {bad} in row 9"):
        TASKS[task].facts(
            pd.Series([1.0, float(bad), 2.0, float(bad)], index=[5, 7, 8, 9], name="y"),
            {"name": task},
        )


def test_mostly_numbers_name_what_are_none() -> None:
    assert (
        unread(pd.Series([*map(str, range(40)), "15.656.158.0", "", "n/a"]))
        == "'15.656.158.0' in row 40"
    )
    assert unread(pd.Series(["a", "b", "1"])) == ""
