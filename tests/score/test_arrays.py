"""Models as arrays predict what scikit-learn's predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlit.outcomes import Outcome
from fedlit.score.arrays import ArrayFunction, as_arrays, from_arrays
from fedlit.tasks.go_alone import CLASSIFIERS, COUNTERS, LABELLERS, REGRESSORS, GoAlone

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(300, 4)), RNG.integers(-1, 5, 300)]).astype(np.float32)
CLASSES = (X[:, 0] + (X[:, 4] == 2) + 0.3 * RNG.normal(size=300) > 0.5).astype(int) + (X[:, 1] > 1)
LABELS = np.column_stack([np.where(X[:, 0] > 0, 1.0, 0.0), np.where(X[:, 1] > 3, 1.0, np.nan), np.zeros(300)])


def copied(model: Any) -> Any:
    state, arrays = as_arrays(model)
    return from_arrays(state, arrays, X.shape[1])


@pytest.mark.parametrize("settings", [{"n_estimators": 20}, {"n_estimators": 5, "min_samples_leaf": 3}])
def test_trees_are_equal_to_the_bit(settings: dict[str, Any]) -> None:
    model = CLASSIFIERS["extra_trees"].make(settings, [4], seed=1).fit(X, CLASSES)
    new = RNG.normal(size=(2000, 5)).astype(np.float32)
    np.testing.assert_array_equal(copied(model).predict_proba(new), model.predict_proba(new))
    number = REGRESSORS["extra_trees"].make(settings, [4], seed=1).fit(X, X[:, 0] * X[:, 1])
    np.testing.assert_array_equal(copied(number).predict(new), number.predict(new))
    # rows that lie exactly on thresholds, and next to them
    tree = model.estimators_[0].tree_
    edges = np.tile(tree.threshold[tree.children_left >= 0].astype(np.float32)[:, None], (1, 5))
    for rows in (edges, np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))):
        np.testing.assert_array_equal(copied(model).predict_proba(rows), model.predict_proba(rows))


@pytest.mark.parametrize("categories", ["codes", "one_hot"])
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (CLASSIFIERS["logistic_regression"], CLASSES),
        (CLASSIFIERS["logistic_regression"], CLASSES > 0),
        (REGRESSORS["ridge"], X[:, 0] * 3 + X[:, 1]),
        (COUNTERS["poisson_regression"], np.round(np.exp(X[:, 0]))),
    ],
)
def test_linear_models_are_equal(model: GoAlone, y: np.ndarray, categories: str) -> None:
    fitted = model.make({"categories": categories}, [4]).fit(X, y)
    new = np.vstack([X[:50], [[0, 0, 0, 0, 99]]]).astype(np.float32)  # a category that training did not have
    way = "predict_proba" if y.dtype.kind in "ib" else "predict"
    np.testing.assert_allclose(getattr(copied(fitted), way)(new), getattr(fitted, way)(new), rtol=1e-12, atol=1e-7)


@pytest.mark.parametrize("name", ["extra_trees", "logistic_regression"])
def test_a_model_for_each_label(name: str) -> None:
    settings = {"n_estimators": 5} if name == "extra_trees" else {}
    fitted = LABELLERS[name].make(settings, [4]).fit(X, LABELS)
    np.testing.assert_allclose(copied(fitted).predict_proba(X), fitted.predict_proba(X), rtol=1e-12, atol=2e-7)


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="HistGradientBoosting"):
        as_arrays(CLASSIFIERS["gradient_boosting"].make({"max_iter": 2}, []).fit(X, CLASSES))


@pytest.mark.parametrize("name", ["left", "roots", "feature"])
def test_trees_that_go_nowhere_are_refused(name: str) -> None:
    state, arrays = as_arrays(CLASSIFIERS["extra_trees"].make({"n_estimators": 2}, []).fit(X, CLASSES))
    for wrong in (10**6, 0 if name == "left" else -(10**6)):
        broken = {**arrays, name: np.full_like(arrays[name], wrong)}
        with pytest.raises(ValueError, match="expected"):
            from_arrays(state, broken, X.shape[1])


def test_a_class_that_a_fold_has_not_seen_has_no_probability() -> None:
    outcome, y = Outcome("classification", ("a", "b", "c")), np.where(CLASSES > 0, 2, 0)
    for name in ("extra_trees", "logistic_regression"):
        fitted = CLASSIFIERS[name].make({"n_estimators": 5} if name == "extra_trees" else {}, [4]).fit(X, y)
        found = ArrayFunction(*as_arrays(fitted), outcome, X.shape[1])(X)
        np.testing.assert_allclose(found[:, [0, 2]], fitted.predict_proba(X), atol=1e-6)
        assert not found[:, 1].any()
