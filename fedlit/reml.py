"""Linear mixed models by restricted maximum likelihood (REML), computed from terms that are summed
over sites.

A site k has X_k (n, p), Z_k (n, q) and y_k (n,), and y_k = X_k β + Z_k b_k + e_k with b_k ~ N(0, σ²
D), e_k ~ N(0, σ²), D = L Lᵀ and W_k = I + Z_k D Z_kᵀ. Given L, all that REML needs is Σ [X y]ᵀ W⁻¹
[X y] and Σ log|W| (after Luo et al. 2022, Nature Communications 13:1678, who let each site send
XᵀX, XᵀZ, ZᵀZ, Xᵀy, Zᵀy and yᵀy once instead).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedlit.types import Bools, Floats

Terms = Mapping[str, Floats]
"""What a site says at given variances; sums over sites have the same names.

``cross`` (p + 1, p + 1): Uᵀ W⁻¹ U with U = [X y]; ``slope`` (r, p + 1, p + 1): its derivative by
each entry of L; ``logdet`` (): log|W|; ``logdet_slope`` (r,): its derivative; ``rows`` (): n.
"""
REML_QUESTIONS = 30
PQL_QUESTIONS = 60
"""How often sites are asked at most, for a number, and for classes and counts."""
_ROUNDING = 1e-12  # of the criterion, within which values differ by rounding alone
# questions for the same working responses; a change of effects that ends it
_AT_ONCE = 8
_SMALL = 1e-6
_STEPS = 50  # of a site's own effects, where the outcome is no number
_ALIASED = 1e-8  # of a column's sum of squares, that the columns before it leave


@dataclass(frozen=True)
class Fit:
    """A fitted mixed model for given variances.

    Attributes:
        theta: the entries of L, row by row, (q (q + 1) / 2,).
        effects: β, (p,); 0 if a column is a linear combination of those before it.
        covariance: the covariance of β, (p, p).
        sigma2: the residual variance σ².
        value: −2 log restricted likelihood, up to a constant.
        gradient: the gradient of ``value`` by ``theta``.
    """

    theta: Floats
    effects: Floats
    covariance: Floats
    sigma2: float
    value: float
    gradient: Floats


_places = cache(np.tril_indices)  # asked of each site in each question


def lower(theta: Floats, q: int) -> Floats:
    """Return the lower triangular matrix L (q, q) from its entries.

    Example:
        >>> lower(np.array([1.0, 2.0, 3.0]), 2)
        array([[1., 0.],
               [2., 3.]])
    """
    matrix = np.zeros((q, q))
    matrix[_places(q)] = theta
    return matrix


def _between(z: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """Return L and L (I + Lᵀ Zᵀ Z L)⁻¹ Lᵀ, which equals (D⁻¹ + ZᵀZ)⁻¹ if D has an inverse, and
    exists if it has none.
    """
    root = lower(theta, z.shape[1])
    inner = np.eye(z.shape[1]) + root.T @ (z.T @ z) @ root
    return root, root @ np.linalg.solve(inner, root.T)


def site_terms(
    x: Floats, y: Floats, z: Floats, theta: Floats, rows: float | None = None
) -> dict[str, Floats]:
    """Return a site's terms, see :data:`Terms`.

    Args:
        x: (n, p) float64.
        y: (n,) float64.
        z: (n, q) float64.
        theta: entries of L.
        rows: the number of rows that they stand for; n if None.

    Example:
        >>> x = np.ones((2, 1))
        >>> site_terms(x, np.array([1.0, 3.0]), x, np.array([1.0]))["cross"].round(3)  # W = I + 11ᵀ
        array([[0.667, 1.333],
               [1.333, 4.667]])
    """
    both = np.column_stack([x, y])
    root, gain = _between(z, theta)
    across = z.T @ both
    gram = z.T @ z
    residual = across - gram @ (gain @ across)  # Zᵀ W⁻¹ U
    whitened = gram - gram @ gain @ gram  # Zᵀ W⁻¹ Z
    q = z.shape[1]
    slopes = []
    logdet_slopes = []
    for row, column in zip(*_places(q), strict=True):
        change = np.zeros((q, q))
        change[row] = root[:, column]
        change += change.T  # dD
        slopes.append(-residual.T @ change @ residual)
        logdet_slopes.append(float(np.sum(whitened * change)))
    return {
        "cross": both.T @ both - across.T @ gain @ across,
        "slope": np.array(slopes),
        "logdet": np.array(np.linalg.slogdet(np.eye(q) + root.T @ gram @ root)[1]),
        "logdet_slope": np.array(logdet_slopes),
        "rows": np.array(float(len(y)) if rows is None else rows),
    }


def site_effect(
    x: Floats, y: Floats, z: Floats, theta: Floats, effects: Floats
) -> tuple[Floats, Floats]:
    """Return a site's random effects b (q,) given its rows (best linear unbiased prediction), and
    their covariance / σ².
    """
    _, gain = _between(z, theta)
    return gain @ (z.T @ (y - x @ effects)), gain


def independent(cross: Floats) -> Bools:
    """Return which columns (p,) are linearly independent of those before them, from XᵀX (p, p). The
    effects of the others are 0.

    Example:
        >>> x = np.array([[1.0, 1, 0], [1, 0, 1], [1, 1, 0]])
        >>> independent(x.T @ x)
        array([ True,  True, False])
    """
    residual = cross.copy()
    is_independent = np.zeros(len(cross), bool)
    for column in range(len(cross)):
        if residual[column, column] > _ALIASED * cross[column, column] > 0:
            is_independent[column] = True
            residual = (
                residual - np.outer(residual[column], residual[column]) / residual[column, column]
            )
    return is_independent


def criterion(sums: Terms, theta: Floats, kept: Bools, ridge: float = 0.0) -> Fit:
    """Compute the REML criterion over the rows of all sites, and its gradient.

    Args:
        sums: the sums of the sites' terms at ``theta``.
        theta: entries of L.
        kept: the columns whose effects are fitted, (p,) bool.
        ridge: the precision, times σ², of a normal prior around 0 for all effects except the first,
            the intercept.

    Raises:
        ValueError: there are no more rows than columns.
    """
    free = float(sums["rows"]) - kept.sum()
    if free <= 0:
        raise ValueError(
            f"expected more rows than columns, found {float(sums['rows']):g} rows and {kept.sum()} "
            "columns"
        )
    columns = np.flatnonzero(kept)
    curvature = sums["cross"][np.ix_(columns, columns)]
    target = sums["cross"][columns, -1]
    curvature = curvature + np.diag(np.where(columns > 0, ridge, 0.0))
    inverse = np.linalg.inv(curvature)
    estimate = inverse @ target
    sigma2 = max(float(sums["cross"][-1, -1] - target @ estimate), 1e-300) / free
    value = free * np.log(sigma2) + float(sums["logdet"]) + np.linalg.slogdet(curvature)[1]
    gradient = []
    for slope, logdet in zip(sums["slope"], sums["logdet_slope"], strict=True):
        inner = slope[np.ix_(columns, columns)]
        change = slope[-1, -1] - 2 * estimate @ slope[columns, -1] + estimate @ inner @ estimate
        gradient.append(change / sigma2 + logdet + np.sum(inverse * inner))
    effects = np.zeros(len(kept))
    covariance = np.zeros((len(kept), len(kept)))
    effects[columns] = estimate
    covariance[np.ix_(columns, columns)] = sigma2 * inverse
    return Fit(theta, effects, covariance, sigma2, float(value), np.array(gradient))


def minimise(ask: Callable[[Floats], Fit], start: Floats, most: int, enough: float = 1e-6) -> Fit:
    """Return the fit with the smallest criterion, found by quasi-Newton steps (L-BFGS).

    Args:
        ask: asks the sites for their terms at some variances, and returns the fit.
        start: the entries of L to start from.
        most: the largest number of questions.
        enough: the largest entry of the gradient at which the search ends.
    """
    from scipy.optimize import minimize

    tried: list[Fit] = []

    def objective(theta: Floats) -> tuple[float, Floats]:
        tried.append(fit := ask(np.array(theta)))
        last = tried[-2:][0]
        changes = np.array([fit.value - last.value, fit.gradient @ (fit.theta - last.theta)])
        # A line search would compare values that differ by rounding alone, and ask on in vain.
        settled = fit is not last and np.abs(changes).max() <= _ROUNDING * max(1.0, abs(fit.value))
        if settled or len(tried) == most:
            raise StopIteration
        return fit.value, fit.gradient

    with suppress(StopIteration):
        minimize(
            objective, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": enough}
        )
    return min(tried, key=lambda fit_at: fit_at.value)


def _working(
    x: Floats, y: Floats, z: Floats, eta: Floats, family: str
) -> tuple[Floats, Floats, Floats]:
    """Return X, the working response and Z at a linear predictor, weighted (Breslow and Clayton
    1993, section 2.1).
    """
    inside = np.clip(eta, -30, 30)
    if family == "poisson":
        mean = np.exp(inside)
        variance = np.maximum(mean, 1e-10)
    else:
        mean = 1 / (1 + np.exp(-inside))
        variance = np.maximum(mean * (1 - mean), 1e-10)
    root = np.sqrt(variance)
    return x * root[:, None], (eta + (y - mean) / variance) * root, z * root[:, None]


def _scaled(
    x: Floats, y: Floats, z: Floats, weight: Floats | None
) -> tuple[Floats, Floats, Floats]:
    """Return rows whose sums of squares count each row as often as its weight says."""
    if weight is None:
        return x, y, z
    root = np.sqrt(weight)
    return x * root[:, None], y * root, z * root[:, None]


def own_effects(
    x: Floats,
    y: Floats,
    z: Floats,
    theta: Floats,
    effects: Floats,
    family: str,
    weight: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return a site's most probable random effects (q,), and their covariance / σ².

    Args:
        x: (n, p) float64.
        y: (n,) float64.
        z: (n, q) float64.
        theta: entries of L.
        effects: β, (p,).
        family: ``gaussian``, ``logistic`` or ``poisson``.
        weight: (n,) how often each row counts; once if None.
    """
    if family == "gaussian":
        return site_effect(*_scaled(x, y, z, weight), theta, effects)
    b = np.zeros(z.shape[1])
    spread = np.zeros((z.shape[1], z.shape[1]))
    for _ in range(_STEPS):
        before = b
        working = _working(x, y, z, x @ effects + z @ b, family)
        b, spread = site_effect(*_scaled(*working, weight), theta, effects)
        b = before + np.clip(b - before, -3, 3)
        if np.abs(b - before).max() < 1e-10:
            break
    return b, spread


def site_answer(
    x: Floats,
    y: Floats,
    z: Floats,
    theta: Floats,
    at: Floats,
    effects: Floats,
    family: str,
    weight: Floats | None = None,
) -> dict[str, Floats]:
    """Return a site's terms at ``theta``, see :data:`Terms`. For classes and counts they are those
    of the working responses at the variances ``at`` and the fixed ``effects``.
    """
    if family != "gaussian":
        b, _ = own_effects(x, y, z, at, effects, family, weight)
        x, y, z = _working(x, y, z, x @ effects + z @ b, family)
    rows = None if weight is None else float(weight.sum())
    return site_terms(*_scaled(x, y, z, weight), theta, rows)


def solve(
    ask: Callable[[Floats, Floats, Floats], Terms],
    columns: int,
    q: int,
    family: str,
    ridge: float = 0.0,
) -> tuple[Fit, int, bool]:
    """Fit a model by REML, or by PQL, which repeats REML on working responses until these no longer
    change.

    Args:
        ask: (theta, theta of the working responses, their fixed effects) → the sum of the sites'
            terms, see :func:`site_answer`.
        columns: the number of columns p, with the intercept first.
        q: the number of random effects of a site.
        family: see :func:`own_effects`.
        ridge: for classes and counts, see :func:`criterion`.

    Returns:
        The fit, how often sites were asked, and the remaining error: the largest entry of the
        gradient, or the last change.

    Raises:
        ValueError: there are no more rows than columns.
    """
    start = np.diag([0.5, *[0.3] * (q - 1)])[_places(q)]
    theta = start
    effects = np.zeros(columns)
    questions = 0

    def said(theta: Floats, at: Floats, effects: Floats) -> Terms:
        nonlocal questions
        questions += 1
        return ask(theta, at, effects)

    # with all variances 0 it is XᵀX (of working responses, weighted)
    fitted_columns = independent(said(np.zeros_like(start), start, effects)["cross"][:-1, :-1])

    def fitted(most: int, enough: float) -> Fit:
        at = theta
        of = effects
        penalty = 0.0 if family == "gaussian" else ridge
        return minimise(
            lambda trial: criterion(said(trial, at, of), trial, fitted_columns, penalty),
            at,
            most,
            enough,
        )

    if family == "gaussian":
        fit = fitted(REML_QUESTIONS - 1, 1e-6)
        return fit, questions, questions < REML_QUESTIONS
    change = np.inf
    most = _AT_ONCE - 1
    while change > _SMALL and questions < PQL_QUESTIONS - 1:
        fit = fitted(most, max(1e-6, 0.1 * min(1.0, change)))
        change = max(np.abs(fit.effects - effects).max(), np.abs(fit.theta - theta).max())
        theta = fit.theta
        effects = fit.effects
        most = min(_AT_ONCE, PQL_QUESTIONS - questions)
    return fit, questions, bool(change <= _SMALL)
