"""Bundled: scikit-learn's tables, unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import datasets
from sklearn.model_selection import train_test_split

from fedlit.data.sources import Bundled


@pytest.mark.parametrize("name", ["breast_cancer", "iris"])
def test_features_labels_and_splits_are_scikit_learns(name: str) -> None:
    (table,) = Bundled(clients=[name]).tables(seed=3)
    bunch = getattr(datasets, f"load_{name}")()
    np.testing.assert_array_equal(table.features.to_numpy(), bunch.data)
    assert table.target.tolist() == [bunch.target_names[label] for label in bunch.target]
    rest, test = train_test_split(range(len(bunch.data)), test_size=0.25, random_state=3)
    train, validation = train_test_split(rest, test_size=0.2, random_state=3)
    found = {split: rows.tolist() for split, rows in table.splits.items()}
    assert found == {"train": train, "validation": validation, "test": test}


def test_malignant_is_the_positive_class() -> None:
    cancer, wine, _ = Bundled().tables(seed=0)
    assert cancer.positive == "malignant"
    assert (cancer.target == cancer.positive).sum() == 212
    assert wine.positive is None
