"""Splits and folds: each class, group and time where it belongs; every row of a table is held out
once."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.draws import two_parts
from fedlit.data.folds import check_fold, fold_of
from fedlit.data.module import FederatedData
from fedlit.data.sources import Bundled, Tables
from fedlit.data.splitting import ClientSplit, check_split, random_split, split_rows
from fedlit.errors import ConfigError, DataError


def split(
    target: Sequence[Any],
    how: str = "",
    by: Sequence[Any] | None = None,
    classes: bool = True,
    seed: int = 3,
) -> tuple[Any, Any]:
    column = None if by is None else pd.Series(by, name="by")
    made, notes = split_rows(
        "north",
        ClientSplit(how, "by", 0.2, 0.25),
        pd.Series(target, name="y"),
        column,
        seed,
        classes,
    )
    everything = np.concatenate(list(made.values()))
    assert sorted(everything.tolist()) == [*range(len(target))]  # each row once
    return made, notes


def test_each_class_is_dealt_alike() -> None:
    target = ["a"] * 100 + ["b"] * 50 + ["c"] * 10
    made, notes = split(target)
    labels = np.array(target)
    assert {
        part: {c: int((labels[rows] == c).sum()) for c in "abc"} for part, rows in made.items()
    } == {
        "train": {"a": 60, "b": 30, "c": 6},
        "validation": {"a": 20, "b": 10, "c": 2},
        "test": {"a": 20, "b": 10, "c": 2},
    }
    assert notes == []


def test_a_class_that_cannot_be_everywhere_is_trained_on() -> None:
    made, notes = split(["a"] * 50 + ["b"] * 48 + ["c"] * 2)
    assert {98, 99} <= set(made["train"].tolist())
    (note,) = notes
    assert (
        note.startswith("north: ") and "never scored: 'c' (2)" in note and note.kind == "rare class"
    )
    # three rows, but scikit-learn cannot deal them to each split
    made, notes = split(["a"] * 50 + ["b"] * 3)
    assert sum(len(rows) for rows in made.values()) == 53


FORMS: dict[str, Any] = {
    "number": int,
    "day": lambda n: f"{n % 28 + 1:02d}.{n // 28 + 1:02d}.2024",
    "moment": lambda n: pd.Timestamp(2024, 1, 1) + pd.Timedelta(days=n),
}


@pytest.mark.parametrize("form", FORMS)
def test_later_rows_are_for_test_and_one_time_is_on_one_side(form: str) -> None:
    times = np.random.default_rng(0).integers(0, 60, 200)
    made, notes = split([n % 2 for n in range(200)], "time", [FORMS[form](int(t)) for t in times])
    assert times[made["train"]].max() < times[made["validation"]].min()
    assert times[made["validation"]].max() < times[made["test"]].min()
    assert 30 < len(made["test"]) < 50 and "test rows at" in notes[0]


@pytest.mark.parametrize(
    ("how", "by", "message"),
    [
        (
            "group",
            ["one"] * 20,
            "client 'north', column 'by': expected groups enough for three splits, found 1",
        ),
        ("group", [None, *range(19)], "expected a group in each row, found 1 rows without one"),
        ("time", [7] * 20, "found 1 different"),
        ("time", ["x"] * 20, "expected dates or numbers"),
        ("time", [None, *range(19)], "1 rows without"),
        (
            "column",
            ["train", "x"] * 10,
            "expected train, validation or test in each row, found 10 others: 'x'",
        ),
    ],
)
def test_columns_that_cannot_split(how: str, by: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split([0, 1] * 10, how, by)


def test_a_column_that_says_it() -> None:
    words = ["train", "Val", "test ", "TRAIN", "test"] * 10
    made, _ = split([0, 1] * 25, "column", words)
    assert made["validation"].tolist() == [*range(1, 50, 5)]
    assert made["train"].tolist() == sorted([*range(0, 50, 5), *range(3, 50, 5)])


def test_what_cannot_split_is_refused() -> None:
    for wrong in ("stratifed", {"group": 3}, {"group": "a", "time": "b"}, 3):
        with pytest.raises(
            ConfigError, match=r"split: expected stratified, random, \{group: COLUMN\}"
        ):
            check_split(wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"^client 'a': 2 rows cannot be split .*Give more rows"):
        random_split(2, 0, 0.2, 0.25, "a")


@pytest.mark.parametrize(("rows", "test"), [(199, 66), (200, 100), (310, 103)])
def test_rows_that_are_held_out_at_least(rows: int, test: int) -> None:
    assert len(random_split(rows, 0, 0.33, 0.1, least=100)["test"]) == test


# ------------------------------------------------------------------ folds


def spread(folds: np.ndarray, n: int) -> int:
    """How many rows the fullest fold has more than the emptiest."""
    counts = np.bincount(folds, minlength=n)
    return int(counts.max() - counts.min())


@pytest.mark.parametrize("n", [2, 8])
def test_each_fold_has_its_share_of_classes_and_numbers(n: int) -> None:
    y = np.random.default_rng(0).choice(4, size=403, p=[0.6, 0.3, 0.08, 0.02])
    folds = fold_of(y, n, 8, "a")
    assert sorted(set(folds.tolist())) == list(range(n)) and spread(folds, n) <= 4
    assert all(spread(folds[y == own], n) <= 1 for own in range(4))
    numbers = np.random.default_rng(0).lognormal(size=400)
    folds = fold_of(numbers, n, 8, "a")
    tenth = np.argsort(np.argsort(numbers)) // 40
    assert all(spread(folds[tenth == own], n) <= 1 for own in range(10))
    assert (folds != fold_of(numbers, n, 9, "a")).any() and (
        folds != fold_of(numbers, n, 8, "b")
    ).any()
    # several a row, some not known
    labels = np.repeat([[0.0, 1.0], [1.0, np.nan], [1.0, 1.0]], 24, axis=0)
    folds = fold_of(labels, n, 8, "a")
    assert all(spread(folds[start : start + 24], n) == 0 for start in (0, 24, 48))


def test_a_class_rarer_than_folds_is_in_one_fold_a_row() -> None:
    y = np.array([0] * 40 + [1] * 3 + [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folds = fold_of(y, 8, 8, "a")
        assert len(set(fold_of(np.arange(10), 8, 8, "a").tolist())) == 8  # every class is that rare
    assert len(set(folds[40:43].tolist())) == 3


def test_folds_that_are_refused() -> None:
    for found in (1, -2, True, "4"):
        with pytest.raises(ConfigError, match="folds: expected 2 folds or more, 0 for none, found"):
            check_fold(found, 0)  # type: ignore[arg-type]
    for folds, fold in ((1, 0), (4, 4), (0, 1)):
        with pytest.raises(ConfigError, match=r"data\.fold.*expected .* found"):
            made(fold, folds)
    with pytest.raises(
        DataError, match=r"client 'a': expected 4 training and validation rows or more.*found 3"
    ):
        fold_of(np.zeros(3, int), 4, 8, "a")
    with pytest.raises(DataError, match=r"client 'a': expected 4 .*groups of rows.*found 2"):
        fold_of(np.zeros(9, int), 4, 8, "a", np.arange(9) % 2)


def made(fold: int, folds: int = 4, source: Any = None, **changes: Any) -> FederatedData:
    source = source or Bundled(clients=["wine", "breast_cancer"])
    data = FederatedData(source, batches=4, folds=folds, fold=fold, seed=8, **changes)
    data.setup()
    return data


def test_each_row_is_held_out_once_and_learnt_from_by_all_others() -> None:
    whole = made(0, 0)
    parts = [made(fold) for fold in range(4)]
    for place, client in enumerate(whole.clients):
        name = client.spec.name
        both = client.train.merged(client.sites[name]["validation"])
        expected = fold_of(both.y.numpy(), 4, 8, name)
        for fold, part in enumerate(parts):
            own = part.clients[place]
            held = own.sites[name]["validation"]
            np.testing.assert_array_equal(held.row, both.row[expected == fold])
            np.testing.assert_array_equal(own.train.row, both.row[expected != fold])
            np.testing.assert_array_equal(
                own.sites[name]["test"].row, client.sites[name]["test"].row
            )


def test_rows_of_a_group_are_on_one_side_of_every_split(tmp_path: Path) -> None:
    people = np.arange(120) // 3
    frame = pd.DataFrame({"x": np.arange(120) * 7 % 50 / 4, "person": people, "y": [0, 1] * 60})
    frame.to_csv(tmp_path / "north.csv", index=False)
    source = Tables({"north": str(tmp_path / "north.csv")}, "y", split={"group": "person"})
    held = []
    for fold in range(4):
        (client,) = made(fold, source=source).clients
        train, validation, test = (people[rows.row] for rows in client.sites["north"].values())
        assert (
            not {*train} & {*validation} and not {*train} & {*test} and not {*validation} & {*test}
        )
        held += [
            *client.sites["north"]["validation"].row,
            *(client.sites["north"]["test"].row if fold == 0 else ()),
        ]
        groups = client.groups_of(client.train)
        assert groups is not None and groups.tolist() == [
            str(own) for own in people[client.train.row]
        ]
    assert sorted(held) == [*range(120)]


@pytest.mark.parametrize("seed", [0, 3])
def test_rows_are_drawn_as_scikit_learn_draws_them(seed: int) -> None:
    from sklearn.model_selection import train_test_split

    generator = np.random.default_rng(seed)
    drawn = 0
    for case in range(200):
        rows = int(generator.integers(2, 90))
        labels = generator.integers(0, int(generator.integers(1, 7)), rows) ** 2
        second = [0.1, 0.33, 0.5, int(generator.integers(1, 20))][case % 4]
        stratify = labels if case % 3 else None
        try:
            expected = train_test_split(
                np.arange(rows), test_size=second, random_state=seed, stratify=stratify
            )
        except ValueError:
            with pytest.raises(ValueError, match="row"):
                two_parts(rows, second, seed, stratify)
            continue
        drawn += 1
        for part, expected_part in zip(
            two_parts(rows, second, seed, stratify), expected, strict=True
        ):
            np.testing.assert_array_equal(part, expected_part)
    assert drawn > 100
