import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import chi2, kstest, norm
from torch import Tensor

from fedlit.privacy.client_level import clipped, epsilon, gaussian, length, noised
from fedlit.privacy.settings import ClientLevel


def exact(noise: float, rounds: int, delta: float) -> float:
    """ε of the Gaussian mechanism in closed form (Balle and Wang 2018, Theorem 8); so many rounds
    are one of √rounds times the distance (Dong et al. 2019).
    """
    mu = 2 * math.sqrt(rounds) / noise
    return float(
        brentq(
            lambda own: (
                norm.cdf(mu / 2 - own / mu)
                - math.exp(own + norm.logcdf(-mu / 2 - own / mu))
                - delta
            ),
            0,
            mu * mu + 20 * mu,
        )
    )


@pytest.mark.parametrize(
    ("noise", "rounds"), [(1.0, 1), (2.0, 1), (20.0, 1), (4.0, 30), (0.5, 30), (30.0, 1000)]
)
def test_epsilon_is_above_the_exact_one_and_close(noise: float, rounds: int) -> None:
    closed = exact(noise, rounds, 1e-5)
    assert closed <= epsilon([noise] * rounds, 1e-5) <= 1.15 * closed
    # Rényi's of order α is α T d² / (2 σ²); by Canonne, Kamath and Steinke 2020, Prop. 12, ε is at
    # most
    orders = np.linspace(1.001, 200, 200_000)
    bound = (
        orders * rounds * (2 / noise) ** 2 / 2
        + np.log1p(-1 / orders)
        - np.log(1e-5 * orders) / (orders - 1)
    )
    assert epsilon([noise] * rounds, 1e-5) == pytest.approx(bound.min(), rel=0.02)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.floats(1e-3, 1e6))
def test_clipping_is_exact(values: list[float], clip: float) -> None:
    update = {"a": torch.tensor(values).double(), "b": torch.tensor([[1.0]]).double()}
    short = clipped(update, clip)
    assert length(short) <= clip * (1 + 1e-12)
    if length(update) <= clip:
        assert all(torch.equal(short[name], update[name]) for name in update)
    else:
        assert length(short) == pytest.approx(clip, rel=1e-12)
        for name in update:
            assert torch.allclose(short[name] * (length(update) / clip), update[name], rtol=1e-12)


def test_noise_is_never_the_same_and_from_no_generator_of_torch() -> None:
    drawn = gaussian(100_000, 3.0).numpy()
    other = gaussian(100_000, 3.0).numpy()
    assert abs(np.corrcoef(drawn, other)[0, 1]) < 6 / math.sqrt(100_000)
    before = torch.get_rng_state()
    assert not torch.equal(gaussian(5, 1.0), gaussian(5, 1.0)) and torch.equal(
        torch.get_rng_state(), before
    )


def made(count: int = 20_000) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    random = torch.Generator().manual_seed(8)
    before = {
        "w": torch.randn(count, generator=random),
        "b": torch.randn(2, 2, generator=random).double(),
    }
    return {name: own + 0.01 for name, own in before.items()}, before


def test_an_answer_is_the_clipped_update_with_stated_noise() -> None:
    state, before = made()
    sent = noised(state, before, ClientLevel(clip=0.5, noise=0.2))
    short = clipped({name: state[name].double() - before[name].double() for name in state}, 0.5)
    assert length(short) == pytest.approx(0.5)
    noise = torch.cat(
        [(sent[name].double() - before[name].double() - short[name]).reshape(-1) for name in state]
    )
    assert 1e-6 < chi2.cdf(float(noise.square().sum()) / 0.1**2, len(noise)) < 1 - 1e-6
    assert kstest(noise.numpy() / 0.1, "norm").pvalue > 1e-6
    assert {name: own.dtype for name, own in sent.items()} == {
        name: own.dtype for name, own in state.items()
    }
