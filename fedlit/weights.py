"""Computes weighted means of predictions, and the weights of least loss, on plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedlit.errors import DataError, RunError
from fedlit.outcomes import Outcome
from fedlit.types import Floats

Terms = Callable[[Floats], tuple[float, Floats]]
"""(n, width) predictions → the sum of their losses, convex in each prediction, and its slopes (n,
width)."""

Stack = Sequence[Sequence[float]]
"""Of each output the intercept and the slope by which a prediction is corrected; empty for none."""

_LEAST = 1e-12  # a weight whose logarithm is taken


def checked(name: str, predictions: np.ndarray) -> Floats:
    """Return predictions as float64.

    Args:
        name: the name of the model that predicts, for messages.
        predictions: (n, width).

    Raises:
        DataError: there are no rows, the number of axes is wrong, or values are not finite.
    """
    array = np.asarray(predictions, float)
    if array.ndim != 2 or not array.size:
        raise DataError(
            f"{name}: expected predictions (rows, width), found shape {array.shape}; give one row a "
            "row"
        )
    if wrong := int((~np.isfinite(array)).any(axis=1).sum()):
        raise DataError(
            f"{name}: expected finite predictions, found {wrong:,} of {len(array):,} rows that are "
            "not; leave it out, or train it again"
        )
    return array


def stacked(parts: Mapping[str, np.ndarray]) -> Floats:
    """Return the parts as one array (parts, n, width) float64, in the given order.

    Raises:
        DataError: there are no parts, or a part is not finite or has another shape than the first.
    """
    if not parts:
        raise DataError("mixture: expected at least one part, found none; name what shall be mixed")
    arrays = {name: checked(f"part {name!r}", predictions) for name, predictions in parts.items()}
    first = next(iter(arrays))
    for name, predictions in arrays.items():
        if predictions.shape != arrays[first].shape:
            raise DataError(
                f"part {name!r}: expected predictions of shape {arrays[first].shape}, as of "
                f"{first!r}, found {predictions.shape}; predict the same rows and classes with each part"
            )
    return np.stack(list(arrays.values()))


def mixed(parts: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> Floats:
    """Return the weighted mean of the parts that have a weight, summed in the order of their names.

    Args:
        parts: predictions (n, width) by part: probabilities or numbers.
        weights: a weight for each part, not negative; weights are scaled to sum to 1. Parts without
            a weight are left out.

    Returns:
        (n, width) float64.

    Raises:
        DataError: parts differ in shape, or values are not finite.

    Example:
        >>> mixed({"a": np.array([[0.2, 0.8]]), "b": np.array([[0.6, 0.4]])}, {"a": 3, "b": 1})
        array([[0.3, 0.7]])
    """
    names = sorted(weights)
    shares = np.array([weights[name] for name in names], float)
    mixture: Floats = np.tensordot(
        shares / shares.sum(), stacked({name: parts[name] for name in names}), 1
    )
    return mixture


def fitted(parts: Floats, terms: Terms, pseudo: float) -> Floats:
    """Return the weights w that minimise loss(Σₖ wₖ partₖ) − pseudo · Σₖ log wₖ, by sequential
    least squares.

    Args:
        parts: (K, n, width).
        terms: returns the loss of a mixture's predictions, and its gradient.
        pseudo: the weight of the penalty, at least 0.

    Returns:
        (K,) weights of sum 1.

    Example:
        Of ten rows, the first part explains seven and the second three:

        >>> rows = np.repeat([[1.0, 0.0], [0.0, 1.0]], [7, 3], axis=0)
        >>> fitted(rows.T[:, :, None], lambda m: (-np.log(m).sum(), -1 / m), 0.0).round(5)
        array([0.7, 0.3])
    """
    from scipy.optimize import minimize

    count, rows = parts.shape[:2]
    if count == 1:
        return np.ones(1)
    flat = parts.reshape(count, -1)
    scale = rows + pseudo * count

    def value(weights: Floats) -> tuple[float, Floats]:
        loss, slopes = terms(np.tensordot(weights, parts, 1))
        inside = np.maximum(weights, _LEAST)
        return (loss - pseudo * np.log(inside).sum()) / scale, (
            flat @ slopes.ravel() - pseudo / inside
        ) / scale

    solution = minimize(
        value,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    weights: Floats = np.clip(solution.x, 0, None)
    if not np.isfinite(weights).all() or not weights.sum() > 0:
        raise RunError(
            f"mixture: expected weights of least loss, found none ({solution.message}); take weights: "
            "equal"
        )
    scaled: Floats = weights / weights.sum()
    return scaled


def on_stack(outcome: Outcome, predictions: Floats, stack: Stack) -> Floats:
    """Return predictions corrected on the scale of the outcome's link: intercept + slope ·
    prediction.

    Args:
        outcome: what is predicted.
        predictions: (n, width), as the task returns them.
        stack: the intercept and the slope for each output.

    Example:
        >>> from fedlit.outcomes.labels import OneLabel
        >>> on_stack(OneLabel(("no", "yes")), np.array([[0.5, 0.5], [0.2, 0.8]]), [(np.log(3), 1.0)]).round(3)
        array([[0.25 , 0.75 ],
               [0.077, 0.923]])
    """
    intercept, slope = np.array(stack, float).T
    return outcome.unlink(intercept + slope * outcome.link(predictions))
