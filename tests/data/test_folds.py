"""Folds: complete, stratified, groups in one, a function of their arguments; every row of a table is held out once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.folds import check_folds, fold_of, together
from fedlit.data.module import FederatedData
from fedlit.data.sources import Bundled, Tables
from fedlit.errors import ConfigError, DataError


def spread(folds: np.ndarray, n: int) -> int:
    """How many rows the fullest fold has more than the emptiest."""
    counts = np.bincount(folds, minlength=n)
    return int(counts.max() - counts.min())


@pytest.mark.parametrize("n", [2, 8])
def test_each_fold_has_its_share_of_every_class_tenth_of_numbers_and_combination(n: int) -> None:
    y = np.random.default_rng(0).choice(4, size=403, p=[0.6, 0.3, 0.08, 0.02])
    folds = fold_of(y, n, 8, "a")
    assert sorted(set(folds.tolist())) == list(range(n)) and spread(folds, n) <= 4
    assert all(spread(folds[y == own], n) <= 1 for own in range(4))
    numbers = np.random.default_rng(0).lognormal(size=400)
    folds, tenth = fold_of(numbers, n, 8, "a"), np.argsort(np.argsort(numbers)) // 40
    assert all(spread(folds[tenth == own], n) <= 1 for own in range(10))
    labels = np.repeat([[0.0, 1.0], [1.0, np.nan], [1.0, 1.0]], 24, axis=0)  # several a row, some not known
    folds = fold_of(labels, n, 8, "a")
    assert all(spread(folds[start : start + 24], n) == 0 for start in (0, 24, 48))


def test_folds_are_a_function_of_seed_and_client() -> None:
    y = np.arange(60) % 3
    first = fold_of(y, 4, 8, "a")
    assert (first == fold_of(y, 4, 8, "a")).all()
    assert (first != fold_of(y, 4, 9, "a")).any() and (first != fold_of(y, 4, 8, "b")).any()


def test_rows_of_a_group_stay_together() -> None:
    groups = np.random.default_rng(0).integers(0, 30, 300)
    folds = fold_of(groups % 2, 4, 8, "a", groups)
    assert all(len(set(folds[groups == own].tolist())) == 1 for own in set(groups.tolist()))


def test_a_class_rarer_than_folds_is_in_as_many_as_it_has_rows_without_a_warning() -> None:
    y = np.array([0] * 40 + [1] * 3 + [2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folds = fold_of(y, 8, 8, "a")
        assert len(set(fold_of(np.arange(10), 8, 8, "a").tolist())) == 8  # every class is that rare
    assert len(set(folds[40:43].tolist())) == 3


def test_what_is_refused() -> None:
    for found in (1, -2, True, "4"):
        with pytest.raises(ConfigError, match="folds: expected 2 folds or more, 0 for none, found"):
            check_folds(found)
    for folds, fold in ((1, 0), (4, 4), (0, 1)):
        with pytest.raises(ConfigError, match=r"data\.fold.*expected .* found"):
            made(fold, folds)
    with pytest.raises(DataError, match=r"client 'a': expected 4 training and validation rows or more.*found 3"):
        fold_of(np.zeros(3, int), 4, 8, "a")
    with pytest.raises(DataError, match=r"client 'a': expected 4 .*groups of rows.*found 2"):
        fold_of(np.zeros(9, int), 4, 8, "a", np.arange(9) % 2)


def made(fold: int, folds: int = 4, source: Any = None, **changes: Any) -> FederatedData:
    source = source or Bundled(clients=["wine", "breast_cancer"])
    data = FederatedData(source, batches=4, folds=folds, fold=fold, seed=8, **changes)
    data.setup()
    return data


def test_each_row_is_held_out_once_and_learnt_from_by_all_others() -> None:
    whole, parts = made(0, 0), [made(fold) for fold in range(4)]
    assert "dealt into 4 folds; fold 2" in parts[2].notes[0] and not any("folds" in note for note in whole.notes)
    for place, client in enumerate(whole.clients):
        name = client.spec.name
        both = together(client.train, client.sites[name]["validation"])
        expected = fold_of(both.y.numpy(), 4, 8, name)
        for fold, part in enumerate(parts):
            own = part.clients[place]
            held = own.sites[name]["validation"]
            np.testing.assert_array_equal(held.row, both.row[expected == fold])
            np.testing.assert_array_equal(own.train.row, both.row[expected != fold])
            np.testing.assert_array_equal(own.sites[name]["test"].row, client.sites[name]["test"].row)


def test_rows_of_a_group_are_in_one_fold_of_a_table_and_of_a_study(tmp_path: Path) -> None:
    people = [f"p{n // 3}" for n in range(120)]
    frame = pd.DataFrame(
        {"x": [n * 7 % 50 / 4 for n in range(120)], "person": people, "y": [n % 2 for n in range(120)]}
    )
    frame.to_csv(tmp_path / "north.csv", index=False)
    source = Tables({"north": str(tmp_path / "north.csv")}, "y", split={"group": "person"})
    held = []
    for fold in range(4):
        (client,) = made(fold, source=source).clients
        own = client.sites["north"]
        sides = [{people[row] for row in rows.row} for rows in own.values()]
        assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
        held += [*own["validation"].row]
        groups = client.groups_of(client.train)
        assert groups is not None and groups.tolist() == [people[row] for row in client.train.row]
    assert sorted(held) == sorted(row for row in range(120) if row not in own["test"].row)
