"""The mean rule against NumPy; when an exchange is due, and how far a client is from what it receives."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import Mean, Update, mean
from fedlit.sharing import relative_distance

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
def test_order_of_arrival_gives_the_same_bits(seed: int, weighted: bool, shuffler: random.Random) -> None:
    states, weights = draw_states(seed, 6)
    arrived = list(states)
    shuffler.shuffle(arrived)
    turned = {client: dict(reversed(states[client].items())) for client in arrived}
    one, other = mean(states, weights if weighted else None), mean(turned, weights if weighted else None)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_order_would_matter_otherwise() -> None:
    """Why sums run in name order: in single precision these three do not commute."""
    values = {"a": 1e8, "b": 1.0, "c": -1e8}
    assert mean({client: {"w": torch.tensor(value)} for client, value in values.items()})["w"] == 0
    other = {"a": 1e8, "c": 1.0, "b": -1e8}
    assert mean({client: {"w": torch.tensor(value)} for client, value in other.items()})["w"] == pytest.approx(1 / 3)


def test_tensor_that_two_of_three_clients_have_is_averaged_over_the_two() -> None:
    states = {
        "a": {"w": torch.ones(2), "v": torch.full((1,), -2.0)},
        "b": {"w": torch.ones(2)},
        "c": {"v": torch.full((1,), 4.0)},
    }
    result = mean(states)
    assert result["w"].tolist() == [1.0, 1.0]  # over all three it would be 0.667
    assert result["v"].tolist() == [1.0]
    weighted = mean(states, {"a": 3.0, "b": 100.0, "c": 1.0})
    assert weighted["w"].tolist() == [1.0, 1.0]
    assert weighted["v"].tolist() == [(-2.0 * 3 + 4.0) / 4]


def test_single_client_receives_what_it_sent() -> None:
    state = {"w": torch.randn(50)}
    assert torch.equal(mean({"a": state})["w"], state["w"])
    torch.testing.assert_close(mean({"a": state}, {"a": 4771.0})["w"], state["w"])


def test_nobody_sends_anything() -> None:
    assert mean({}) == mean({"a": {}, "b": {}}) == {}


def test_inputs_are_left_alone() -> None:
    states, weights = draw_states(3, 4)
    for state in states.values():
        for tensor in state.values():
            tensor.requires_grad_()
    before = {
        client: {name: tensor.detach().clone() for name, tensor in state.items()} for client, state in states.items()
    }
    result = mean(states, weights)
    for client, state in states.items():
        for name, tensor in state.items():
            assert torch.equal(tensor, before[client][name])
    assert not any(tensor.requires_grad for tensor in result.values())
    for tensor in mean({"a": states["client0"]}).values():  # a new tensor even where one client sends
        tensor.fill_(7)
    for name, tensor in states["client0"].items():
        assert torch.equal(tensor, before["client0"][name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    states = {client: {"w": torch.tensor([value], dtype=dtype)} for client, value in (("a", 1.0), ("b", -3.0))}
    for weights in (None, {"a": 3.0, "b": 1.0}):
        assert mean(states, weights)["w"].dtype == dtype
    assert mean(states)["w"].tolist() == [-1.0]


def test_device_is_kept_and_values_are_not_read() -> None:
    """Tensors on the meta device have no values: whatever would copy them to the CPU or look at them fails."""
    states = {client: {"w": torch.empty(3, 2, device="meta")} for client in ("a", "b")}
    result = mean(states, {"a": 1.0, "b": 2.0})["w"]
    assert (result.device.type, tuple(result.shape)) == ("meta", (3, 2))


def test_half_precision_is_summed_in_single_precision() -> None:
    """Beside 256 a bfloat16 sum does not see 1 any more."""
    states = {f"{n:03}": {"w": torch.tensor([256.0 if n == 0 else 1.0], dtype=torch.bfloat16)} for n in range(200)}
    assert mean(states)["w"].item() == pytest.approx((256 + 199) / 200, rel=2**-8)


# ------------------------------------------------------------------ the rule


def updates(**sent: tuple[float, int]) -> dict[str, Update]:
    return {client: Update({"w": torch.tensor([value])}, rows) for client, (value, rows) in sent.items()}


def test_rule_weighs_clients_alike_or_by_rows() -> None:
    sent, receivers = updates(a=(1.0, 300), b=(-3.0, 100)), {"a": ("w",), "b": ("w",)}
    assert Mean()(sent, receivers)["a"]["w"].item() == pytest.approx(-1.0)
    by_rows = Mean(weights="rows")(sent, receivers)
    assert by_rows["a"]["w"].item() == pytest.approx((300 * 1.0 - 100 * 3.0) / 400)
    assert torch.equal(by_rows["a"]["w"], by_rows["b"]["w"])


def test_rule_gives_each_client_the_names_it_has() -> None:
    sent = {
        "a": Update({"w": torch.tensor([1.0]), "v": torch.tensor([5.0])}, 1),
        "b": Update({"w": torch.tensor([3.0])}, 1),
    }
    # c was left out because its state was not finite; nobody sent u
    receivers = {"a": ("w", "v"), "b": ("w",), "c": ("v", "w", "u"), "d": ()}
    received = Mean()(sent, receivers)
    assert {client: {name: value.item() for name, value in state.items()} for client, state in received.items()} == {
        "a": {"w": 2.0, "v": 5.0},
        "b": {"w": 2.0},
        "c": {"w": 2.0, "v": 5.0},
        "d": {},
    }


def test_rule_remembers_nothing() -> None:
    rule, sent, receivers = Mean(), updates(a=(1.0, 1), b=(2.0, 1)), {"a": ("w",), "b": ("w",)}
    first = rule(sent, receivers)["a"]["w"].clone()
    rule(updates(a=(100.0, 1), b=(50.0, 1)), receivers)
    assert torch.equal(rule(sent, receivers)["a"]["w"], first)
    assert rule.state_dict() == {}


# ------------------------------------------------------------------ when an exchange is due


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("step", list(range(12))),
        ("epoch", [3, 7, 11]),
        ({"steps": 1}, list(range(12))),
        ({"steps": 5}, [4, 9]),  # counted over epochs
        ({"epochs": 1}, [3, 7, 11]),
        ({"epochs": 2}, [7]),
    ],
)
def test_due(every: str | dict[str, int], expected: list[int]) -> None:
    """Three epochs of four aligned steps."""
    exchange = Exchange(["core"], every=every)
    assert [s for s in range(12) if exchange.due(step=s, last=s % 4 == 3, epoch=s // 4)] == expected


@pytest.mark.parametrize("every", ["step", "epoch", {"steps": 1}, {"epochs": 1}])
def test_never_due_without_federated_parts(every: str | dict[str, int]) -> None:
    assert not Exchange([], every=every).due(step=3, last=True, epoch=0)
    assert not Exchange(every=every).due(step=3, last=True, epoch=0)


# ------------------------------------------------------------------ how far a client is from what it receives


@PROPERTY
@given(st.integers(0, 10_000))
def test_relative_distance_equals_numpy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, other = ({name: generator.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(2))
    flat_one, flat_other = (np.concatenate([value.ravel() for value in state.values()]) for state in (one, other))
    expected = np.linalg.norm(flat_one - flat_other) / np.linalg.norm(flat_other)
    as_tensors = [{name: torch.tensor(value) for name, value in state.items()} for state in (one, other)]
    distance = relative_distance(*as_tensors)
    assert distance is not None and float(distance) == pytest.approx(expected, rel=1e-9)


def test_relative_distance_runs_over_the_tensors_that_both_have() -> None:
    state = {"w": torch.tensor([3.0]), "mine": torch.tensor([100.0])}
    reference = {"w": torch.tensor([2.0]), "theirs": torch.tensor([7.0])}
    distance = relative_distance(state, reference)
    assert distance is not None and float(distance) == pytest.approx(0.5)


def test_relative_distance_of_equal_and_of_disjoint_states() -> None:
    state = {"w": torch.tensor([3.0, -1.0])}
    assert relative_distance(state, {"w": state["w"].clone()}) == 0
    assert relative_distance(state, {}) is None
    assert relative_distance({}, state) is None


def test_relative_distance_of_zeros() -> None:
    zeros = {"w": torch.zeros(3)}
    distance = relative_distance(zeros, zeros)
    assert distance is not None and math.isnan(distance)  # undefined, and left out of curves


def test_a_masked_mean_is_the_mean_of_the_others() -> None:
    generator = torch.Generator().manual_seed(3)
    states = {name: {"w": torch.randn(5, generator=generator)} for name in "abc"}
    states["b"]["w"][2] = float("nan")
    rows = {"a": 3.0, "b": 5.0, "c": 11.0}
    finite = {name: torch.isfinite(state["w"]).all() for name, state in states.items()}
    for weights in (None, rows):
        others = {name: value for name, value in (weights or {}).items() if name != "b"}
        expected = mean({name: states[name] for name in "ac"}, others or None)
        assert torch.equal(mean(states, weights, finite)["w"], expected["w"])
