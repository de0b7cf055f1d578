"""Linear models with a Gaussian prior on their coefficients: fitted exactly, by Newton's method in
float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Kind = Literal["logistic", "gaussian"]

INTERCEPT = 1e-4
"""The precision of an intercept's prior around 0: so little that it matters only if all rows are of
one class."""
RIDGES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
STRENGTHS = (float("inf"), 1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
"""Precisions that are tried, the strongest first."""
FOLDS = 5
FEW = 10
MANY = 1000
"""The folds of a cross-validation; the rows below which there is none; the rows from which it is
not repeated."""
_FURTHEST = 6.9
"""Held-out logits are cut here, at odds of 1000 to 1, so that no single row decides."""


def _terms(
    z: Tensor, y: Tensor, kind: Kind, rows: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return each row's negative log likelihood and its first and second derivatives in the linear
    predictor, times how often each row counts.
    """
    if kind == "gaussian":
        loss = 0.5 * (z - y).square()
        slope = z - y
        curvature = torch.ones_like(z)
    else:
        p = z.sigmoid()
        loss = functional.softplus(z) - y * z
        slope = p - y
        curvature = p * (1 - p)
    if rows is None:
        return loss, slope, curvature
    return rows * loss, rows * slope, rows * curvature


def _newton(
    x: Tensor,
    y: Tensor,
    kind: Kind,
    offset: Tensor,
    mean: Tensor,
    precision: Tensor,
    start: Tensor | None,
    rows: Tensor | None = None,
) -> Tensor:
    """Return argmin_b Σ_i nll(x_i b + offset_i, y_i) + ½ Σ_j precision_j (b_j − mean_j)²."""

    def objective(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss, slope, weight = _terms(x @ b + offset, y, kind, rows)
        return loss.sum() + 0.5 * (precision * (b - mean).square()).sum(), slope, weight

    b = mean.clone() if start is None else start.clone()
    value, slope, weight = objective(b)
    for _ in range(100):
        gradient = x.T @ slope + precision * (b - mean)
        step: Tensor = torch.linalg.solve(
            (x * weight[:, None]).T @ x + torch.diag(precision), gradient
        )
        if float(step.abs().max()) < 1e-10:
            return b - step
        for _ in range(40):  # a step that climbs is halved
            tried = objective(b - step)
            if tried[0] <= value * (1 + 1e-14) or kind == "gaussian":
                break
            step = step / 2
        b = b - step
        (value, slope, weight) = tried
    return b


def fit(
    x: Tensor,
    y: Tensor,
    kind: Kind,
    mean: Tensor,
    precision: Tensor,
    start: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """Return the most probable coefficients under independent Gaussian priors, and an intercept.

    Args:
        x: inputs, (n, d) float64.
        y: (n,) float64: 0 and 1 for ``logistic``, numbers for ``gaussian``, whose rows have
            variance 1.
        kind: the kind of likelihood.
        mean: the mean of the coefficients' prior, (d,) float64.
        precision: the precision of this prior, (d,) float64; a coefficient whose precision is
            infinite is held at its mean.
        start: the coefficients to start from, (d + 1,).
        rows: how often each row counts, (n,) float64; once if None.

    Returns:
        (d + 1,) float64, the intercept last.

    Example:
        >>> x, y = torch.tensor([[-1.0], [0.0], [1.0]]).double(), torch.tensor([1.0, 2.0, 3.0]).double()
        >>> fit(x, y, "gaussian", torch.zeros(1).double(), torch.tensor([2.0]).double()).round(decimals=3)
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    free = torch.cat([precision.isfinite(), torch.tensor([True])])
    held = ~free[:-1]
    design = torch.cat([x, x.new_ones(len(x), 1)], 1)
    means = torch.cat([mean, mean.new_zeros(1)])
    precisions = torch.cat([precision, precision.new_tensor([INTERCEPT])])
    offset = x[:, held] @ mean[held]
    begin = None if start is None else start[free]
    found = means.clone()
    found[free] = _newton(
        design[:, free], y, kind, offset, means[free], precisions[free], begin, rows
    )
    return found


def profile(
    shared: Tensor,
    own: Tensor,
    y: Tensor,
    kind: Kind,
    points: Tensor,
    ridge: float,
    rows: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the profile likelihood of rows over coefficients that clients share, optimised over
    all other ones.

    At each point, the intercept and the coefficients of ``own`` have their best values. Gradient
    and curvature are those of the remaining function of the point (a Schur complement).

    Args:
        shared: the inputs that other clients have, too, (n, d) float64.
        own: the inputs that no other client has, (n, e) float64; their coefficients are drawn
            towards 0.
        y: see :func:`fit`.
        kind: the kind of likelihood.
        points: coefficients of the shared inputs, (k, d) float64.
        ridge: the precision of the prior of the coefficients of ``own``.
        rows: how often each row counts, (n,) float64; once if None.

    Returns:
        Values (k,), gradients (k, d) and curvatures (k, d, d) of the penalised negative log
        likelihood.
    """
    rest = torch.cat([own, own.new_ones(len(own), 1)], 1)
    precision = torch.cat([own.new_full((own.shape[1],), ridge), own.new_tensor([INTERCEPT])])
    zero = torch.zeros_like(precision)
    values = []
    gradients = []
    curvatures = []
    for point in points:
        offset = shared @ point
        inner = _newton(rest, y, kind, offset, zero, precision, None, rows)
        loss, slope, weight = _terms(offset + rest @ inner, y, kind, rows)
        weighted = shared * weight[:, None]
        across = weighted.T @ rest
        inside = (rest * weight[:, None]).T @ rest + torch.diag(precision)
        values.append(loss.sum() + 0.5 * (precision * inner.square()).sum())
        gradients.append(shared.T @ slope)
        curvatures.append(weighted.T @ shared - across @ torch.linalg.solve(inside, across.T))
    if not values:
        d = shared.shape[1]
        return own.new_zeros(0), own.new_zeros(0, d), own.new_zeros(0, d, d)
    return torch.stack(values), torch.stack(gradients), torch.stack(curvatures)


@dataclass(frozen=True)
class Chosen:
    """The choice of cross-validation.

    Attributes:
        ridge: the precision of the prior around 0, for coefficients about which no other client has
            information.
        strength: the precision of the prior around what others found; infinite to take it over, 0
            to ignore it.
        loss: the mean negative log likelihood of held-out rows.
    """

    ridge: float
    strength: float
    loss: float = float("nan")


def _folds(rows: Tensor, folds: int, generator: torch.Generator) -> Tensor:
    """Return the fold of each row, (n,), so that folds are even over the values of ``rows``."""
    order = torch.randperm(len(rows), generator=generator)
    order = order[rows[order].argsort(stable=True)]
    fold = torch.empty(len(rows), dtype=torch.long)
    fold[order] = torch.arange(len(rows)) % folds
    return fold


def choose(
    x: Tensor,
    targets: Sequence[Tensor],
    kind: Kind,
    means: Tensor,
    ridges: Sequence[float] = RIDGES,
    strengths: Sequence[float] = STRENGTHS,
    rows: Tensor | None = None,
) -> Chosen:
    """Choose ridge and strength by cross-validation: first the ridge of a model that ignores other
    clients, then, with this ridge, the strength.

    Args:
        x: the inputs, (n, d) float64.
        targets: the target of each output, (n,) float64.
        kind: the kind of likelihood.
        means: what others found, (outputs, d) float64; 0 where they have no information.
        ridges: the ridges to choose from.
        rows: how often each row counts, (n,) float64; once if None.
        strengths: the strengths to choose from; if others found nothing there is no choice, and it
            is 0.

    Returns:
        The first of equally good values. With fewer than 10 rows nothing is compared: the strength
        is the first one, and the ridge is the one nearest to 3.
    """
    pooled = bool((means != 0).any())
    strengths = list(strengths) if pooled else [0.0]
    if len(x) < FEW:
        return Chosen(min(ridges, key=lambda ridge: abs(ridge - 3)), strengths[0])
    labels = torch.stack(list(targets)).T @ torch.arange(1.0, len(targets) + 1, dtype=x.dtype)
    # the same folds whenever it is asked, so that what others found is all that makes a difference
    generator = torch.Generator().manual_seed(0)
    folds = [_folds(labels, FOLDS, generator) for _ in range(1 if len(x) >= MANY else 2)]
    parts = [(fold != number, fold == number) for fold in folds for number in range(FOLDS)]
    started: dict[tuple[int, int], Tensor] = {}

    def held_out(ridge: float, strength: float) -> float:
        total = 0.0
        for output, y in enumerate(targets):
            mean, precision = prior(means[output], ridge, strength)
            for number, (inside, outside) in enumerate(parts):
                begin = started.get((output, number))
                counted = None if rows is None else rows[inside]
                found = fit(x[inside], y[inside], kind, mean, precision, begin, counted)
                started[output, number] = found
                z = x[outside] @ found[:-1] + found[-1]
                z = z.clamp(-_FURTHEST, _FURTHEST) if kind == "logistic" else z
                total += float(
                    _terms(z, y[outside], kind, None if rows is None else rows[outside])[0].sum()
                )
        every = len(x) if rows is None else float(rows.sum())
        return total / (every * len(folds))

    alone = {ridge: held_out(ridge, 0.0) for ridge in ridges}
    ridge = min(alone, key=lambda own: alone[own])
    losses = {own: alone[ridge] if own == 0 else held_out(ridge, own) for own in strengths}
    strength = min(losses, key=lambda own: losses[own])
    return Chosen(ridge, strength, losses[strength])


def prior(mean: Tensor, ridge: float, strength: float) -> tuple[Tensor, Tensor]:
    """Return the mean and the precision of the coefficients' prior, (d,) each, if others found
    ``mean`` (0 where they have no information).

    Example:
        >>> prior(torch.tensor([0.5, 0.0]), ridge=3.0, strength=10.0)
        (tensor([0.5000, 0.0000]), tensor([10.,  3.]))
        >>> prior(torch.tensor([0.5, 0.0]), ridge=3.0, strength=0.0)
        (tensor([0., 0.]), tensor([3., 3.]))
    """
    if strength == 0:
        return torch.zeros_like(mean), torch.full_like(mean, ridge)
    return mean, torch.where(
        mean != 0, torch.full_like(mean, strength), torch.full_like(mean, ridge)
    )
