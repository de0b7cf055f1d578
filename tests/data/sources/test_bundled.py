"""Bundled: scikit-learn's tables, unchanged; how they are split is tested with heart's."""

from __future__ import annotations

import numpy as np
from sklearn import datasets

from fedlit.data.sources import Bundled


def test_features_and_labels_are_scikit_learns() -> None:
    cancer, iris = Bundled(clients=["breast_cancer", "iris"]).tables(seed=3)
    for table, bunch in ((cancer, datasets.load_breast_cancer()), (iris, datasets.load_iris())):
        np.testing.assert_array_equal(table.features.to_numpy(), bunch.data)
        assert table.target.tolist() == [bunch.target_names[label] for label in bunch.target]
    assert (cancer.positive, iris.positive) == ("malignant", None)
    assert (cancer.target == cancer.positive).sum() == 212
