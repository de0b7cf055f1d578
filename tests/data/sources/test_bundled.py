"""Bundled: scikit-learn's tables, unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import datasets
from sklearn.model_selection import train_test_split

from fedlit.data.sources import Bundled
from fedlit.errors import ConfigError


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "digits", "iris"])
def test_features_labels_and_splits_are_scikit_learns(name: str) -> None:
    (table,) = Bundled(clients=[name]).tables(seed=3)
    bunch = getattr(datasets, f"load_{name}")()
    np.testing.assert_array_equal(table.features.to_numpy(), bunch.data)
    assert table.target.tolist() == [bunch.target_names[label] for label in bunch.target]
    rest, test = train_test_split(range(len(bunch.data)), test_size=0.25, random_state=3)
    train, validation = train_test_split(rest, test_size=0.2, random_state=3)
    found = {split: rows.tolist() for split, rows in table.splits.items()}
    assert found == {"train": train, "validation": validation, "test": test}


def test_default_clients_share_neither_columns_nor_classes() -> None:
    tables = Bundled().tables(seed=0)
    assert [table.name for table in tables] == ["breast_cancer", "wine", "digits"]
    columns = [column for table in tables for column in table.features.columns]
    classes = [label for table in tables for label in set(table.target)]
    assert len(columns) == len(set(columns)) == 30 + 13 + 64
    assert len(classes) == len(set(classes)) == 2 + 3 + 10


def test_malignant_is_the_positive_class() -> None:
    cancer, wine, _ = Bundled().tables(seed=0)
    assert cancer.positive == "malignant"
    assert (cancer.target == cancer.positive).sum() == 212
    assert wine.positive is None


def test_digits_are_numbers() -> None:
    (digits,) = Bundled(clients=["digits"]).tables(seed=0)
    assert digits.target.dtype.kind == "i"


def test_the_seed_draws_the_splits() -> None:
    first, again, other = (Bundled(clients=["wine"]).tables(seed)[0].splits["test"] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert sorted(first) != sorted(other)


def test_unknown_table() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'digits'"):
        Bundled(clients=["digit"])
