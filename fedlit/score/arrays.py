"""Stores fitted scikit-learn models as arrays: trees, linear models, and one of these for each
label. Pickles are neither written nor read. Predictions equal those of scikit-learn, to the bit if
scikit-learn's sums have a fixed order.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError, told_as
from fedlit.outcomes import OneEach, Outcome
from fedlit.score.plain import read_json, unfit, write_json

FILES = ("model.json", "model.npz")
Arrays = dict[str, np.ndarray]
_TREES = ("roots", "left", "right", "feature", "threshold", "values")
_LINEAR = ("mean", "scale", "coefficients", "intercept")


class ArrayFunction:
    """The predictions of a scikit-learn model that is stored as arrays, as a function of encoded
    rows.

    Args:
        state: the state of the model, as :func:`as_arrays` returns it.
        arrays: the arrays of the model, likewise.
        outcome: what the model predicts.
        inputs: the width of the encoded rows.

    Raises:
        ValueError, LookupError: they do not fit each other.
    """

    network = "arrays"

    def __init__(
        self, state: Mapping[str, Any], arrays: Arrays, outcome: Outcome, inputs: int
    ) -> None:
        self._state = state
        self._arrays = arrays
        self._outcome = outcome
        self._model = from_arrays(state, arrays, inputs)
        self(np.zeros((1, inputs), np.float32))

    def __call__(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """Return predictions (n, width) for rows (n, d) float32."""
        return self._outcome.of_model(self._model, x)

    def write(self, folder: Path) -> None:
        """Write :data:`FILES` to a folder."""
        content = BytesIO()
        np.savez(content, **self._arrays)  # type: ignore[arg-type]  # names are anybody's, and no options
        write_json(folder / FILES[0], self._state)
        (folder / FILES[1]).write_bytes(content.getvalue())

    @classmethod
    def read(cls, folder: Path, outcome: Outcome, inputs: int) -> ArrayFunction:
        """Read what :meth:`write` wrote.

        Raises:
            DataError: the files are not what :meth:`write` writes.
        """
        state = read_json(folder / FILES[0])
        with told_as(lambda error: unfit(folder / FILES[1], error)):
            with zipfile.ZipFile(folder / FILES[1]) as archive:
                if any(array.compress_type != zipfile.ZIP_STORED for array in archive.infolist()):
                    raise ValueError("compressed arrays")
            with np.load(folder / FILES[1], allow_pickle=False) as stored:
                arrays = dict(stored)
        for name, array in arrays.items():
            if array.dtype.kind not in "iuf" or np.isnan(array).any():
                raise DataError(
                    f"{folder / FILES[1]}: expected numbers in {name[:60]!r}, found {array.dtype}, "
                    "or some that are none"
                )
        with told_as(lambda error: unfit(folder / FILES[0], error)):
            return cls(state, arrays, outcome, inputs)


@dataclass(frozen=True)
class Trees:
    """The mean of the predictions of several trees.

    Attributes:
        roots: (trees,) the first node of each tree.
        left: (nodes,) the next node if an input is at most the threshold; −1 for a leaf.
        right: (nodes,) the next node otherwise; −1 for a leaf.
        feature: (nodes,) the input that a node compares; for a leaf, the position of its value.
        threshold: (nodes,) float32. The thresholds of scikit-learn are float64 and rows are
            float32, so the largest float32 that is not above a threshold gives the same decisions.
        values: (values, width) float64, the distinct values of leaves.
        classes_: (width,) the positions of the classes to which the columns of probabilities
            belong; None for a number.
    """

    roots: np.ndarray
    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    values: np.ndarray
    classes_: np.ndarray | None = None

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Return the mean of the trees' values (n, width), summed in the order of the trees, as
        scikit-learn does.
        """
        rows = np.ascontiguousarray(x, np.float32)
        total = np.zeros((len(rows), self.values.shape[1]))
        for root in self.roots.tolist():
            total += self.values[self._leaves(root, rows)]
        total /= len(self.roots)
        return total

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted numbers (n,)."""
        numbers: np.ndarray = self.predict_proba(x)[:, 0]
        return numbers

    def _leaves(self, root: int, x: np.ndarray) -> np.ndarray:
        """Return the place of each row's leaf in ``values``, (n,). All rows descend one level at a
        time.
        """
        at = np.full(len(x), root)
        row = np.arange(len(x))
        cells = x.ravel()
        width = x.shape[1]
        while len(row := row[self.left.take(at.take(row)) >= 0]):
            node = at.take(row)
            low = cells.take(row * width + self.feature.take(node)) <= self.threshold.take(node)
            at[row] = np.where(low, self.left.take(node), self.right.take(node))
        return self.feature.take(at)


@dataclass(frozen=True)
class Linear:
    """A linear model of standardised inputs. A categorical input may become one column for each
    category.

    Attributes:
        mean: (width,) the mean of each standardised column.
        scale: (width,) the standard deviation of each standardised column.
        coefficients: (outputs, width), or (width,).
        intercept: (outputs,), or a single number.
        exponential: whether the prediction is e to the power of the sum.
        categorical: the positions of the inputs that become one column for each category; these
            columns come first.
        categories: the categories of each of these inputs, ascending.
    """

    mean: np.ndarray
    scale: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    exponential: bool
    categorical: tuple[int, ...] = ()
    categories: tuple[np.ndarray, ...] = ()
    classes_: np.ndarray | None = None

    def _decision(self, x: np.ndarray) -> np.ndarray:
        if self.categorical:
            indicators = [
                x[:, [column]] == categories
                for column, categories in zip(self.categorical, self.categories, strict=True)
            ]
            rest = np.delete(x, self.categorical, axis=1)
            x = np.hstack([*(one.astype(np.float64) for one in indicators), rest])
        x = np.array(x)
        x -= self.mean.astype(x.dtype)
        x /= self.scale.astype(x.dtype)
        sums: np.ndarray = x @ self.coefficients.T + self.intercept
        return sums

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted numbers (n,)."""
        sums = self._decision(x)
        sums = sums[:, 0] if sums.ndim > 1 else sums
        return np.exp(sums) if self.exponential else sums

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes (n, classes)."""
        sums = self._decision(x)
        if sums.shape[1] == 1:
            with np.errstate(over="ignore"):
                yes = (1 / (1 + np.exp(-sums[:, 0].astype(np.float64)))).astype(sums.dtype)
            return np.stack([1 - yes, yes], 1)
        powers: np.ndarray = np.exp(sums - sums.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        return powers


# ---------------------------------------------------------------------- written


def as_arrays(model: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a fitted model as plain data and arrays.

    Args:
        model: extra trees or a forest; a pipeline that ends in a linear model; a dummy; or one of
            these for each label.

    Returns:
        What :func:`from_arrays` reads.

    Raises:
        TypeError: any other model.
    """
    if hasattr(model, "fitted"):  # fedlit's own, of a model for each label
        states = []
        arrays_of_all: Arrays = {}
        for label, (state, arrays) in enumerate(map(as_arrays, model.fitted)):
            states.append(state)
            arrays_of_all |= {f"{label}.{name}": array for name, array in arrays.items()}
        return {"kind": "one each", "models": states}, arrays_of_all
    classes = (
        {"classes": np.asarray(model.classes_).astype(np.int64)}
        if hasattr(model, "classes_")
        else {}
    )
    if hasattr(model, "estimators_") and hasattr(model.estimators_[0], "tree_"):
        return {"kind": "trees"}, classes | _forest(model)
    if hasattr(model, "steps"):
        state, arrays = _pipeline(model)
        return state, classes | arrays
    if type(model).__name__.startswith("Dummy"):  # a tree that is one leaf
        row = np.zeros((1, 1))
        one = np.zeros(1, np.int32)
        if hasattr(model, "predict_proba"):
            value = model.predict_proba(row)
        else:
            value = model.predict(row).reshape(1, -1)
        leaf = {"left": one - 1, "right": one - 1, "values": np.asarray(value, float)}
        return {"kind": "trees"}, classes | dict.fromkeys(_TREES, one) | leaf
    raise TypeError(type(model).__name__)


def _forest(model: Any) -> Arrays:
    trees = [tree.tree_ for tree in model.estimators_]
    sizes = [tree.node_count for tree in trees]
    roots = np.cumsum([0, *sizes[:-1]])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(tree, name) for tree in trees])

    leaf = joined("children_left") < 0
    values, leaf_values = np.unique(joined("value")[leaf, 0], axis=0, return_inverse=True)
    feature = joined("feature")
    feature[leaf] = leaf_values.reshape(-1)
    left, right = (
        np.where(leaf, -1, joined(name) + np.repeat(roots, sizes)).astype(np.int32)
        for name in ("children_left", "children_right")
    )
    return {
        "roots": roots.astype(np.int32),
        "left": left,
        "right": right,
        "feature": feature.astype(np.int32),
        "threshold": _not_above(joined("threshold")),
        "values": np.ascontiguousarray(values, np.float64),
    }


def _not_above(threshold: np.ndarray) -> np.ndarray:
    """Return the largest float32 that is not above each float64 threshold."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(
        np.float32
    )


_LINEAR_MODELS = ("LogisticRegression", "Ridge", "PoissonRegressor")


def _pipeline(model: Any) -> tuple[dict[str, Any], Arrays]:
    *first, (_, last) = model.steps
    steps = [step for _, step in first]
    kind = type(last).__name__
    scaler = steps[-1] if steps else None
    if kind not in _LINEAR_MODELS or type(scaler).__name__ != "StandardScaler" or len(steps) > 2:
        raise TypeError(kind)
    _, encoder, categorical = steps[0].transformers_[0] if len(steps) == 2 else ("", None, [])
    categories = encoder.categories_ if encoder is not None else []
    assert scaler is not None
    arrays = {
        **{f"known.{i}": np.asarray(labels, np.float64) for i, labels in enumerate(categories)},
        "mean": scaler.mean_,
        "scale": scaler.scale_,
        "coefficients": np.ascontiguousarray(last.coef_),
        "intercept": np.atleast_1d(last.intercept_),
    }
    exponential = kind == "PoissonRegressor"
    return {
        "kind": "linear",
        "exponential": exponential,
        "categorical": [*map(int, categorical)],
    }, arrays


# ---------------------------------------------------------------------- read


def from_arrays(state: Mapping[str, Any], arrays: Mapping[str, np.ndarray], inputs: int) -> Any:
    """Restore the model that :func:`as_arrays` returned.

    Args:
        state: the plain data.
        arrays: the arrays, by name.
        inputs: the width of the model's rows.

    Raises:
        ValueError, LookupError: they do not fit each other.
    """
    kind = state["kind"]
    classes = arrays.get("classes")
    if kind == "trees":
        trees = Trees(**{name: arrays[name] for name in _TREES}, classes_=classes)
        _check_trees(trees, inputs)
        return trees
    if kind == "linear":
        return _linear(state, arrays, inputs)
    if kind == "one each":
        every: list[Arrays] = [{} for _ in state["models"]]
        for name, one in arrays.items():
            label, _, array_name = name.partition(".")
            every[int(label)][array_name] = one
        pairs = zip(state["models"], every, strict=True)
        return OneEach([from_arrays(model, part, inputs) for model, part in pairs])
    raise ValueError(f"expected a model of trees, linear or one each, found {kind!r}")


def _linear(state: Mapping[str, Any], arrays: Mapping[str, np.ndarray], inputs: int) -> Linear:
    columns = tuple(state["categorical"])
    categories = tuple(arrays[f"known.{position}"] for position in range(len(columns)))
    numbers = {name: arrays[name] for name in _LINEAR}
    classes = arrays.get("classes")
    model = Linear(
        **numbers,
        exponential=bool(state["exponential"]),
        categorical=columns,
        categories=categories,
        classes_=classes,
    )
    if any(type(position) is not int or not 0 <= position < inputs for position in columns):
        raise ValueError("expected places of inputs")
    width = inputs - len(columns) + sum(len(one) for one in categories)
    if (
        model.mean.shape != (width,)
        or model.scale.shape != (width,)
        or model.coefficients.shape[-1] != width
    ):
        raise ValueError(f"expected coefficients of {width} inputs")
    return model


def _check_trees(trees: Trees, inputs: int) -> None:
    """Refuse trees with an index out of range, or with a path that is a cycle."""
    nodes = np.arange(len(trees.left))
    leaf = trees.left < 0
    indices = (trees.roots, trees.left, trees.right, trees.feature)
    if (
        any(array.dtype.kind != "i" or array.ndim != 1 for array in indices)
        or not len(trees.roots)
        or trees.values.ndim != 2
    ):
        raise ValueError("expected trees")
    if any(array.shape != nodes.shape for array in (trees.right, trees.feature, trees.threshold)):
        raise ValueError("expected as many of each of a node's numbers")
    if any(
        (array >= len(nodes)).any() or (array <= nodes)[~leaf].any()
        for array in (trees.left, trees.right)
    ):
        raise ValueError("expected nodes that lead to later ones")
    most = np.where(leaf, len(trees.values), inputs)
    if ((trees.feature < 0) | (trees.feature >= most)).any() or not set(
        trees.roots.tolist()
    ) <= set(nodes.tolist()):
        raise ValueError(f"expected places of nodes, of values and of {inputs} inputs")
