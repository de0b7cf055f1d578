"""Weights of a mixture's parts: equal, half own, or fitted to rows and shrunk to equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fedlit.errors import ConfigError, DataError
from fedlit.mix.losses import RowLoss
from fedlit.mix.simplex import Array, Terms, minimise, stacked

__all__ = ["How", "mixed", "mixed_parts", "weights_of"]

How = Literal["equal", "half_own", "fitted"]


def mixed(predictions: Sequence[np.ndarray], weights: Sequence[float] | np.ndarray) -> Array:
    """The weighted mean of predictions.

    Args:
        predictions: of each part (n, width) float: probabilities, or numbers.
        weights: of each part, not negative; they are scaled to sum to 1.

    Returns:
        (n, width) float64.

    Raises:
        DataError: parts of different shapes, values that are not finite, or weights that are none.

    Example:
        >>> mixed([np.array([[0.2, 0.8]]), np.array([[0.6, 0.4]])], [3, 1])
        array([[0.3, 0.7]])
    """
    return _mean(stacked(predictions), weights)


def _mean(stack: Array, weights: Sequence[float] | np.ndarray) -> Array:
    own = np.asarray(weights, float)
    if own.shape != (len(stack),) or not np.isfinite(own).all() or (own < 0).any() or not own.sum() > 0:
        raise DataError(
            f"weights: expected {len(stack)} numbers of at least 0, not all of them 0, found {own.tolist()}; give each "
            "part one"
        )
    mixture: Array = np.tensordot(own / own.sum(), stack, 1)
    return mixture


def mixed_parts(parts: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> Array:
    """:func:`mixed` of the parts that have a weight, in the order of their names: the same bits in whatever order.

    Args:
        parts: predictions (n, width) by part.
        weights: by part; those without one stay out.
    """
    if lacking := sorted(weights.keys() - parts.keys()):
        raise DataError(f"part {lacking[0]!r}: expected its predictions, found none; predict with each part")
    names = sorted(weights)
    return _mean(stacked({name: parts[name] for name in names}), [weights[name] for name in names])


@dataclass(frozen=True)
class _Scaled:
    """Squared errors as a negative log-likelihood: Gaussian noise of the variance that the equal mixture leaves."""

    terms: Terms
    unit: float

    def __call__(self, predictions: Array) -> tuple[Array, Array]:
        value, slope = self.terms(predictions)
        return value / self.unit, slope / self.unit


def weights_of(
    how: How,
    parts: Mapping[str, np.ndarray],
    own: Collection[str],
    loss: RowLoss | None = None,
    shrink: float = 100,
) -> dict[str, float]:
    """A weight for each part.

    - ``equal``: the same for all.
    - ``half_own``: own parts share one half, the others the other half; where there are only own ones, or only others,
      the same for all.
    - ``fitted``: those of the least Σ loss(mixture) − shrink · Σ log(weight), the first sum over rows, the second over
      parts. Each part counts as if it had, beside its share of the rows, explained ``shrink`` rows more: for the log
      loss each weight is (rows that it explains + shrink) / (rows + shrink · parts). With 0 it is the least loss
      itself; from many more rows than shrink · parts the weights are free, with many fewer they stay equal. A squared
      error is divided by twice the mean squared error of the equal mixture, to be of the size of a log-likelihood. The
      problem is convex and solved to its optimum; nothing is drawn. Rows that parts were trained on must not be among
      these: a part that knows them takes all weight.

    Args:
        how: one of the three.
        parts: predictions (n, width) by part, of the same validation or out-of-fold rows.
        own: names of the client's own parts; names of no part are passed over.
        loss: of each row; only ``fitted`` needs it.
        shrink: pseudo-rows of each part.

    Returns:
        Part → weight in the order of ``parts``: at least 0, of sum 1.

    Raises:
        ConfigError: another word, or less than no shrinkage.
        DataError: parts that do not fit, or no row whose target is known.

    Example:
        The first part is sure and right in three rows of four, the second undecided:

        >>> from fedlit.mix.losses import log_loss
        >>> sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
        >>> parts, y = {"trees": sure, "joint": np.full((4, 2), 0.5)}, np.array([0, 0, 1, 1])
        >>> weights_of("half_own", {**parts, "forest": sure}, own=["trees"])
        {'trees': 0.5, 'joint': 0.25, 'forest': 0.25}
        >>> for shrink in (0, 1, 100):
        ...     fitted = weights_of("fitted", parts, ["trees"], log_loss(y, 2), shrink)
        ...     print({name: round(weight, 3) for name, weight in fitted.items()})
        {'trees': 0.625, 'joint': 0.375}
        {'trees': 0.535, 'joint': 0.465}
        {'trees': 0.5, 'joint': 0.5}
    """
    if how not in get_args(How):
        raise ConfigError(f"weights: expected one of {', '.join(get_args(How))}, found {how!r}")
    names = sorted(parts)  # sums in one order: the same bits in whatever order parts come
    stack = stacked({name: parts[name] for name in names})
    if how == "fitted":
        return _fitted(names, stack, loss, shrink, list(parts))
    mine = [name for name in names if name in own]
    halves = how == "half_own" and 0 < len(mine) < len(names)
    return {
        name: 0.5 / (len(mine) if name in own else len(names) - len(mine)) if halves else 1 / len(names)
        for name in parts
    }


def _fitted(names: list[str], stack: Array, loss: RowLoss | None, shrink: float, order: list[str]) -> dict[str, float]:
    if loss is None:
        raise ConfigError("weights: expected a loss for fitted weights, found none; give the loss, or take equal ones")
    if not shrink >= 0:
        raise ConfigError(f"shrink: expected a number of at least 0, found {shrink}")
    if len(loss.known) != stack.shape[1]:
        raise DataError(
            f"part {names[0]!r}: expected predictions of {len(loss.known):,} rows, as the target has, found "
            f"{stack.shape[1]:,}; predict the rows that the weights are fitted to"
        )
    if not loss.known.any():
        raise DataError("weights: expected rows whose target is known, found none; take equal weights")
    if np.isinf(shrink):
        return {name: 1 / len(names) for name in order}
    terms = loss.terms
    if not loss.nats:
        # a mixture without any error is as good as can be: no unit is then too small
        terms = _Scaled(terms, 2 * loss.mean(stack.mean(axis=0)) or 1.0)
    found = minimise(stack, terms, shrink)
    weights = dict(zip(names, found.tolist(), strict=True))
    return {name: weights[name] for name in order}
