"""Linear models with Gaussian priors: against scipy, closed forms and differences."""

import numpy as np
import torch
from torch import Tensor

from fedlit.methods.penalised import choose

INFINITE = float("inf")


def made(rows: int = 80, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    y = (x @ [1.0, -2.0, 0.5, 0.0] + rng.logistic(size=rows) > 0.3).astype(float)
    return torch.tensor(x), torch.tensor(y)


def test_cross_validation_believes_who_is_right() -> None:
    x, y = made(60)
    right = torch.tensor([[1.0, -2.0, 0.5, 0.0]]).double()
    assert choose(x, [y], "logistic", right).strength >= 10
    assert choose(x, [y], "logistic", -right).strength == 0.3
    alone = choose(x, [y], "logistic", 0 * right)
    assert alone.strength == 0 and alone.ridge in (0.3, 1.0, 3.0) and 0.2 < alone.loss < 0.693
    few = choose(x[:9], [y[:9]], "logistic", right)
    assert (few.strength, few.ridge) == (INFINITE, 3.0)
