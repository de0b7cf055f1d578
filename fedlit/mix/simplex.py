"""Weights that are not negative and sum to 1, and minimise a convex loss of the mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError, RunError

__all__ = ["Array", "Terms", "checked", "minimise", "stacked"]

Array = NDArray[np.float64]
Terms = Callable[[Array], tuple[Array, Array]]
"""(n, width) predictions → losses and their slopes, each (n, width): convex in each prediction."""

_LEAST = 1e-12  # a weight whose logarithm is taken


def checked(name: str, predictions: np.ndarray) -> Array:
    """Predictions as float64.

    Args:
        name: whose they are, for messages.
        predictions: (n, width).

    Raises:
        DataError: no rows, another number of axes, or values that are not finite.
    """
    own = np.asarray(predictions, float)
    if own.ndim != 2 or not own.size:
        raise DataError(f"{name}: expected predictions (rows, width), found shape {own.shape}; give one row a row")
    if wrong := int((~np.isfinite(own)).any(axis=1).sum()):
        raise DataError(
            f"{name}: expected finite predictions, found {wrong:,} of {len(own):,} rows that are not; leave it out, or "
            "train it again"
        )
    return own


def stacked(parts: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> Array:
    """(parts, n, width) float64, in the order given.

    Raises:
        DataError: no part, or one that is not finite or has another shape than the first.
    """
    if not len(parts):
        raise DataError("mixture: expected at least one part, found none; name what shall be mixed")
    named = parts if isinstance(parts, Mapping) else {f"{place}": own for place, own in enumerate(parts)}
    made = {name: checked(f"part {name!r}", own) for name, own in named.items()}
    first = next(iter(made))
    for name, own in made.items():
        if own.shape != made[first].shape:
            raise DataError(
                f"part {name!r}: expected predictions of shape {made[first].shape}, as of {first!r}, found {own.shape};"
                " predict the same rows and classes with each part"
            )
    return np.stack(list(made.values()))


def minimise(parts: Array, terms: Terms, pseudo: float) -> Array:
    """The weights w of the least Σ losses(Σₖ wₖ partₖ) − pseudo · Σₖ log wₖ, by sequential least squares.

    Args:
        parts: (K, n, width).
        terms: losses of a mixture's predictions.
        pseudo: at least 0.

    Returns:
        (K,) weights of sum 1.

    Example:
        Of ten rows, the first part explains seven and the second three:

        >>> rows = np.repeat([[1.0, 0.0], [0.0, 1.0]], [7, 3], axis=0)
        >>> minimise(rows.T[:, :, None], lambda m: (-np.log(m), -1 / m), 0.0).round(5)
        array([0.7, 0.3])
    """
    from scipy.optimize import minimize

    count, rows = parts.shape[:2]
    if count == 1:
        return np.ones(1)
    flat, scale = parts.reshape(count, -1), rows + pseudo * count

    def value(weights: Array) -> tuple[float, Array]:
        losses, slopes = terms(np.tensordot(weights, parts, 1))
        inside = np.maximum(weights, _LEAST)
        loss = losses.sum() - pseudo * np.log(inside).sum()
        return loss / scale, (flat @ slopes.ravel() - pseudo / inside) / scale

    found = minimize(
        value,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    weights: Array = np.clip(found.x, 0, None)
    if not np.isfinite(weights).all() or not weights.sum() > 0:
        raise RunError(f"mixture: expected weights of least loss, found none ({found.message}); take weights: equal")
    scaled: Array = weights / weights.sum()
    return scaled
