"""Temperature: how sure probabilities should be, by rows whose class is known (Guo et al. 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedlit.errors import DataError
from fedlit.mix.losses import FLOOR, RowLoss, label_loss, log_loss
from fedlit.mix.simplex import Array, checked

__all__ = ["MIN_ROWS", "RANGE", "Calibration", "calibrated", "probabilities", "temperature_of"]

MIN_ROWS = 50
"""With fewer rows whose class is known there is nothing to fit a temperature to."""

RANGE = (0.1, 10.0)
"""Temperatures outside are not looked for: where all rows are predicted right, the best one would be 0."""


@dataclass(frozen=True)
class Calibration:
    """A temperature, and what it did on the rows that it was fitted to.

    Attributes:
        temperature: above 1 where the probabilities were too sure, below 1 where they were not sure enough; 1 changes
            nothing.
        before: mean log loss of the predictions; NaN where no class is known.
        after: mean log loss at the temperature, never above ``before``. Of these very rows: on others a little more.
        rows: whose class is known.
        note: why nothing was changed, or the temperature lies at the end of its range; else empty.
    """

    temperature: float
    before: float
    after: float
    rows: int
    note: str = ""


def probabilities(name: str, predictions: np.ndarray, *, each: bool = False) -> Array:
    """Predictions as float64, which must be probabilities.

    Args:
        name: whose they are, for messages.
        predictions: (n, width).
        each: whether each column is the probability of yes by itself; else rows of more than one column sum to 1.

    Raises:
        DataError: values outside 0 to 1, or rows that do not sum to 1.
    """
    own = checked(name, predictions)
    low, high = float(own.min()), float(own.max())
    if low < -1e-6 or high > 1 + 1e-6:
        raise DataError(
            f"{name}: expected probabilities, found values from {low:g} to {high:g}; only classifiers have them"
        )
    off = np.abs(own.sum(axis=1) - 1).max()
    if own.shape[1] > 1 and not each and off > 1e-3:
        raise DataError(
            f"{name}: expected probabilities that sum to 1 in each row, found a sum that is {off:.2g} off; of several "
            "labels, say that each column stands by itself"
        )
    return np.clip(own, 0.0, 1.0)


def calibrated(predictions: np.ndarray, temperature: float, *, each: bool = False) -> Array:
    """Probabilities at a temperature T: p^(1/T), scaled to sum to 1 in each row.

    At 1 they are returned as they are; else those below 1e-6 count as 1e-6, so that a forest's 0 is no certainty. The
    order of classes within a row stays, and of two classes the order of rows.

    Args:
        predictions: (n, width) probabilities: of classes, or width 1: of the second of two.
        temperature: above 0.
        each: whether each column is the probability of yes by itself, as of several labels.

    Raises:
        DataError: no probabilities, or no temperature.

    Example:
        >>> calibrated(np.array([[0.8, 0.2]]), 2.0).round(3)
        array([[0.667, 0.333]])
        >>> calibrated(np.array([[0.2]]), 2.0).round(3)
        array([[0.333]])
    """
    own = probabilities("predictions", predictions, each=each)
    if not 0 < temperature < math.inf:
        raise DataError(f"temperature: expected a number above 0, found {temperature}; 1 changes nothing")
    if temperature == 1:
        return own
    apart = each or own.shape[1] == 1
    return _at(_logs(own, apart), 1 / temperature, apart)


def _logs(own: Array, apart: bool) -> Array:
    """Logarithms: (n, width, 2) for no and yes of columns that stand by themselves, else (n, 1, classes)."""
    both = np.stack([1 - own, own], axis=2) if apart else own[:, None, :]
    return np.log(np.maximum(both, FLOOR))


def _soft(scaled: Array) -> Array:
    powers = np.exp(scaled - scaled.max(axis=2, keepdims=True))
    soft: Array = powers / powers.sum(axis=2, keepdims=True)
    return soft


def _at(logs: Array, inverse: float, apart: bool) -> Array:
    soft = _soft(logs * inverse)
    found: Array = soft[:, :, 1] if apart else soft[:, 0]
    return found


def temperature_of(predictions: np.ndarray, y: np.ndarray, *, each: bool = False) -> Calibration:
    """The temperature of least log loss on rows whose class is known.

    Log loss is convex in 1/T: the zero of its slope is found by Brent's method, to twelve digits. Nothing is
    changed where fewer than 50 rows have a class, or all have the same.

    Args:
        predictions: (n, width) probabilities of rows that nothing was trained on.
        y: (n,) positions of classes, −1 where it is none of them; where ``each`` (n, labels): 1, 0, or NaN.
        each: whether each column is the probability of yes by itself, as of several labels. They get one temperature.

    Raises:
        DataError: no probabilities, or another number of rows.

    Example:
        All rows are said to be sure at 99 %, and eight of ten are right:

        >>> predictions, y = np.tile([[0.01, 0.99]], (100, 1)), np.repeat([0, 1], [20, 80])
        >>> found = temperature_of(predictions, y)
        >>> round(found.temperature, 3), calibrated(predictions, found.temperature)[0].round(3)
        (3.315, array([0.2, 0.8]))
        >>> round(found.before, 3), round(found.after, 3)
        (0.929, 0.5)
    """
    own, y = probabilities("predictions", predictions, each=each), np.asarray(y)
    if len(y) != len(own):
        raise DataError(f"temperature: expected {len(own):,} classes, one a row, found {len(y):,}; give those rows")
    loss = label_loss(y) if each else log_loss(y, own.shape[1])
    before, rows = loss.mean(own), int(loss.known.sum())
    seen = y[~np.isnan(y)] if each else y[loss.known]
    note = ""
    if rows < MIN_ROWS:
        note = f"{rows} rows have a known class, fewer than {MIN_ROWS}: probabilities are left as they are"
    elif len(np.unique(seen)) < 2:
        note = f"all {rows:,} rows have one class: probabilities are left as they are"
    if note:
        return Calibration(1.0, before, before, rows, note)
    apart = each or own.shape[1] == 1
    logs = _logs(own, apart)
    temperature, note = _least(logs, _truth(y, logs, loss))
    after = loss.mean(_at(logs, 1 / temperature, apart))
    if not after < before:  # the floor, or rounding: never worse on these rows
        return Calibration(1.0, before, before, rows)
    return Calibration(temperature, before, after, rows, note)


def _truth(y: np.ndarray, logs: Array, loss: RowLoss) -> Array:
    """Of each logarithm, the share of its row's loss that is its own: (n, groups, classes), 0 where not known."""
    if y.ndim == 2:
        known = ~np.isnan(y)
        both: Array = np.stack([y == 0, y == 1], axis=2).astype(float)
        shared: Array = both / np.maximum(known.sum(axis=1), 1)[:, None, None]
        return shared
    hot: Array = (np.eye(logs.shape[2])[np.where(loss.known, y, 0).astype(int)] * loss.known[:, None])[:, None, :]
    return hot


def _least(logs: Array, truth: Array) -> tuple[float, str]:
    """The temperature of least loss in the range, and a note where it is an end of it."""
    from scipy.optimize import brentq

    share = truth.sum(axis=2, keepdims=True)

    def slope(inverse: float) -> float:
        return float(((share * _soft(logs * inverse) - truth) * logs).sum())

    low, high = 1 / RANGE[1], 1 / RANGE[0]
    if slope(low) >= 0:
        return RANGE[1], f"the best temperature is {RANGE[1]:g} or more: these predictions tell next to nothing"
    if slope(high) <= 0:
        return RANGE[0], f"the best temperature is {RANGE[0]:g} or less: next to all of these rows are predicted right"
    return 1 / float(brentq(slope, low, high, xtol=1e-12, rtol=1e-12)), ""
