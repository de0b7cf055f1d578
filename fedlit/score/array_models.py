"""Models that consist of arrays: trees, and linear models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlit.outcomes.censored import Steps

CURVE = ("times", "left")
"""The names of the arrays of a curve."""
TREES = ("roots", "left", "right", "feature", "threshold", "values")
"""The names of the arrays of trees."""
LINEAR = ("mean", "scale", "coefficients", "intercept")
"""The names of the arrays of a linear model."""


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
        """Return the position of each row's leaf in ``values``, (n,). All rows descend one level at
        a time.
        """
        node_of_row = np.full(len(x), root)
        row = np.arange(len(x))
        cells = x.ravel()
        width = x.shape[1]
        while len(row := row[self.left.take(node_of_row.take(row)) >= 0]):
            node = node_of_row.take(row)
            low = cells.take(row * width + self.feature.take(node)) <= self.threshold.take(node)
            node_of_row[row] = np.where(low, self.left.take(node), self.right.take(node))
        return self.feature.take(node_of_row)


@dataclass(frozen=True)
class OneCurve:
    """One curve for all rows, which steps down over time.

    Attributes:
        steps: the share without the event.
    """

    steps: Steps

    def survival_at(self, x: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return the probability of no event up to each time, (n, times)."""
        return np.tile(self.steps.at(times), (len(x), 1))


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
        if sums.ndim > 1:
            sums = sums[:, 0]
        if self.exponential:
            sums = np.exp(sums)
        return sums

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


def check_trees(trees: Trees, inputs: int) -> None:
    """Refuse trees with an index out of range, or with a path that is a cycle.

    Raises:
        ValueError: the trees have one of these.
    """
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
