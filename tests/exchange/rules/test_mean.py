"""The mean rule against NumPy."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit import Mean, Round, Update
from fedlit.exchange.rules.mean import mean

SHAPES = {"core.weight": (3, 2), "core.bias": (3,), "scale": ()}


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans(), st.randoms(use_true_random=False))
def test_it_is_numpys_over_those_who_have_a_tensor_in_whatever_order_they_come(
    seed: int, clients: int, weighted: bool, shuffler: random.Random
) -> None:
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
    rows = {client: int(generator.integers(1, 5000)) for client in states}
    receivers = {**{client: tuple(state) for client, state in states.items()}, "absent": (*SHAPES, "sent by nobody")}

    def received(names: list[str], turn: int) -> dict[str, dict[str, torch.Tensor]]:
        updates = {name: Update(dict([*states[name].items()][::turn]), rows[name]) for name in names}
        own = Mean("rows" if weighted else "uniform")(Round(0, 0, updates, receivers))
        return {client: dict(state) for client, state in own.items()}

    found, arrived = received(list(states), 1), list(states)
    shuffler.shuffle(arrived)
    again = received(arrived, -1)
    whole = found["absent"]
    assert whole.keys() == {name for state in states.values() for name in state}
    for name, value in whole.items():
        owners = [client for client in states if name in states[client]]
        sent = np.stack([states[client][name].double().numpy() for client in owners])
        expected = np.average(sent, axis=0, weights=[rows[client] for client in owners] if weighted else None)
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-6, atol=1e-6 * np.abs(sent).max())
        assert torch.equal(value, again["absent"][name])  # 11: in the order of names
    for client, state in states.items():
        assert found[client].keys() == state.keys()
        assert all(torch.equal(value, whole[name]) for name, value in found[client].items())


def test_half_precision_is_summed_in_single_precision() -> None:
    """Beside 256 a bfloat16 sum does not see 1 any more."""
    states = {f"{n:03}": {"w": torch.tensor([256.0 if n == 0 else 1.0], dtype=torch.bfloat16)} for n in range(200)}
    assert mean(states)["w"].item() == pytest.approx((256 + 199) / 200, rel=2**-8)
