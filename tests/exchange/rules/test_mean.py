"""The mean rule against NumPy."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.exchange.rules import Mean, Round, Update, mean

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)

SHAPES = {"core.weight": (3, 2), "core.bias": (3,), "scale": ()}


def draw_states(seed: int, clients: int) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, float]]:
    """Mixed signs, sizes from 1e-2 to 1e2, clients that lack some tensors, weights from 1 to 5000."""
    generator = np.random.default_rng(seed)
    states = {
        f"client{number}": {
            name: torch.tensor(generator.normal(size=shape) * 10.0 ** generator.integers(-2, 3), dtype=torch.float32)
            for name, shape in SHAPES.items()
            if generator.random() < 0.8
        }
        for number in range(clients)
    }
    return states, {client: float(generator.integers(1, 5000)) for client in states}


def numpy_mean(states: dict[str, dict[str, torch.Tensor]], weights: dict[str, float] | None) -> dict[str, np.ndarray]:
    result = {}
    for name in SHAPES:
        owners = [client for client in states if name in states[client]]
        if owners:
            values = np.stack([states[client][name].double().numpy() for client in owners])
            result[name] = np.average(values, axis=0, weights=[weights[c] for c in owners] if weights else None)
    return result


@PROPERTY
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans())
def test_mean_equals_numpy(seed: int, clients: int, weighted: bool) -> None:
    states, weights = draw_states(seed, clients)
    result = mean(states, weights if weighted else None)
    expected = numpy_mean(states, weights if weighted else None)
    assert result.keys() == expected.keys()
    for name, value in expected.items():
        largest = max(float(state[name].abs().max()) for state in states.values() if name in state)
        np.testing.assert_allclose(result[name].numpy(), value, rtol=1e-6, atol=1e-6 * largest)


@PROPERTY
@given(st.integers(0, 10_000), st.booleans(), st.randoms(use_true_random=False))
def test_11_order_of_arrival_gives_the_same_bits(seed: int, weighted: bool, shuffler: random.Random) -> None:
    states, weights = draw_states(seed, 6)
    arrived = list(states)
    shuffler.shuffle(arrived)
    turned = {client: dict(reversed(states[client].items())) for client in arrived}
    one, other = mean(states, weights if weighted else None), mean(turned, weights if weighted else None)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_half_precision_is_summed_in_single_precision() -> None:
    """Beside 256 a bfloat16 sum does not see 1 any more."""
    states = {f"{n:03}": {"w": torch.tensor([256.0 if n == 0 else 1.0], dtype=torch.bfloat16)} for n in range(200)}
    assert mean(states)["w"].item() == pytest.approx((256 + 199) / 200, rel=2**-8)


# ------------------------------------------------------------------ the rule


def test_5_rule_gives_each_client_the_names_it_has() -> None:
    sent = {
        "a": Update({"w": torch.tensor([1.0]), "v": torch.tensor([5.0])}, 1),
        "b": Update({"w": torch.tensor([3.0])}, 1),
    }
    # c was left out because its state was not finite; nobody sent u
    receivers = {"a": ("w", "v"), "b": ("w",), "c": ("v", "w", "u"), "d": ()}
    received = Mean()(Round(0, 0, sent, receivers))
    assert {client: {name: value.item() for name, value in state.items()} for client, state in received.items()} == {
        "a": {"w": 2.0, "v": 5.0},
        "b": {"w": 2.0},
        "c": {"w": 2.0, "v": 5.0},
        "d": {},
    }
