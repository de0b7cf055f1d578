"""Randomness is a function of seed and name, and leaves the global generators alone."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedlit.client.build import build_clients
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.nn import MLP, GlobalLayers, Network
from fedlit.seeding import derive_seed, initialise, isolated_rng
from fedlit.spec import ClientSpec

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)
SMALL = {"global_features": 3, "width": 4, "blocks": 2, "heads": 2}


def initialised(network: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    initialise(network, seed)
    return dict(network.named_parameters())


# ------------------------------------------------------------------ derive_seed


def test_derived_seeds_are_the_same_in_every_process() -> None:
    """Literal figures: Python's own hash would change with each process, and a resumed run with it."""
    assert derive_seed(0) == 4761921975702974394
    assert derive_seed(8, "rows", "neota", 0) == 4064058035765516956


def test_derived_seeds_keep_keys_apart() -> None:
    keys = [("a", "bc"), ("ab", "c"), ("abc",), ("a", "b", "c"), ("bc", "a"), ("a", "bc", ""), (), ("a", 1), ("a", 11)]
    seeds = [derive_seed(seed, *key) for seed in (0, 1, 11) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert derive_seed(1, 1, "x") != derive_seed(11, "x")


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 200), st.text("ab_-09", max_size=4), st.integers(0, 300)), unique=True))
def test_derived_seeds_are_distinct_and_fit_a_generator(keys: list[tuple[int, str, int]]) -> None:
    seeds = [derive_seed(*key) for key in keys]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    for seed in seeds:
        torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------ isolated_rng


def test_isolated_generator_is_seeded_inside_and_restored_outside() -> None:
    torch.manual_seed(5)
    before, numpy_before, python_before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with isolated_rng(7):
        inside = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()
    assert random.getstate() == python_before
    assert torch.equal(inside, torch.rand(4, generator=torch.Generator().manual_seed(7)))


def test_isolated_generator_is_restored_after_an_error() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="inside"), isolated_rng(7):
        torch.rand(4)
        raise RuntimeError("inside")
    assert torch.equal(torch.get_rng_state(), before)


def test_isolated_generators_nest() -> None:
    with isolated_rng(1):
        first = torch.rand(3)
        with isolated_rng(2):
            torch.rand(100)
        second = torch.rand(3)
    expected = torch.rand(6, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.cat([first, second]), expected)


# ------------------------------------------------------------------ initialise

PAIRS = [
    (lambda: GlobalLayers(5, 3, **SMALL), lambda: GlobalLayers(9, 1, **SMALL)),
    (lambda: GlobalLayers(5, 3, **SMALL), lambda: GlobalLayers(5, 7, **SMALL)),
    (lambda: GlobalLayers(5, 3, **SMALL), lambda: GlobalLayers(5, 3, **SMALL, gated=False, input_norm=False)),
    (lambda: MLP(5, 3, hidden=[8, 8, 8]), lambda: MLP(13, 1, hidden=[8, 8, 8])),
    (lambda: MLP(5, 3, hidden=[8, 8, 8]), lambda: MLP(5, 3, hidden=[8] * 5)),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=["columns", "classes", "form", "mlp", "mlp depth"])
def test_equal_names_and_shapes_start_equal_on_clients_that_differ_elsewhere(one: type, other: type) -> None:
    torch.manual_seed(1)
    mine = initialised(one(), seed=8)
    torch.manual_seed(2)  # what was drawn before plays no part
    torch.rand(17)
    theirs = initialised(other(), seed=8)
    common = [name for name in mine if name in theirs and mine[name].shape == theirs[name].shape]
    assert {name for name in mine if name.startswith("core.") and "w3" not in name} <= set(common)
    assert [name for name in common if not torch.equal(mine[name], theirs[name])] == []


@pytest.mark.parametrize(
    "build", [lambda: GlobalLayers(5, 3, **SMALL), lambda: MLP(5, 3, hidden=[8, 8, 8])], ids=["gl", "mlp"]
)
def test_seeds_give_different_weights(build: type) -> None:
    states = [initialised(build(), seed) for seed in (0, 1, 8)]
    matrices = [name for name, tensor in states[0].items() if tensor.dim() == 2]
    assert matrices
    for one, other in combinations(states, 2):
        assert [name for name in matrices if torch.equal(one[name], other[name])] == []


def test_layers_of_one_shape_differ_by_name() -> None:
    drawn = initialised(GlobalLayers(5, 3, **SMALL), seed=8)
    first, second = (drawn[f"encoder.blocks.{block}.attention.qkv.weight"] for block in (0, 1))
    assert first.shape == second.shape
    assert not torch.equal(first, second)


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


def test_initialise_resets_statistics_and_leaves_the_global_generator() -> None:
    network = GlobalLayers(5, 3, **SMALL).train()
    network(3 + torch.randn(20, 5))
    before = torch.get_rng_state()
    initialise(network, 8)
    assert torch.equal(torch.get_rng_state(), before)
    fresh = GlobalLayers(5, 3, **SMALL)
    changed = [name for name, buffer in fresh.named_buffers() if not torch.equal(buffer, network.get_buffer(name))]
    assert changed == []


def test_initialise_keeps_the_tensors() -> None:
    """In place: an optimizer that was given the parameters before still has them."""
    network = MLP(5, 3, hidden=[8, 8, 8])
    before = list(network.parameters())
    initialise(network, 8)
    assert all(one is other for one, other in zip(before, network.parameters(), strict=True))
    assert all(parameter.requires_grad for parameter in before)


class Token(nn.Module):
    """A parameter of its own and no ``reset_parameters``, as many published networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(4))


class WithToken(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Linear(num_features, 4), Token(), nn.Linear(4, num_outputs))


def test_torchs_attention_is_a_function_of_seed_and_name() -> None:
    torch.manual_seed(1)
    mine = initialised(nn.MultiheadAttention(4, 2), seed=8)
    torch.manual_seed(2)
    theirs = initialised(nn.MultiheadAttention(4, 2), seed=8)
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def test_a_parameter_drawn_outside_reset_parameters_is_refused() -> None:
    spec = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())
    with pytest.raises(ConfigError, match=r"client 'ash': .* found that core.token depend .* reset_parameters"):
        build_clients([spec], lambda spec: FederatedClient(spec, WithToken), seed=8)
