"""Splits: each class, group and time where it belongs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedlit.data.splitting import check_split, random_split, same_rows, split_rows
from fedlit.errors import ConfigError, DataError


def split(
    target: list[object], how: object = None, by: list[object] | None = None, classes: bool = True, seed: int = 3
):  # type: ignore[no-untyped-def]
    column = None if by is None else pd.Series(by, name="by")
    made, notes = split_rows("north", how, pd.Series(target, name="y"), column, seed, 0.2, 0.25, classes)  # type: ignore[arg-type]
    everything = np.concatenate(list(made.values()))
    assert sorted(everything.tolist()) == [*range(len(target))]  # each row once
    return made, notes


def test_each_class_is_dealt_alike() -> None:
    target = ["a"] * 100 + ["b"] * 50 + ["c"] * 10
    made, notes = split(target)
    labels = np.array(target)
    assert {part: {c: int((labels[rows] == c).sum()) for c in "abc"} for part, rows in made.items()} == {
        "train": {"a": 60, "b": 30, "c": 6},
        "validation": {"a": 20, "b": 10, "c": 2},
        "test": {"a": 20, "b": 10, "c": 2},
    }
    assert notes == []


def test_a_class_that_cannot_be_everywhere_is_trained_on_and_said() -> None:
    made, notes = split(["a"] * 50 + ["b"] * 48 + ["c"] * 2)
    assert {98, 99} <= set(made["train"].tolist())
    (note,) = notes
    assert note.startswith("north: ") and "never scored: 'c' (2)" in note and note.kind == "rare class"
    made, notes = split(["a"] * 50 + ["b"] * 3)  # three rows, but scikit-learn cannot deal them to each split
    assert sum(len(rows) for rows in made.values()) == 53


def test_groups_are_never_parted() -> None:
    groups = [f"p{n // 4}" for n in range(120)]
    made, _ = split([n % 2 for n in range(120)], {"group": "by"}, groups)
    owners = [{groups[row] for row in rows} for rows in made.values()]
    assert not owners[0] & owners[1] and not owners[0] & owners[2] and not owners[1] & owners[2]
    assert all(owners)


FORMS = {
    "number": int,
    "day": lambda n: f"{n % 28 + 1:02d}.{n // 28 + 1:02d}.2024",
    "moment": lambda n: pd.Timestamp(2024, 1, 1) + pd.Timedelta(days=n),
}


@pytest.mark.parametrize("form", FORMS)
def test_later_rows_are_for_test_and_one_time_is_on_one_side(form: str) -> None:
    times = np.random.default_rng(0).integers(0, 60, 200)
    made, notes = split([n % 2 for n in range(200)], {"time": "by"}, [FORMS[form](int(t)) for t in times])
    assert times[made["train"]].max() < times[made["validation"]].min()
    assert times[made["validation"]].max() < times[made["test"]].min()
    assert 30 < len(made["test"]) < 50 and "test rows at" in notes[0]


@pytest.mark.parametrize(
    ("how", "by", "message"),
    [
        ("group", ["one"] * 20, "client 'north', column 'by': expected groups enough for three splits, found 1"),
        ("group", [None, *range(19)], "expected a group in each row, found 1 rows without one"),
        ("time", [7] * 20, "found 1 different"),
        ("time", ["x"] * 20, "expected dates or numbers"),
        ("time", [None, *range(19)], "1 rows without"),
        ("column", ["train", "x"] * 10, "expected train, validation or test in each row, found 10 others such as 'x'"),
    ],
)
def test_columns_that_cannot_split(how: str, by: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split([0, 1] * 10, {how: "by"}, by)


def test_a_column_that_says_it() -> None:
    words = ["train", "Val", "test ", "training", "holdout"] * 10
    made, _ = split([0, 1] * 25, {"column": "by"}, words)  # type: ignore[arg-type]
    assert made["validation"].tolist() == [*range(1, 50, 5)]
    assert made["train"].tolist() == sorted([*range(0, 50, 5), *range(3, 50, 5)])


@pytest.mark.parametrize("wrong", ["stratifed", {"group": 3}, {"group": "a", "time": "b"}, 3])
def test_settings_that_mean_nothing(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"split: expected stratified, random, \{group: COLUMN\}"):
        check_split(wrong)  # type: ignore[arg-type]


def test_same_rows_are_counted() -> None:
    features = pd.DataFrame({"x": [1.0, 2.0, 1.0, 3.0, 1.0], "s": ["a", "b", "a", "c", "a"]})
    target = pd.Series([0, 1, 0, 1, 1])
    splits = {"train": np.array([0, 1]), "validation": np.array([3, 4]), "test": np.array([2])}
    assert same_rows(features, target, splits) == (1, 1)  # row 2 is row 0; row 4 has another label


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(DataError, match=r"^client 'a': 2 rows cannot be split .*Give more rows"):
        random_split(2, 0, 0.2, 0.25, "a")


@pytest.mark.parametrize(("rows", "test"), [(199, 66), (200, 100), (310, 103)])
def test_rows_that_are_held_out_at_least(rows: int, test: int) -> None:
    assert len(random_split(rows, 0, 0.33, 0.1, least=100)["test"]) == test
