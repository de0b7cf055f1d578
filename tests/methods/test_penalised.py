"""Linear models with Gaussian priors: against scipy, closed forms and differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from fedlit.methods.penalised import INTERCEPT, choose, fit, profile

INFINITE = float("inf")


def made(rows: int = 80, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    y = (x @ [1.0, -2.0, 0.5, 0.0] + rng.logistic(size=rows) > 0.3).astype(float)
    return torch.tensor(x), torch.tensor(y)


def test_a_fit_is_scipys_minimum() -> None:
    x, y = made()
    mean, precision = torch.tensor([0.5, 0.0, -1.0, 2.0]).double(), torch.tensor([3.0, 0.3, 10.0, 1.0]).double()

    def objective(b: np.ndarray) -> float:
        z = x.numpy() @ b[:4] + b[4]
        prior = 0.5 * (precision.numpy() * (b[:4] - mean.numpy()) ** 2).sum() + 0.5 * INTERCEPT * b[4] ** 2
        return float(np.logaddexp(0, z).sum() - (y.numpy() * z).sum() + prior)

    expected = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-7}).x
    assert fit(x, y, "logistic", mean, precision).numpy() == pytest.approx(expected, abs=1e-6)
    far = torch.full((5,), 30.0).double()  # from where a whole step of Newton's would climb
    assert fit(x, y, "logistic", mean, precision, far).numpy() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["logistic", "gaussian"])
def test_the_profile_is_what_remains_where_own_coefficients_fit_best(kind: str) -> None:
    x, y = made()
    shared, own, point = x[:, :2], x[:, 2:], torch.tensor([0.3, -0.7]).double()
    value, gradient, curvature = (found[0] for found in profile(shared, own, y, kind, point[None], 2.0))  # type: ignore[arg-type]
    near = 1e-5 * torch.eye(2).double()
    up, down = (profile(shared, own, y, kind, point + sign * near, 2.0) for sign in (1, -1))  # type: ignore[arg-type]
    assert torch.allclose((up[0] - down[0]) / 2e-5, gradient, atol=1e-6)
    assert torch.allclose((up[1] - down[1]) / 2e-5, curvature, atol=1e-6)
    mean = torch.tensor([0.3, -0.7, 0.0, 0.0]).double()
    best = fit(x, y, kind, mean, torch.tensor([INFINITE, INFINITE, 2.0, 2.0]).double())  # type: ignore[arg-type]
    z = x @ best[:4] + best[4]
    loss = torch.nn.functional.softplus(z) - y * z if kind == "logistic" else 0.5 * (z - y).square()
    penalty = best[2:4].square().sum() + 0.5 * INTERCEPT * best[4].square()
    assert value.item() == pytest.approx((loss.sum() + penalty).item(), abs=1e-9)


def test_cross_validation_believes_who_is_right() -> None:
    x, y = made(60)
    right = torch.tensor([[1.0, -2.0, 0.5, 0.0]]).double()
    assert choose(x, [y], "logistic", right).strength >= 10
    assert choose(x, [y], "logistic", -right).strength == 0.3
    alone = choose(x, [y], "logistic", 0 * right)
    assert alone.strength == 0 and alone.ridge in (0.3, 1.0, 3.0) and 0.2 < alone.loss < 0.693
    few = choose(x[:9], [y[:9]], "logistic", right)
    assert (few.strength, few.ridge) == (INFINITE, 3.0)
