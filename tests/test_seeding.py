"""Randomness is a function of seed and name, and leaves the global generators alone; on all
clients: contract 9."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedlit import GlobalLayers
from fedlit.seeding import derive_seed, initialise, isolated_rng

SMALL: dict[str, Any] = {"global_features": 3, "width": 4, "blocks": 2, "heads": 2}


def initialised(network: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    initialise(network, seed)
    return dict(network.named_parameters())


def test_derived_seeds_are_the_same_in_every_process() -> None:
    """Literal figures: Python's own hash would change with each process, and a resumed run with
    it."""
    assert derive_seed(0) == 4761921975702974394
    assert derive_seed(8, "rows", "neota", 0) == 4064058035765516956


def test_isolated_generators_nest_and_leave_all_others_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    numpy_before = np.random.get_state(legacy=False)["state"]["key"].copy()
    python_before = random.getstate()
    with pytest.raises(RuntimeError, match="inside"), isolated_rng(7):
        first = torch.rand(2)
        with isolated_rng(2):
            torch.rand(100)
        second = torch.rand(2)
        raise RuntimeError("inside")
    assert torch.equal(torch.get_rng_state(), before) and random.getstate() == python_before
    assert (np.random.get_state(legacy=False)["state"]["key"] == numpy_before).all()
    assert torch.equal(
        torch.cat([first, second]), torch.rand(4, generator=torch.Generator().manual_seed(7))
    )


def test_initial_values_differ_by_seed_and_name() -> None:
    network = GlobalLayers(5, 3, **SMALL).train()
    network(3 + torch.randn(20, 5))
    kept = list(network.parameters())
    before = torch.get_rng_state()
    drawn = {name: value.clone() for name, value in initialised(network, 8).items()}
    assert torch.equal(torch.get_rng_state(), before)
    first, second = (drawn[f"encoder.blocks.{block}.attention.qkv.weight"] for block in (0, 1))
    assert first.shape == second.shape and not torch.equal(first, second)
    fresh = GlobalLayers(5, 3, **SMALL)
    assert all(
        torch.equal(buffer, network.get_buffer(name)) for name, buffer in fresh.named_buffers()
    )
    other = initialised(network, 1)
    assert not any(
        torch.equal(value, other[name]) for name, value in drawn.items() if value.dim() == 2
    )
    # optimizers have them
    assert all(one is now for one, now in zip(kept, network.parameters(), strict=True))


def test_initial_values_follow_torch_but_for_biases() -> None:
    """Weights of a linear layer are U(−1/√inputs, 1/√inputs) as in torch; its bias is 0."""
    drawn = initialised(GlobalLayers(5, 3, global_features=3, width=16, blocks=1), seed=8)
    weight = drawn["core.wide.inner.w1.weight"]
    bound = weight.shape[1] ** -0.5
    assert 0.99 * bound < weight.abs().max() <= bound
    assert abs(weight.mean()) < 0.02 * bound
    assert abs(weight.var() - bound**2 / 3) < 0.03 * bound**2
    assert torch.equal(drawn["core.wide.inner.w1.bias"], torch.zeros(48))
    assert torch.equal(drawn["core.wide.inner.norm.weight"], torch.ones(192))


def test_torchs_attention_starts_as_its_seed_and_name_say() -> None:
    first, second = (
        initialised(nn.MultiheadAttention(4, 2), seed=8)["in_proj_weight"] for _ in range(2)
    )
    assert torch.equal(first, second)
