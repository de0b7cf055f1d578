"""Takes the arrays out of fitted scikit-learn models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedlit.outcomes.models import Fitted, OneEach
from fedlit.outcomes.periods import OnPeriods
from fedlit.score.array_models import TREES
from fedlit.types import Arrays, State


def as_arrays(model: Fitted, times: Sequence[float] = ()) -> tuple[State, Arrays]:
    """Return a fitted model as plain data and arrays.

    Args:
        model: extra trees or a forest; a pipeline that ends in a linear model; a dummy; a
            curve for all rows; or one of these for each label, or for person-periods.
        times: the times at which curves are predicted. A curve is written at these alone, because
            its steps are times of rows.

    Returns:
        What :func:`from_arrays` reads.

    Raises:
        TypeError: any other model.
    """
    if isinstance(model, OneEach):
        states = []
        arrays_of_all: Arrays = {}
        for label, (state, arrays) in enumerate(map(as_arrays, model.fitted)):
            states.append(state)
            arrays_of_all |= {f"{label}.{name}": array for name, array in arrays.items()}
        return {"kind": "one each", "models": states}, arrays_of_all
    if isinstance(model, OnPeriods):
        state, arrays = as_arrays(model.model)
        inner = {f"of_periods.{name}": array for name, array in arrays.items()}
        whole = {"kind": "periods", "indicators": model.indicators, "model": state}
        return whole, {"ends": model.ends, **inner}
    classes: Arrays = {}
    if hasattr(model, "classes_"):
        classes["classes"] = np.asarray(model.classes_).astype(np.int64)
    estimators = getattr(model, "estimators_", None)
    if estimators is not None and hasattr(estimators[0], "tree_"):
        return {"kind": "trees"}, classes | _forest([tree.tree_ for tree in estimators])
    steps = getattr(model, "steps", None)
    if steps is not None:
        state, arrays = _pipeline([step for _, step in steps])
        return state, classes | arrays
    if type(model).__name__.startswith("Dummy"):  # a tree that is one leaf
        row = np.zeros((1, 1))
        one = np.zeros(1, np.int32)
        if hasattr(model, "predict_proba"):
            value = model.predict_proba(row)
        else:
            value = model.predict(row).reshape(1, -1)
        leaf = {"left": one - 1, "right": one - 1, "values": np.asarray(value, float)}
        return {"kind": "trees"}, classes | dict.fromkeys(TREES, one) | leaf
    curve = getattr(model, "curve_", None)
    if curve is not None:
        ends = np.asarray(times, np.float64)
        return {"kind": "curve"}, {"times": ends, "left": curve.at(ends)}
    raise TypeError(type(model).__name__)


class _Tree(Protocol):
    """A fitted tree of scikit-learn, which has further arrays of its nodes."""

    node_count: int


def _forest(trees: Sequence[_Tree]) -> Arrays:
    sizes = [tree.node_count for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(tree, name) for tree in trees])

    leaf = joined("children_left") < 0
    values, leaf_values = np.unique(joined("value")[leaf, 0], axis=0, return_inverse=True)
    feature = joined("feature")
    feature[leaf] = leaf_values.reshape(-1)
    roots_of_nodes = np.repeat(roots, sizes)
    left = np.where(leaf, -1, joined("children_left") + roots_of_nodes)
    right = np.where(leaf, -1, joined("children_right") + roots_of_nodes)
    return {
        "roots": roots.astype(np.int32),
        "left": left.astype(np.int32),
        "right": right.astype(np.int32),
        "feature": feature.astype(np.int32),
        "threshold": _not_above(joined("threshold")),
        "values": np.ascontiguousarray(values, np.float64),
    }


def _not_above(threshold: np.ndarray) -> np.ndarray:
    """Return the largest float32 that is not above each float64 threshold."""
    near = threshold.astype(np.float32)
    below = np.nextafter(near, np.float32(-np.inf))
    return np.where(near > threshold, below, near).astype(np.float32)


_LINEAR_MODELS = ("LogisticRegression", "Ridge", "PoissonRegressor")


def _pipeline(steps: Sequence[Any]) -> tuple[State, Arrays]:
    """Return the state and arrays of a linear model, and of the scikit-learn steps before it: the
    columns of categories, if any, and the scaler.
    """
    *before, model = steps
    kind = type(model).__name__
    scaled = 1 <= len(before) <= 2 and type(before[-1]).__name__ == "StandardScaler"
    if kind not in _LINEAR_MODELS or not scaled:
        raise TypeError(kind)
    arrays: Arrays = {}
    columns: list[int] = []
    if len(before) == 2:
        _, encoder, categorical = before[0].transformers_[0]
        columns = [*map(int, categorical)]
        for position, labels in enumerate(encoder.categories_):
            arrays[f"known.{position}"] = np.asarray(labels, np.float64)
    arrays["mean"] = before[-1].mean_
    arrays["scale"] = before[-1].scale_
    arrays["coefficients"] = np.ascontiguousarray(model.coef_)
    arrays["intercept"] = np.atleast_1d(model.intercept_)
    exponential = kind == "PoissonRegressor"
    return {"kind": "linear", "exponential": exponential, "categorical": columns}, arrays
