"""Rows into folds: complete, stratified, a function of its arguments, and said where it cannot be."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fedlit.data.folds import check_folds, fold_of
from fedlit.errors import ConfigError, DataError


def spread(folds: np.ndarray, n: int) -> int:
    """How many rows the fullest fold has more than the emptiest."""
    counts = np.bincount(folds, minlength=n)
    return int(counts.max() - counts.min())


@pytest.mark.parametrize("n", [2, 5, 8])
def test_each_fold_has_its_share_of_every_class(n: int) -> None:
    y = np.random.default_rng(0).choice(4, size=403, p=[0.6, 0.3, 0.08, 0.02])
    folds = fold_of(y, n, 8, "a")
    assert sorted(set(folds.tolist())) == list(range(n)) and spread(folds, n) <= 4
    assert all(spread(folds[y == own], n) <= 1 for own in range(4))


def test_of_numbers_each_fold_has_its_share_of_each_tenth() -> None:
    y = np.random.default_rng(0).lognormal(size=500)
    folds = fold_of(y, 5, 8, "a")
    tenth = np.argsort(np.argsort(y)) // 50
    assert all(spread(folds[tenth == own], 5) <= 1 for own in range(10))


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


def test_of_several_labels_each_combination_is_shared_out_also_where_some_are_not_known() -> None:
    y = np.repeat([[0.0, 1.0], [1.0, np.nan], [1.0, 1.0]], 20, axis=0)
    folds = fold_of(y, 4, 8, "a")
    assert all(spread(folds[start : start + 20], 4) == 0 for start in (0, 20, 40))


@pytest.mark.parametrize("found", [1, -2, True, 2.5, "4"])
def test_a_number_of_folds_that_cannot_be_meant_is_refused(found: object) -> None:
    with pytest.raises(ConfigError, match="folds: expected 2 folds or more, 0 for none, found"):
        check_folds(found)


def test_fewer_rows_or_groups_than_folds_are_refused_with_the_client() -> None:
    with pytest.raises(DataError, match=r"client 'a': expected 4 training and validation rows or more.*found 3"):
        fold_of(np.zeros(3, int), 4, 8, "a")
    with pytest.raises(DataError, match=r"client 'a': expected 4 .*groups of rows.*found 2"):
        fold_of(np.zeros(9, int), 4, 8, "a", np.arange(9) % 2)
