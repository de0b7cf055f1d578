"""Weights that are not negative and sum to 1, and minimise a convex loss of the mixture: to the optimum, with proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError, RunError

__all__ = ["Array", "Terms", "checked", "minimise", "stacked"]

Array = NDArray[np.float64]
Terms = Callable[[Array], tuple[Array, Array, Array]]
"""(n, width) predictions → losses, their slopes and their curvatures, each (n, width): convex in each prediction."""

_GAP = 1e-9  # a row: how far above the least loss the weights may be, times the number of parts
_STEPS = 200  # of Newton's method at one strength of the barrier; about ten are needed


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


def minimise(parts: Array, terms: Terms, pseudo: float) -> tuple[Array, int]:
    """The weights w of the least Σ losses(Σₖ wₖ partₖ) − pseudo · Σₖ log wₖ.

    Newton's method on the simplex. Without pseudo-rows the second term is made small step by step (a log barrier): at
    strength t, the loss is at most (number of parts) · t above the least. The last t is 1e-9 times the number of rows.

    Args:
        parts: (K, n, width).
        terms: losses of a mixture's predictions.
        pseudo: at least 0.

    Returns:
        (K,) weights, and how many steps it took.

    Example:
        Of ten rows, the first part explains seven and the second three:

        >>> rows = np.repeat([[1.0, 0.0], [0.0, 1.0]], [7, 3], axis=0)
        >>> weights, _ = minimise(rows.T[:, :, None], lambda m: (-np.log(m), -1 / m, m**-2), 0.0)
        >>> weights.round(6)
        array([0.7, 0.3])
    """
    count, rows = parts.shape[:2]
    weights = np.full(count, 1 / count)
    if count == 1:
        return weights, 0
    last = max(pseudo, _GAP * rows)
    strength, taken = max(last, float(rows)), 0
    while True:
        weights, steps = _newton(parts, terms, strength, weights)
        taken += steps
        if strength <= last:
            return weights / weights.sum(), taken
        strength = max(last, strength / 20)


def _newton(parts: Array, terms: Terms, strength: float, weights: Array) -> tuple[Array, int]:
    """The optimum at one strength of the barrier, from weights inside."""

    def value(own: Array) -> float:
        return float(terms(np.tensordot(own, parts, 1))[0].sum() - strength * np.log(own).sum())

    flat = parts.reshape(len(parts), -1)
    now = value(weights)
    for step in range(1, _STEPS + 1):
        _, slope, curvature = (own.ravel() for own in terms(np.tensordot(weights, parts, 1)))
        # in units of the weights themselves the system stays well conditioned where a weight goes to 0
        gradient = weights * (flat @ slope) - strength
        hessian = weights[:, None] * ((flat * curvature) @ flat.T) * weights
        # beside very steep losses the barrier would be lost in rounding, and equal parts make the system singular
        hessian += (strength + 1e-13 * hessian.diagonal().max()) * np.eye(len(weights))
        solved = np.linalg.solve(hessian, np.stack([gradient, weights], axis=1))
        move = -(solved[:, 0] - solved[:, 1] * (weights @ solved[:, 0]) / (weights @ solved[:, 1]))
        decrement = float(-gradient @ move)
        size = min(1.0, 0.99 / max(float(-move.min()), 1e-300))
        if decrement <= 1e-9 * (1 + abs(now)):  # rounding of the sum hides what is gained: Newton's own step is right
            weights = weights * (1 + size * move)
            now = value(weights)
            if decrement <= 1e-17 * (1 + abs(now)) or decrement <= 1e-12 * strength:
                return weights, step
            continue
        while (then := value(weights * (1 + size * move))) > now - 0.1 * size * decrement:
            size /= 2
            if size < 1e-12:
                raise _lost()
        weights, now = weights * (1 + size * move), then
    if decrement > 1e-6 * (1 + abs(now)):  # less is what a kink at the floor of a loss leaves
        raise _lost()
    return weights, _STEPS


def _lost() -> RunError:
    return RunError("mixture: expected weights of least loss, found none by Newton's method; take weights: equal")
