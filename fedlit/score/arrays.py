"""Fitted models of scikit-learn as arrays: trees, linear models, and one of them for each label. No pickle is written,
and none is read. Predictions are those of scikit-learn, to the bit where its sums are in one order.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError, told_as
from fedlit.outcomes import Outcome
from fedlit.score.plain import read_json, unfit, write_json

__all__ = ["FILES", "ArrayFunction", "ArrayModel", "Linear", "OneEach", "Trees", "as_arrays", "from_arrays"]

FILES = ("model.json", "model.npz")
Arrays = dict[str, np.ndarray]
_LINKS = ("probability", "identity", "exponential")
_TREES = ("roots", "feature", "threshold", "left", "right", "values")
_LINEAR = ("mean", "scale", "coefficients", "intercept")


class ArrayModel(Protocol):
    """What a task asks of a fitted model."""

    @property
    def classes_(self) -> np.ndarray | None:
        """(columns,) positions of the classes that the columns of probabilities belong to; None of a number."""

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,) numbers of rows (n, d)."""

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, classes) probabilities of rows (n, d)."""


class ArrayFunction:
    """What a model of scikit-learn that is kept as arrays predicts of encoded rows.

    Args:
        state: of the model, as :func:`as_arrays` gives it.
        arrays: likewise.
        outcome: what is predicted.
        inputs: width of rows.

    Raises:
        ValueError, LookupError: they do not fit each other.
    """

    network = "arrays"

    def __init__(self, state: Mapping[str, Any], arrays: Arrays, outcome: Outcome, inputs: int) -> None:
        self._state, self._arrays, self._outcome = state, arrays, outcome
        self._model = from_arrays(state, arrays, inputs)
        self(np.zeros((1, inputs), np.float32))

    def __call__(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """(n, d) float32 → (n, width)."""
        return self._outcome.of_model(self._model, x)

    def write(self, folder: Path) -> None:
        """Write :data:`FILES`."""
        content = BytesIO()
        np.savez(content, **self._arrays)  # type: ignore[arg-type]  # names are anybody's, and no options
        write_json(folder / FILES[0], self._state)
        (folder / FILES[1]).write_bytes(content.getvalue())

    @classmethod
    def read(cls, folder: Path, outcome: Outcome, inputs: int) -> ArrayFunction:
        """What :meth:`write` wrote.

        Raises:
            DataError: it did not write this.
        """
        state = read_json(folder / FILES[0])
        with told_as(lambda error: unfit(folder / FILES[1], error)):
            with zipfile.ZipFile(folder / FILES[1]) as archive:
                if any(own.compress_type != zipfile.ZIP_STORED for own in archive.infolist()):
                    raise ValueError("compressed arrays")
            with np.load(folder / FILES[1], allow_pickle=False) as found:
                arrays = dict(found)
        for name, own in arrays.items():
            if own.dtype.kind not in "iuf" or np.isnan(own).any():
                raise DataError(
                    f"{folder / FILES[1]}: expected numbers in {name[:60]!r}, found {own.dtype}, or some that are none"
                )
        with told_as(lambda error: unfit(folder / FILES[0], error)):
            return cls(state, arrays, outcome, inputs)


@dataclass(frozen=True)
class Trees:
    """The mean of trees.

    Attributes:
        roots: (trees,) int32, the first node of each, or −1 − the place of a leaf's value.
        feature: (nodes,) int32, the input that a node looks at.
        threshold: (nodes,) float32: rows of at most this go left. scikit-learn's is a float64 and rows are float32, so
            the largest float32 that is not above it decides alike.
        left: (nodes,) int32, a node, or −1 − the place of a leaf's value.
        right: (nodes,) int32, the same for the other rows.
        values: (values, width) float64, what leaves say, each once.
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    values: np.ndarray
    classes_: np.ndarray | None = None

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, width), in the order of trees, as scikit-learn sums them."""
        cells = np.ascontiguousarray(x, np.float32)
        begins = np.arange(len(cells)) * cells.shape[1]
        below = np.stack([self.right, self.left], 1).ravel()
        total = np.zeros((len(cells), self.values.shape[1]))
        for root in self.roots.tolist():
            total += self.values.take(self._leaves(root, cells.ravel(), begins, below), axis=0)
        total /= len(self.roots)
        return total

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,)"""
        made: np.ndarray = self.predict_proba(x)[:, 0]
        return made

    def _leaves(self, root: int, cells: np.ndarray, begins: np.ndarray, below: np.ndarray) -> np.ndarray:
        """(n,) where the values of a tree's leaves are, all rows a level at a time.

        Args:
            root: the tree's.
            cells: all rows, one behind the other.
            begins: (n,) where each row begins among them.
            below: (2 · nodes,) the right and the left node of each.
        """
        found = np.full(len(begins), -1 - root)
        if root < 0:
            return found
        row, at = np.arange(len(begins)), np.full(len(begins), root)
        while len(row):
            left = cells.take(begins + self.feature.take(at)) <= self.threshold.take(at)
            at = below.take(2 * at + left).astype(np.int64)
            ends = np.flatnonzero(at < 0)
            if len(ends):
                found[row.take(ends)] = -1 - at.take(ends)
                on = np.flatnonzero(at >= 0)
                row, at, begins = row.take(on), at.take(on), begins.take(on)
        return found


@dataclass(frozen=True)
class Linear:
    """Standardised inputs times coefficients, through a link; categories may be a column each.

    Attributes:
        mean: (width,) of what is standardised.
        scale: (width,)
        coefficients: (outputs, width), or (width,).
        intercept: (outputs,), or a single number.
        link: ``probability``, ``identity`` or ``exponential``.
        categorical: positions of the inputs that become a column for each category; these columns come first.
        known: the categories of each, ascending.
    """

    mean: np.ndarray
    scale: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    link: str
    categorical: tuple[int, ...] = ()
    known: tuple[np.ndarray, ...] = ()
    classes_: np.ndarray | None = None

    def _decision(self, x: np.ndarray) -> np.ndarray:
        if self.categorical:
            own = [x[:, [place]] == known for place, known in zip(self.categorical, self.known, strict=True)]
            rest = np.delete(x, self.categorical, axis=1)
            x = np.hstack([*(one.astype(np.float64) for one in own), rest])
        x = np.array(x)
        x -= self.mean.astype(x.dtype)
        x /= self.scale.astype(x.dtype)
        made: np.ndarray = x @ self.coefficients.T + self.intercept
        return made

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,)"""
        made = self._decision(x)
        made = made[:, 0] if made.ndim > 1 else made
        return np.exp(made) if self.link == "exponential" else made

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, classes)"""
        made = self._decision(x)
        if made.shape[1] == 1:
            with np.errstate(over="ignore"):
                yes = (1 / (1 + np.exp(-made[:, 0].astype(np.float64)))).astype(made.dtype)
            return np.stack([1 - yes, yes], 1)
        powers: np.ndarray = np.exp(made - made.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
        return powers


@dataclass(frozen=True)
class OneEach:
    """A model for each label, or one of a number.

    Attributes:
        models: by label.
    """

    models: tuple[ArrayModel, ...]
    classes_: None = None

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,) numbers, of one model."""
        return self.models[0].predict(x)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, labels), the probability of 1."""
        return np.stack([model.predict_proba(x) @ (model.classes_ == 1) for model in self.models], 1)


@dataclass(frozen=True)
class Constant:
    """The same of every row.

    Attributes:
        values: (width,) float64.
    """

    values: np.ndarray
    classes_: np.ndarray | None = None

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(n,)"""
        return np.full(len(x), self.values[0])

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """(n, width)"""
        return np.tile(self.values, (len(x), 1))


# ---------------------------------------------------------------------- written


def as_arrays(model: Any) -> tuple[dict[str, Any], Arrays]:
    """A fitted model as plain data and arrays.

    Args:
        model: extra trees or a forest; a pipeline that ends in a linear model; a dummy; or one of them for each label.

    Returns:
        What :func:`from_arrays` reads.

    Raises:
        TypeError: any other model.
    """
    arrays: Arrays = {}
    return _written(model, "", arrays), arrays


def _written(model: Any, prefix: str, arrays: Arrays) -> dict[str, Any]:
    if hasattr(model, "fitted") and hasattr(model, "kind"):  # fedlit's own, of a model for each label
        own = [_written(each, f"{prefix}{place}.", arrays) for place, each in enumerate(model.fitted)]
        return {"kind": "one each", "models": own}
    if hasattr(model, "classes_"):
        arrays[f"{prefix}classes"] = np.asarray(model.classes_).astype(np.int64)
    if hasattr(model, "estimators_") and hasattr(model.estimators_[0], "tree_"):
        arrays |= {f"{prefix}{name}": own for name, own in _forest(model).items()}
        return {"kind": "trees"}
    if hasattr(model, "steps"):
        return _pipeline(model, prefix, arrays)
    if type(model).__name__.startswith("Dummy"):
        width = np.zeros((1, 1))
        made = model.predict_proba(width)[0] if hasattr(model, "predict_proba") else np.ravel(model.predict(width))
        arrays[f"{prefix}values"] = np.asarray(made, np.float64)
        return {"kind": "constant"}
    raise TypeError(type(model).__name__)


def _forest(model: Any) -> Arrays:
    roots, feature, threshold, left, right, values = [], [], [], [], [], []
    nodes = leaves = 0
    for each in model.estimators_:
        tree = each.tree_
        inner = tree.children_left >= 0
        place = np.where(inner, nodes + np.cumsum(inner) - 1, -leaves - np.cumsum(~inner))  # −1 − place of the leaf
        roots.append(place[0])
        feature.append(tree.feature[inner])
        threshold.append(_not_above(tree.threshold[inner]))
        left.append(place[tree.children_left[inner]])
        right.append(place[tree.children_right[inner]])
        values.append(tree.value[~inner, 0, :])
        nodes += int(inner.sum())
        leaves += int((~inner).sum())
    unique, where = np.unique(np.concatenate(values), axis=0, return_inverse=True)

    def ends(places: Sequence[Any]) -> np.ndarray:
        own = np.concatenate([np.atleast_1d(place) for place in places]) if places else np.zeros(0, int)
        shared = where.reshape(-1)[np.where(own < 0, -1 - own, 0)]
        return np.where(own < 0, -1 - shared, own).astype(np.int32)

    return {
        "roots": ends(roots),
        "feature": np.concatenate(feature).astype(np.int32),
        "threshold": np.concatenate(threshold),
        "left": ends(left),
        "right": ends(right),
        "values": np.ascontiguousarray(unique, np.float64),
    }


def _not_above(threshold: np.ndarray) -> np.ndarray:
    """The largest float32 that is not above."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


_LINK_OF = {"LogisticRegression": "probability", "Ridge": "identity", "PoissonRegressor": "exponential"}


def _pipeline(model: Any, prefix: str, arrays: Arrays) -> dict[str, Any]:
    *first, (_, last) = model.steps
    steps = [own for _, own in first]
    kind, scaler = type(last).__name__, steps[-1] if steps else None
    if kind not in _LINK_OF or type(scaler).__name__ != "StandardScaler" or len(steps) > 2:
        raise TypeError(kind)
    categorical: list[int] = []
    if len(steps) == 2:
        _, encoder, categorical = steps[0].transformers_[0]
        for place, known in enumerate(encoder.categories_):
            arrays[f"{prefix}known.{place}"] = np.asarray(known, np.float64)
    assert scaler is not None
    arrays[f"{prefix}mean"], arrays[f"{prefix}scale"] = scaler.mean_, scaler.scale_
    arrays[f"{prefix}coefficients"] = np.ascontiguousarray(last.coef_)
    arrays[f"{prefix}intercept"] = np.atleast_1d(last.intercept_)
    return {"kind": "linear", "link": _LINK_OF[kind], "categorical": [int(place) for place in categorical]}


# ---------------------------------------------------------------------- read


def from_arrays(state: Mapping[str, Any], arrays: Mapping[str, np.ndarray], inputs: int) -> ArrayModel:
    """The model that :func:`as_arrays` wrote.

    Args:
        state: plain data.
        arrays: by name.
        inputs: width of its rows.

    Raises:
        ValueError, LookupError: they do not fit each other.
    """
    return _read(state, arrays, "", inputs)


def _read(state: Mapping[str, Any], arrays: Mapping[str, np.ndarray], prefix: str, inputs: int) -> ArrayModel:
    kind, classes = state["kind"], arrays.get(f"{prefix}classes")
    if kind == "trees":
        trees = Trees(**{name: arrays[prefix + name] for name in _TREES}, classes_=classes)
        _check_trees(trees, inputs)
        return trees
    if kind == "constant":
        return Constant(arrays[f"{prefix}values"], classes)
    if kind == "linear":
        return _read_linear(state, arrays, prefix, inputs)
    if kind == "one each":
        return OneEach(
            tuple(_read(own, arrays, f"{prefix}{place}.", inputs) for place, own in enumerate(state["models"]))
        )
    raise ValueError(f"expected a model of trees, linear, constant or one each, found {kind!r}")


def _read_linear(state: Mapping[str, Any], arrays: Mapping[str, np.ndarray], prefix: str, inputs: int) -> Linear:
    places = tuple(state["categorical"])
    known = tuple(arrays[f"{prefix}known.{place}"] for place in range(len(places)))
    own = Linear(
        **{name: arrays[prefix + name] for name in _LINEAR},
        link=state["link"],
        categorical=places,
        known=known,
        classes_=arrays.get(f"{prefix}classes"),
    )
    if own.link not in _LINKS or any(type(place) is not int or not 0 <= place < inputs for place in places):
        raise ValueError("expected a link and places of inputs")
    width = inputs - len(places) + sum(len(one) for one in known)
    if own.mean.shape != (width,) or own.scale.shape != (width,) or own.coefficients.shape[-1] != width:
        raise ValueError(f"expected coefficients of {width} inputs")
    return own


def _check_trees(trees: Trees, inputs: int) -> None:
    """That each place is there, and that no way goes round in a circle."""
    nodes = len(trees.feature)
    sizes = {len(own) for own in (trees.feature, trees.threshold, trees.left, trees.right)}
    places: NDArray[Any] = np.concatenate([trees.roots, trees.left, trees.right])
    if (
        len(sizes) > 1
        or not len(trees.roots)
        or trees.values.ndim != 2
        or any(own.dtype.kind != "i" for own in (places, trees.feature))
    ):
        raise ValueError("expected trees")
    if places.max() >= nodes or -1 - places.min() >= len(trees.values):
        raise ValueError("expected places of nodes and leaves that there are")
    if nodes and not (trees.feature.min() >= 0 and trees.feature.max() < inputs):
        raise ValueError(f"expected trees of {inputs} inputs")
    here = np.arange(nodes)
    if any(((own >= 0) & (own <= here)).any() for own in (trees.left, trees.right)):
        raise ValueError("expected nodes below their parents")
