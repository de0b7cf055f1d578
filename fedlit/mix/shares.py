"""Shares of classes among new rows, estimated without their labels (Saerens, Latinne and Decaestecker 2002).

A classifier that was trained where a class is common expects it everywhere. Where only the shares of classes differ,
its probabilities p(class | x) times (new share / training share), scaled to sum to 1, are those of the new rows. The
new shares are those that make the rows most likely: the maximum that the paper climbs to by expectation and
maximisation. The problem is convex; here Newton's method solves it, to the same maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedlit.errors import DataError
from fedlit.mix.calibration import probabilities
from fedlit.mix.simplex import Array, minimise

__all__ = [
    "ASSUMPTION",
    "LARGEST_ERROR",
    "LARGEST_MISS",
    "LEAST_SHARE",
    "LEVEL",
    "MIN_ROWS",
    "Shares",
    "missed",
    "reweighted",
    "shares_of",
]

ASSUMPTION = (
    "this holds where only the shares of classes differ: within each class rows are as in training, and the "
    "probabilities fit the training shares"
)

MIN_ROWS = 100
"""Of fewer rows shares are not estimated."""

LEVEL = 0.05
"""Shares count as changed where, of rows with the training shares, fewer than this part would differ as much."""

LARGEST_ERROR = 0.1
"""A share whose standard error is larger is not known: the classifier tells its class from others too badly."""

LARGEST_MISS = 0.1
"""Of rows whose classes are known, an estimate that is further off shows that the probabilities do not fit."""

LEAST_SHARE = 1e-4
"""A class with less counts as absent: it would hardly ever be predicted again."""


@dataclass(frozen=True, eq=False)
class Shares:
    """What was found of new rows.

    Attributes:
        adjusted: (n, width) the probabilities to use: for the estimated shares, or unchanged where not ``used``.
        training: (classes,) the shares that the classifier was trained with.
        estimated: (classes,) those of the new rows; of a class without training rows its mean probability.
        errors: (classes,) their standard errors, from the curvature of the likelihood; NaN where it does not tell.
        p: of the likelihood ratio test of no change; NaN without an estimate.
        iterations: of Newton's method.
        used: whether ``adjusted`` differs from what was given.
        warning: why it was not used, in one line; else empty.
        assumption: what has to be true, and cannot be seen in rows without labels.
    """

    adjusted: Array
    training: Array
    estimated: Array
    errors: Array
    p: float
    iterations: int
    used: bool
    warning: str = ""
    assumption: str = ASSUMPTION


def reweighted(
    predictions: np.ndarray, training: Sequence[float] | np.ndarray, shares: Sequence[float] | np.ndarray
) -> Array:
    """Probabilities for other shares of classes than those trained with, by Bayes' rule.

    Classes without training rows keep their probability: nothing is known of them.

    Args:
        predictions: (n, classes) probabilities, or (n, 1): of the second of two classes.
        training: (classes,) shares, or counts of rows, that the classifier was trained with. Where its loss was
            balanced by class, all are equal.
        shares: (classes,) of the rows to predict.

    Returns:
        (n, width) float64, as wide as the predictions.

    Raises:
        DataError: no probabilities, or shares that do not fit them.

    Example:
        >>> reweighted(np.array([[0.5, 0.5], [0.2, 0.8]]), training=[0.5, 0.5], shares=[0.9, 0.1]).round(3)
        array([[0.9  , 0.1  ],
               [0.692, 0.308]])
    """
    own = _wide(predictions)
    return _narrow(_bayes(own, _sum_to_one("training", training, own), _sum_to_one("new", shares, own)), predictions)


def shares_of(
    predictions: np.ndarray,
    training: Sequence[float] | np.ndarray,
    classes: Sequence[object] = (),
    pseudo_rows: float = 0.0,
    known: tuple[np.ndarray, np.ndarray] | None = None,
) -> Shares:
    """Shares of classes among rows without labels, and probabilities for them.

    Nothing is changed, and a warning says why, where there are fewer than 100 rows, a share has a standard error above
    0.1 (the classifier cannot tell the class from others), a class seems to be absent, the rows are as likely under the
    training shares (likelihood ratio test at 5 %), or the same estimate of rows whose classes are known misses their
    shares by more than 0.1. :func:`reweighted` takes the estimate all the same.

    Args:
        predictions: (n, classes) probabilities of new rows, or (n, 1): of the second of two classes. They should be
            calibrated.
        training: (classes,) shares, or counts of rows, that the classifier was trained with. Where its loss was
            balanced by class, all are equal.
        classes: labels, for the warning; positions without them.
        pseudo_rows: of each class, counted as if they had been seen: with 1 a class that seems absent keeps about the
            share of one row. 0 is the paper's estimate.
        known: predictions of rows that nothing was trained on, and their classes (n,), −1 for none of them: for
            instance the validation rows. The only check there is of how well the probabilities fit; 100 rows or more,
            with fewer it is left out.

    Raises:
        DataError: no probabilities, or shares that do not fit them.

    Example:
        Of 1,000 rows a classifier, trained with even classes, finds 300 that are surely of the second:

        >>> predictions = np.repeat([[0.95, 0.05], [0.05, 0.95]], [700, 300], axis=0)
        >>> found = shares_of(predictions, training=[1, 1])
        >>> found.estimated.round(3), found.errors.round(3), found.used
        (array([0.722, 0.278]), array([0.016, 0.016]), True)
        >>> found.adjusted[[0, -1]].round(3)
        array([[0.98, 0.02],
               [0.12, 0.88]])
        >>> shares_of(predictions[:50], training=[1, 1]).warning
        'shares of classes are left as in training: expected at least 100 rows, found 50'
    """
    own = _wide(predictions)
    before = _sum_to_one("training", training, own)
    named = list(classes) or list(range(len(before)))
    if len(named) != len(before):
        raise DataError(f"shares: expected {len(before)} classes, found {len(named)}; give the task's classes")
    if not pseudo_rows >= 0:
        raise DataError(f"pseudo_rows: expected a number of at least 0, found {pseudo_rows}")
    held = before > 0
    told = own[own[:, held].sum(axis=1) > 1e-9][:, held]  # a row that is surely of another class says nothing of these
    likelihoods = (told / told.sum(axis=1, keepdims=True) / before[held]).T[:, :, None]
    after, errors, p, iterations = own.mean(axis=0), np.full(len(before), math.nan), math.nan, 0
    if len(told) < MIN_ROWS:
        why = f"expected at least {MIN_ROWS} rows, found {len(told)}"
        return _unchanged(predictions, before, before, errors, p, iterations, why)
    found, iterations = minimise(likelihoods, _minus_log, pseudo_rows)
    after[held] = found * (1 - after[~held].sum())
    errors[held] = _errors(likelihoods[:, :, 0], found)
    p = _unlikely(likelihoods[:, :, 0], found, before[held])
    why = "" if known is None else missed(known, before, named)
    why = why or _doubt(named, np.where(held, after, 1.0), np.where(held, errors, 0.0), p)
    if why:
        return _unchanged(predictions, before, after, errors, p, iterations, why)
    adjusted = _narrow(_bayes(own, before, after), predictions)
    return Shares(adjusted, before, after, errors, p, iterations, used=True)


def _doubt(named: Sequence[object], shares: Array, errors: Array, p: float) -> str:
    """Why an estimate should not be used; empty where nothing speaks against it."""
    if not np.isfinite(errors).all():
        return "the predictions do not tell the classes apart"
    if unsure := [label for label, error in zip(named, errors, strict=True) if error > LARGEST_ERROR]:
        return f"the predictions tell {_listed(unsure)} from others too badly (standard error above {LARGEST_ERROR:g})"
    if p > LEVEL:
        return f"no change was found (p = {p:.2g})"
    if absent := [label for label, share in zip(named, shares, strict=True) if share < LEAST_SHARE]:
        return (
            f"{_listed(absent)} would count as absent and hardly ever be predicted again; with pseudo_rows=1 a class "
            "keeps a small share"
        )
    return ""


def missed(known: tuple[np.ndarray, np.ndarray], before: Array, named: Sequence[object]) -> str:
    """What is wrong with the estimate of rows whose classes are known; empty where it is right, or they are too few."""
    y = np.asarray(known[1])
    if len(y) != len(known[0]):
        raise DataError(f"known rows: expected {len(known[0]):,} classes, one a row, found {len(y):,}")
    inside = y >= 0
    if inside.sum() < MIN_ROWS:
        return ""
    found = shares_of(np.asarray(known[0])[inside], before)
    true = np.bincount(y[inside].astype(int), minlength=len(before)) / inside.sum()
    worst = int(np.abs(found.estimated - true).argmax())
    if abs(found.estimated[worst] - true[worst]) <= LARGEST_MISS:
        return ""
    return (
        f"of rows whose class is known the same estimate gives {named[worst]!r} {found.estimated[worst]:.0%}, it is "
        f"{true[worst]:.0%}: the probabilities do not fit; calibrate them, or check the training shares"
    )


def _unchanged(
    predictions: np.ndarray, before: Array, after: Array, errors: Array, p: float, iterations: int, why: str
) -> Shares:
    warning = f"shares of classes are left as in training: {why}"
    return Shares(np.array(predictions, float), before, after, errors, p, iterations, used=False, warning=warning)


def _listed(labels: Sequence[object]) -> str:
    return ", ".join(map(repr, labels))


def _wide(predictions: np.ndarray) -> Array:
    """(n, classes), two where the predictions have one column."""
    own = probabilities("predictions", predictions)
    return np.hstack([1 - own, own]) if own.shape[1] == 1 else own


def _narrow(own: Array, predictions: np.ndarray) -> Array:
    return own[:, -1:] if predictions.shape[1] == 1 else own


def _sum_to_one(name: str, shares: Sequence[float] | np.ndarray, own: Array) -> Array:
    given = np.asarray(shares, float)
    fits = given.shape == (own.shape[1],) and np.isfinite(given).all() and (given >= 0).all() and (given > 0).any()
    if not fits:
        raise DataError(
            f"{name} shares: expected {own.shape[1]} numbers of at least 0, not all of them 0, found "
            f"{given.tolist()}; give one for each class, for instance its rows"
        )
    scaled: Array = given / given.sum()
    return scaled


def _bayes(own: Array, before: Array, after: Array) -> Array:
    """Classes without training rows keep their probability."""
    held = before > 0
    mass = own[:, held].sum(axis=1, keepdims=True)
    odds = own[:, held] * (after[held] / before[held])
    total = odds.sum(axis=1, keepdims=True)
    made = own.copy()
    # a row that only absent classes could have stays as it is
    made[:, held] = np.where(total > 0, odds / np.where(total > 0, total, 1) * mass, own[:, held])
    return made


def _minus_log(likelihood: Array) -> tuple[Array, Array, Array]:
    inside = np.maximum(likelihood, 1e-100)  # its square is a number still
    return -np.log(inside), -1 / inside, inside**-2


def _errors(likelihoods: Array, shares: Array) -> Array:
    """(classes,) standard errors of shares that sum to 1: the inverse of the observed information within that plane."""
    scaled = likelihoods / (shares @ likelihoods)
    information = scaled @ scaled.T
    plane = np.linalg.svd(np.ones((1, len(shares))))[2][1:].T
    inner = plane.T @ information @ plane
    values, vectors = np.linalg.eigh(inner)
    if not len(values):
        return np.zeros(len(shares))
    if values[0] <= 1e-9 * max(float(values[-1]), 1.0):
        return np.full(len(shares), math.nan)
    along = plane @ vectors
    errors: Array = np.sqrt((along**2 / values).sum(axis=1))
    return errors


def _unlikely(likelihoods: Array, shares: Array, before: Array) -> float:
    """The p of the likelihood ratio test of the training shares."""
    from scipy import stats

    ratio = 2 * (np.log(shares @ likelihoods) - np.log(before @ likelihoods)).sum()
    return float(stats.chi2.sf(max(ratio, 0.0), max(len(shares) - 1, 1)))
