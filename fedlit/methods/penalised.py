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
        for _ in range(40):  # A step that climbs is halved.
            trial = objective(b - step)
            if trial[0] <= value * (1 + 1e-14) or kind == "gaussian":
                break
            step = step / 2
        b = b - step
        value, slope, weight = trial
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
        >>> x = torch.tensor([[-1.0], [0.0], [1.0]]).double()
        >>> y = torch.tensor([1.0, 2.0, 3.0]).double()
        >>> mean, precision = torch.zeros(1).double(), torch.tensor([2.0]).double()
        >>> fit(x, y, "gaussian", mean, precision).round(decimals=3)
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    free = torch.cat([precision.isfinite(), torch.tensor([True])])
    fixed = ~free[:-1]
    design = torch.cat([x, x.new_ones(len(x), 1)], 1)
    means = torch.cat([mean, mean.new_zeros(1)])
    precisions = torch.cat([precision, precision.new_tensor([INTERCEPT])])
    offset = x[:, fixed] @ mean[fixed]
    free_start = None if start is None else start[free]
    coefficients = means.clone()
    coefficients[free] = _newton(
        design[:, free], y, kind, offset, means[free], precisions[free], free_start, rows
    )
    return coefficients


def profile(
    shared: Tensor,
    private: Tensor,
    y: Tensor,
    kind: Kind,
    points: Tensor,
    ridge: float,
    rows: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the profile likelihood of rows over coefficients that clients share, optimised over
    all other ones.

    At each point, the intercept and the coefficients of ``private`` have their best values.
    Gradient and curvature are those of the remaining function of the point (a Schur complement).

    Args:
        shared: the inputs that other clients have, too, (n, d) float64.
        private: the inputs that no other client has, (n, e) float64; their coefficients are shrunk
            towards 0.
        y: see :func:`fit`.
        kind: the kind of likelihood.
        points: coefficients of the shared inputs, (k, d) float64.
        ridge: the precision of the prior of the coefficients of ``private``.
        rows: how often each row counts, (n,) float64; once if None.

    Returns:
        Values (k,), gradients (k, d) and curvatures (k, d, d) of the penalised negative log
        likelihood.
    """
    n, e = private.shape
    rest = torch.cat([private, private.new_ones(n, 1)], 1)
    precision = torch.cat([private.new_full((e,), ridge), private.new_tensor([INTERCEPT])])
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
        return private.new_zeros(0), private.new_zeros(0, d), private.new_zeros(0, d, d)
    return torch.stack(values), torch.stack(gradients), torch.stack(curvatures)


@dataclass(frozen=True)
class Chosen:
    """The choice of cross-validation.

    Attributes:
        ridge: the precision of the prior around 0, for coefficients about which no other client has
            information.
        strength: the precision of the prior around the other clients' coefficients; infinite to
            take these over, 0 to ignore them.
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


def number_of(x: Tensor, persons: Tensor | None) -> int:
    """Return the number of persons behind rows (n, d); see :func:`choose`."""
    return len(x) if persons is None else len(persons.unique())


def choose(
    x: Tensor,
    targets: Sequence[Tensor],
    kind: Kind,
    means: Tensor,
    ridges: Sequence[float] = RIDGES,
    strengths: Sequence[float] = STRENGTHS,
    rows: Tensor | None = None,
    persons: Tensor | None = None,
) -> Chosen:
    """Choose ridge and strength by cross-validation: first the ridge of a model that ignores other
    clients, then, with this ridge, the strength.

    Args:
        x: the inputs, (n, d) float64.
        targets: the target of each output, (n,) float64.
        kind: the kind of likelihood.
        means: the other clients' coefficients, (outputs, d) float64; 0 where they have no
            information.
        ridges: the ridges to choose from.
        strengths: the strengths to choose from; if others have no information, the strength is 0.
        rows: how often each row counts, (n,) float64; once if None.
        persons: the position of the person that each row belongs to, (n,) int64, whose rows are in
            one fold; each row is a person if None.

    Returns:
        The first of equally good values. With fewer than 10 persons nothing is compared: the strength
        is the first one, and the ridge is the one nearest to 3.
    """
    pooled = bool((means != 0).any())
    strengths = list(strengths) if pooled else [0.0]
    labels = torch.stack(list(targets)).T @ torch.arange(1.0, len(targets) + 1, dtype=x.dtype)
    if persons is not None:
        count = number_of(x, persons)
        labels = labels.new_zeros(count).scatter_reduce(0, persons, labels, "amax")
    if len(labels) < FEW:
        return Chosen(min(ridges, key=lambda ridge: abs(ridge - 3)), strengths[0])
    # Folds are the same in every call, so that only the other clients' coefficients matter.
    generator = torch.Generator().manual_seed(0)
    repeats = 1 if len(labels) >= MANY else 2
    folds = [_folds(labels, FOLDS, generator) for _ in range(repeats)]
    if persons is not None:
        folds = [fold[persons] for fold in folds]
    held_out: list[Tensor] = []
    for fold in folds:
        held_out += [fold == number for number in range(FOLDS)]
    total_rows = len(x) if rows is None else float(rows.sum())
    previous: dict[tuple[int, int], Tensor] = {}

    def mean_loss(ridge: float, strength: float) -> float:
        total = 0.0
        for output, y in enumerate(targets):
            mean, precision = prior(means[output], ridge, strength)
            for number, test in enumerate(held_out):
                start = previous.get((output, number))
                counts = None if rows is None else rows[~test]
                b = fit(x[~test], y[~test], kind, mean, precision, start, counts)
                previous[output, number] = b
                z = x[test] @ b[:-1] + b[-1]
                if kind == "logistic":
                    z = z.clamp(-_FURTHEST, _FURTHEST)
                counts = None if rows is None else rows[test]
                loss, _, _ = _terms(z, y[test], kind, counts)
                total += float(loss.sum())
        return total / (total_rows * repeats)

    local_losses = {ridge: mean_loss(ridge, 0.0) for ridge in ridges}
    ridge = min(local_losses, key=local_losses.__getitem__)
    losses = {}
    for strength in strengths:
        losses[strength] = local_losses[ridge] if strength == 0 else mean_loss(ridge, strength)
    best = min(losses, key=losses.__getitem__)
    return Chosen(ridge, best, losses[best])


def prior(mean: Tensor, ridge: float, strength: float) -> tuple[Tensor, Tensor]:
    """Return the mean and the precision of the coefficients' prior, (d,) each, given the other
    clients' coefficients ``mean`` (0 where they have no information).

    Example:
        >>> prior(torch.tensor([0.5, 0.0]), ridge=3.0, strength=10.0)
        (tensor([0.5000, 0.0000]), tensor([10.,  3.]))
        >>> prior(torch.tensor([0.5, 0.0]), ridge=3.0, strength=0.0)
        (tensor([0., 0.]), tensor([3., 3.]))
    """
    if strength == 0:
        return torch.zeros_like(mean), torch.full_like(mean, ridge)
    strengths = torch.full_like(mean, strength)
    return mean, torch.where(mean != 0, strengths, torch.full_like(mean, ridge))
