"""Fits Cox's proportional hazards model from the sums of strata's terms (:mod:`fedlit.cox`), with the
errors of its effects and a test of its assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedlit.cox import Terms
from fedlit.reml import independent
from fedlit.types import Bools, Floats, Ints

POINTS = 49
"""The largest number of points at which strata are questions for their terms, before the last one."""
_SMALL = 1e-10
"""The search ends with a step whose squared length, in units of standard errors, is below this: the
error behind the step is of its size."""
_ROUNDING = 1e-8
_SHARE = 1e-12
"""Differences of log likelihoods below this number, or this share of them, may be rounding: of
floats, and of masked sums."""
_FLAT = 1e-6
"""An effect is called infinite where the information about it falls below this share of that at 0."""
_INVOLVED = 0.01
"""So are the effects that grow together with it: at least by this share, in units of standard errors
at 0."""


@dataclass(frozen=True)
class Fit:
    """A fitted model.

    Attributes:
        effects: β, (p,); 0 if a column is a linear combination of those before it within strata.
        fitted: (p,) bool, the other columns.
        settled: whether effects were found in the questions that are allowed.
        infinite: (p,) bool, columns whose effect grew without bounds, alone or together with
            others.
        curved: (p,) bool, the fitted columns but one for each direction in which effects grow: the
            likelihood still says something about each of them, given the columns before it.
    """

    effects: Floats
    fitted: Bools
    settled: bool
    infinite: Bools
    curved: Bools

    @property
    def finite(self) -> Bools:
        """The columns with finite effects that were fitted, (p,) bool."""
        return self.fitted & ~self.infinite


def solve(ask: Callable[[Floats], Terms], columns: int, ridge: float = 0.0) -> Fit:
    """Maximise Σ_s log L_s − ½ ridge ‖β‖² by Newton's method; a step that does not improve it is
    halved.

    Args:
        ask: effects → the sum of the strata's terms; called at most :data:`POINTS` times.
        columns: p.
        ridge: the precision of a normal prior of effects around 0.

    Example:
        >>> from fedlit.cox import Stratum, site_terms
        >>> x = np.array([[1.0], [0.0], [1.0], [0.0]])
        >>> y = np.array([[t, 1.0, -np.inf] for t in (1.0, 2.0, 3.0, 4.0)])
        >>> stratum = Stratum.of(x, y)
        >>> solve(lambda effects: site_terms(stratum, effects), 1).effects.round(6)  # log (1 + √17) / 2
        array([0.940614])
    """
    effects = np.zeros(columns)
    terms = ask(effects)
    fitted = independent(terms["information"])
    at_zero = terms["information"] + ridge * np.eye(columns)
    best = float(terms["value"])
    step = _step(terms, effects, fitted, ridge)
    settled = step is not None and _length(terms, step, ridge) <= _SMALL
    questions = 1
    while step is not None and not settled and questions < POINTS:
        trial = effects + step
        tried = ask(trial)
        questions += 1
        value = float(tried["value"]) - 0.5 * ridge * float(trial @ trial)
        if value < best - _ROUNDING - _SHARE * abs(best):
            step = step / 2
            continue
        effects = trial
        best = value
        terms = tried
        step = _step(terms, effects, fitted, ridge)
        settled = step is not None and _length(terms, step, ridge) <= _SMALL
    if step is not None and settled:
        effects = effects + step
    at_end = terms["information"] + ridge * np.eye(columns)
    infinite, curved = _unbounded(at_zero, at_end, fitted)
    return Fit(effects, fitted, settled, infinite, curved)


def _unbounded(at_zero: Floats, at_end: Floats, fitted: Bools) -> tuple[Bools, Bools]:
    """Return which effects are infinite, and which columns are curved (see :class:`Fit`).

    Effects may grow together although there is information about each alone, as those of all
    categories do if nobody of the reference category has the event. So the information about a
    column is that which the columns before it leave.

    Args:
        at_zero: (p, p) the information where effects are 0.
        at_end: (p, p) the information at the last effects.
        fitted: (p,) bool, columns that are linearly independent at 0.
    """
    infinite = np.zeros(len(fitted), bool)
    curved = np.zeros(len(fitted), bool)
    errors = 1 / np.sqrt(np.diag(at_zero), where=fitted, out=np.ones(len(fitted)))
    for column in np.flatnonzero(fitted).tolist():
        before = np.flatnonzero(curved)
        if _left(at_end, before, column) >= _FLAT * _left(at_zero, before, column):
            curved[column] = True
            continue
        infinite[column] = True
        # By how much each of the others changes where this one grows by 1.
        grows = np.linalg.solve(at_end[np.ix_(before, before)], -at_end[before, column])
        is_involved = np.abs(grows) / errors[before] > _INVOLVED / errors[column]
        infinite[before[is_involved]] = True
    return infinite, curved


def _left(information: Floats, before: Ints, column: int) -> float:
    """Return the information about a column that other columns leave."""
    cross = information[before, column]
    shared = cross @ np.linalg.solve(information[np.ix_(before, before)], cross)
    return float(information[column, column] - shared)


def _step(terms: Terms, effects: Floats, fitted: Bools, ridge: float) -> Floats | None:
    """Return a step of Newton's method; None if the likelihood has no curvature."""
    columns = np.flatnonzero(fitted)
    step = np.zeros(len(fitted))
    if not len(columns):
        return step
    curvature = terms["information"][np.ix_(columns, columns)] + ridge * np.eye(len(columns))
    slope = terms["gradient"][columns] - ridge * effects[columns]
    try:
        root = np.linalg.cholesky(curvature)
    except np.linalg.LinAlgError:
        return None
    step[columns] = np.linalg.solve(root.T, np.linalg.solve(root, slope))
    return step


def _length(terms: Terms, step: Floats, ridge: float) -> float:
    """Return the squared length of a step in units of standard errors."""
    return float(step @ terms["information"] @ step + ridge * (step @ step))


@dataclass(frozen=True)
class Inference:
    """What is known about fitted effects.

    Attributes:
        covariance: (p, p) of the model: the inverse information; 0 for columns that were not fitted
            or whose effects are infinite.
        robust: (p, p) the sandwich, which holds where hazards are not proportional, too.
        trend: (p, 2) for each column, χ² of the test of proportional hazards and its degrees of
            freedom, 0 if it cannot be tested.
        trend_of_all: (2,) the same of all columns together.
    """

    covariance: Floats
    robust: Floats
    trend: Floats
    trend_of_all: Floats


def infer(sums: Terms, fit: Fit, ridge: float = 0.0) -> Inference:
    """Compute covariances and the test of proportional hazards.

    The test is the score test of γ = 0 in the hazard h_s(t) exp(xᵢᵀβ + g(t) xᵢᵀγ) at the fitted β
    (Grambsch and Therneau 1994, Biometrika 81:515; ``cox.zph`` of R's survival from version 3).

    Args:
        sums: the sums of :func:`site_residuals` at the fitted effects.
        fit: the fitted effects.
        ridge: see :func:`solve`.
    """
    columns = np.flatnonzero(fit.curved)
    block = np.ix_(columns, columns)
    p = len(fit.curved)
    bread = sums["information"][block]
    inverse = np.linalg.inv(bread + ridge * np.eye(len(columns)))
    covariance = np.zeros((p, p))
    covariance[block] = inverse
    robust = np.zeros((p, p))
    robust[block] = inverse @ sums["meat"][block] @ inverse
    cross = sums["trend_information"][0][block]
    within = sums["trend_information"][1][block]
    score = sums["trend"][columns]
    if ridge:
        # A prior keeps effects from the maximum of the likelihood, which is no trend.
        score = score - cross @ np.linalg.solve(bread, sums["gradient"][columns])
    # What the effects themselves leave of the information about a trend.
    remaining = within - cross @ np.linalg.solve(bread, cross)
    testable = np.diag(remaining) > 1e-8 * np.diag(within)
    trend = np.zeros((p, 2))
    trend[columns[testable]] = np.column_stack(
        [score[testable] ** 2 / np.diag(remaining)[testable], np.ones(testable.sum())]
    )
    together = np.flatnonzero(testable & independent(remaining))
    of_all = np.zeros(2)
    if len(together):
        part = remaining[np.ix_(together, together)]
        of_all[:] = score[together] @ np.linalg.solve(part, score[together]), len(together)
    for of_columns in (covariance, covariance.T, robust, robust.T, trend):
        of_columns[fit.infinite] = 0.0
    return Inference(covariance, robust, trend, of_all)
