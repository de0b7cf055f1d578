"""Which tensors are federated: patterns, and what is refused before the first step."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedlit.errors import ConfigError
from fedlit.sharing import named_tensors, relative_distance, resolve, select

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)
NAMES = st.sets(st.text("abc.", min_size=1, max_size=6), max_size=8)


class Client(nn.Module):
    """Three parts of chosen widths; the core has a norm, and so float and integer buffers."""

    def __init__(self, inputs: int = 3, width: int = 4, outputs: int = 2) -> None:
        super().__init__()
        self.encoder = nn.Linear(inputs, width)
        self.core = nn.ModuleDict({"wide": nn.Linear(width, width), "norm": nn.BatchNorm1d(width)})
        self.head = nn.Linear(width, outputs)


# ------------------------------------------------------------------ select

TENSORS = [
    "encoder.blocks.0.norm.weight",
    "encoder.blocks.0.linear.weight",
    "encoder.blocks.10.norm.weight",
    "core.norm.weight",
    "core.linear.weight",
    "core.linear.bias",
    "core2.linear.bias",
    "head.bias",
]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], []),
        (["*"], [0, 1, 2, 3, 4, 5, 6, 7]),
        (["core"], [3, 4, 5]),  # a module's name, and never a mere beginning of one
        (["core.*"], [3, 4, 5]),
        (["core*"], [3, 4, 5, 6]),
        (["core.linear"], [4, 5]),
        (["core.linear.bias"], [5]),
        (["linear"], []),  # names are full names
        (["*.linear"], [1, 4, 5, 6]),
        (["encoder.blocks.?"], [0, 1]),
        (["encoder.blocks.*"], [0, 1, 2]),
        (["encoder.blocks.?.norm"], [0]),
        (["encoder.blocks.[0-9]*.norm"], [0, 2]),
        (["*norm*"], [0, 2, 3]),
        (["CORE"], []),
        (["head", "core.norm"], [3, 7]),  # in the order of the names, whatever that of the patterns
        (["core", "!core.norm"], [4, 5]),
        (["*", "!*norm*", "!encoder"], [4, 5, 6, 7]),
        (["!core.norm", "core"], [3, 4, 5]),  # later patterns win
        (["core", "!core", "core.norm"], [3]),
        (["*", "!core.*", "core.linear.weight"], [0, 1, 2, 4, 6, 7]),
        (["!*"], []),
    ],
)
def test_select(patterns: list[str], expected: list[int]) -> None:
    assert select(TENSORS, patterns) == [TENSORS[position] for position in expected]


def test_select_tells_upper_from_lower_case() -> None:
    assert select(["core.A.bias", "core.a.bias"], ["core.A"]) == ["core.A.bias"]


@PROPERTY
@given(
    st.lists(st.sampled_from(TENSORS), unique=True), st.sampled_from(["core", "*norm*", "encoder.blocks.?", "head.*"])
)
def test_a_pattern_and_its_negation_share_the_names_out(names: list[str], pattern: str) -> None:
    chosen, others = select(names, [pattern]), select(names, ["*", f"!{pattern}"])
    assert sorted(chosen + others) == sorted(names)
    assert not set(chosen) & set(others)
    assert chosen == [name for name in names if name in set(chosen)]


# ------------------------------------------------------------------ resolve


def test_federated_core_of_clients_that_differ_elsewhere() -> None:
    clients = {"b": Client(inputs=7, outputs=5), "a": Client()}
    sharing = resolve(clients, ["core"])
    core = ("core.wide.weight", "core.wide.bias", "core.norm.weight", "core.norm.bias")
    assert sharing.names == sharing.parameters == {"a": core, "b": core}
    assert sharing.all_names == list(core)


def test_no_patterns_federate_nothing() -> None:
    sharing = resolve({"a": Client(), "b": Client(inputs=9)}, [])
    assert sharing.names == {"a": (), "b": ()}
    assert sharing.all_names == []


@pytest.mark.parametrize("pattern", ["core", "*", "core.norm.*"])
def test_buffers_travel_on_request_and_integers_never(pattern: str) -> None:
    clients = {"a": Client(), "b": Client()}
    private, average = resolve(clients, [pattern], "private"), resolve(clients, [pattern], "average")
    buffers = ("core.norm.running_mean", "core.norm.running_var")
    assert not any(name in private.names["a"] for name in buffers)
    assert average.names["a"] == (*private.names["a"], *buffers)  # parameters first
    assert average.parameters == private.parameters
    assert "core.norm.num_batches_tracked" in named_tensors(clients["a"])
    assert "core.norm.num_batches_tracked" not in average.all_names


def test_tensor_that_only_some_clients_have() -> None:
    with_extra = Client()
    with_extra.core["extra"] = nn.Linear(2, 2)
    sharing = resolve({"a": Client(), "b": with_extra, "c": Client()}, ["core.wide", "core.extra"])
    wide, extra = ("core.wide.weight", "core.wide.bias"), ("core.extra.weight", "core.extra.bias")
    assert sharing.names == {"a": wide, "b": (*wide, *extra), "c": wide}
    assert sharing.all_names == [*wide, *extra]


def test_pattern_that_matches_nothing_is_refused_with_a_hint() -> None:
    text = (
        "pattern 'coer.*': expected to match a module or tensor of some client, found none; "
        "the networks' parts are core, encoder, head. Did you mean 'core'?"
    )
    with pytest.raises(ConfigError, match=re.escape(text)):
        resolve({"a": Client(), "b": Client()}, ["encoder", "coer.*"])


def test_negated_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=re.escape("pattern '!core.nrom': expected to match a module or tensor")):
        resolve({"a": Client()}, ["core", "!core.nrom"])


def test_shapes_that_clash_are_refused_with_both_clients() -> None:
    text = "core.wide.weight: expected one shape on all clients that federate it, found (4, 4) on 'a' and (6, 6) on 'c'"
    with pytest.raises(ConfigError, match=re.escape(text)) as error:
        resolve({"c": Client(width=6), "b": Client(), "a": Client()}, ["core"])
    assert "on 'b'" not in str(error.value)
    assert "data.align: both" in str(error.value)


def test_shapes_of_private_tensors_may_clash() -> None:
    sharing = resolve({"a": Client(width=4), "b": Client(width=6)}, ["head.bias"])
    assert sharing.names == {"a": ("head.bias",), "b": ("head.bias",)}


def test_shapes_of_buffers_clash_only_where_they_travel() -> None:
    def client(size: int) -> nn.Module:
        module = nn.Module()
        module.core = nn.Linear(2, 2)
        module.core.register_buffer("seen", torch.zeros(size))
        return module

    clients = {"a": client(3), "b": client(5)}
    assert resolve(clients, ["core"]).names["a"] == ("core.weight", "core.bias")
    with pytest.raises(ConfigError, match=re.escape("core.seen: expected one shape")):
        resolve(clients, ["core"], "average")


def test_all_problems_in_one_message() -> None:
    clients = {"a": Client(), "b": Client(inputs=7), "c": Client(outputs=9)}
    with pytest.raises(ConfigError) as error:
        resolve(clients, ["encodr", "haed.*", "encoder", "head"])
    message = str(error.value)
    assert message.startswith("exchange.federated cannot be applied:\n")
    for part in (
        "pattern 'encodr'",
        "Did you mean 'encoder'?",
        "pattern 'haed.*'",
        "Did you mean 'head'?",
        "encoder.weight: expected one shape on all clients that federate it, found (4, 3) on 'a' and (4, 7) on 'b'",
        "head.weight: expected one shape on all clients that federate it, found (2, 4) on 'a' and (9, 4) on 'c'",
    ):
        assert part in message


def test_order_of_clients_is_irrelevant() -> None:
    clients = {"a": Client(), "b": Client(inputs=5), "c": Client(outputs=3)}
    turned = dict(reversed(clients.items()))
    assert resolve(clients, ["core", "!*.bias"], "average") == resolve(turned, ["core", "!*.bias"], "average")


@pytest.mark.parametrize("pattern", ["core.norm.running_mean", "*num_batches_tracked"])
def test_pattern_of_buffers_alone_is_refused_where_buffers_are_private(pattern: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(pattern)):
        resolve({"a": Client(), "b": Client()}, [pattern])


def test_tied_parameter_is_a_parameter_under_both_names() -> None:
    client = Client(inputs=4)
    client.core["wide"].weight = client.encoder.weight
    assert "core.wide.weight" in resolve({"a": client}, ["core"]).parameters["a"]


def test_hint_does_not_name_what_was_written_correctly() -> None:
    with pytest.raises(ConfigError) as error:
        resolve({"a": Client()}, ["core.wdie"])
    assert "Did you mean 'core'?" not in str(error.value)


def test_patterns_that_cancel_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="cancel each other"):
        resolve({"a": Client()}, ["core", "!core"])


def test_a_tied_tensor_travels_once() -> None:
    client = Client(inputs=4)
    client.core["wide"].weight = client.encoder.weight
    names = resolve({"a": client}, ["*"]).names["a"]
    assert "encoder.weight" in names and "core.wide.weight" not in names


# ------------------------------------------------------------------ how far a client is from what it receives


@PROPERTY
@given(st.integers(0, 10_000))
def test_relative_distance_equals_numpy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    one, other = (
        {
            name: generator.normal(size=shape)
            for name, shape in {"core.weight": (3, 2), "core.bias": (3,), "scale": ()}.items()
        }
        for _ in range(2)
    )
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
