"""Folds of clients' tables: every row is held out once, and test rows never move."""

from __future__ import annotations

import numpy as np
import pytest

from fedlit.data.folds import fold_of, together
from fedlit.data.module import FederatedData
from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError, DataError


def made(fold: int, folds: int = 4, **changes: object) -> FederatedData:
    data = FederatedData(
        Bundled(clients=["wine", "breast_cancer"]), batches=4, folds=folds, fold=fold, seed=8, **changes
    )
    data.setup()
    return data


def test_each_row_is_held_out_once_and_learnt_from_by_all_others() -> None:
    whole, parts = made(0, 0), [made(fold) for fold in range(4)]
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


def test_pooled_rows_have_the_folds_that_clients_have() -> None:
    source = {"align": "both", "pool": True}
    data, apart = made(1, **source), made(1, align="both")
    assert sorted(data.clients[0].train.row) == sorted(np.concatenate([own.train.row for own in apart.clients]))


def test_the_plan_says_so() -> None:
    assert "dealt into 4 folds; fold 2" in made(2).notes[0]
    assert not any("folds" in note for note in made(0, 0).notes)


@pytest.mark.parametrize(("folds", "fold"), [(1, 0), (-2, 0), (4, 4), (4, -1), (0, 1)])
def test_a_fold_that_there_is_not_is_refused(folds: int, fold: int) -> None:
    with pytest.raises(ConfigError, match=r"data\.fold.*expected .* found"):
        made(fold, folds)


def test_more_folds_than_rows_are_refused_with_the_client() -> None:
    with pytest.raises(DataError, match="client 'wine': expected 200 training and validation rows"):
        made(0, 200)
