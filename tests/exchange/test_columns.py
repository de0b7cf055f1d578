"""An exchange over columns gives the bits of a loop over clients, however tensors lie in memory."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedlit.exchange.apply import apart, write_back_all
from fedlit.exchange.columns import Columns, Updates, relative_distances
from fedlit.exchange.far import norms_of
from fedlit.exchange.rule import Update
from fedlit.exchange.rules.mean import mean
from fedlit.exchange.screening import screen
from fedlit.sharing import Sharing, State
from fedlit.stacks import LONG, starts_of

SHAPES = {"weight": (7, 5), "bias": (33,), "scale": (), "core.running_var": (3,), "wide": (LONG,)}
CLIENTS = tuple(f"site{number:02d}" for number in range(19))
# layout → how many clients share a stack, one after another in the order of names
LAYOUTS = {"each alone": 1, "one stack": 19, "two stacks": 10, "stacks of three": 3}

States = dict[str, dict[str, Tensor]]


def states_of(layout: str, absent: Mapping[str, str] | None = None, seed: int = 0) -> States:
    """Return clients' tensors of very different sizes, with the same values in every layout.

    ``absent`` maps clients to the tensor that each lacks.
    """
    generator = torch.Generator().manual_seed(seed)
    size = LAYOUTS[layout]
    states: States = {client: {} for client in CLIENTS}
    for name, shape in SHAPES.items():
        values = torch.randn((len(CLIENTS), *shape), generator=generator)
        values *= torch.logspace(-3, 3, len(CLIENTS)).view(-1, *[1] * len(shape))
        for start in range(0, len(CLIENTS), size):
            stack = values[start : start + size].clone()
            for client, row in zip(CLIENTS[start : start + size], stack, strict=True):
                states[client][name] = row
    for client, name in (absent or {}).items():
        del states[client][name]
    return states


def loop_mean(states: States, weights: Mapping[str, float]) -> dict[str, Tensor]:
    """Add one client after another."""
    total: dict[str, Tensor] = {}
    weight: dict[str, float] = {}
    for client in sorted(states):
        for name, value in states[client].items():
            if name in total:
                total[name].add_(value, alpha=weights[client])
                weight[name] += weights[client]
            else:
                total[name] = value * weights[client]
                weight[name] = weights[client]
    return {name: value / weight[name] for name, value in total.items()}


def loop_distance(state: State, reference: State) -> Tensor:
    distances = torch.stack([(state[name] - reference[name]).norm() for name in state])
    return distances.norm() / torch.stack([reference[name].norm() for name in state]).norm()


ABSENT = {"site04": "weight", "site11": "bias", "site12": "bias"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by_rows", [False, True])
def test_mean_has_the_bits_of_one_client_after_another(layout: str, by_rows: bool) -> None:
    weights = dict.fromkeys(CLIENTS, 1.0)
    if by_rows:
        weights = {client: 3.0 + 7 * number for number, client in enumerate(CLIENTS)}
    states = states_of(layout, ABSENT)
    expected = loop_mean(states_of("each alone", ABSENT), weights)
    averages = mean(states, weights)
    assert averages.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(averages[name], value), name


def test_mean_of_minus_zero_is_minus_zero() -> None:
    states = {client: {"w": torch.tensor([-0.0])} for client in CLIENTS}
    assert math.copysign(1.0, float(mean(states)["w"])) == -1.0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("same", [True, False], ids=["one reference", "each its own"])
def test_norms_and_distances_are_those_of_each_client_alone(layout: str, same: bool) -> None:
    states = states_of(layout, ABSENT)
    given = states_of("each alone", seed=1)
    if same:
        given = dict.fromkeys(CLIENTS, given["site09"])
    columns = Columns(states)
    names, norms = norms_of(columns, given, SHAPES)
    distances = relative_distances(columns, given, dict.fromkeys(CLIENTS, tuple(SHAPES)))
    for row, client in enumerate(CLIENTS):
        state = states[client]
        for index, name in enumerate(names):
            if name not in state:
                assert norms[:, row, index].isnan().all()
                continue
            impossible = name == "core.running_var" and bool((state[name] < 0).any())
            size = torch.tensor(math.inf) if impossible else state[name].norm()
            assert torch.equal(norms[1, row, index], size)
            assert torch.equal(norms[0, row, index], (state[name] - given[client][name]).norm())
        assert torch.equal(distances[client], loop_distance(state, given[client]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_client_that_is_not_finite_is_found_in_a_stack(layout: str) -> None:
    states = states_of(layout)
    states["site03"]["weight"][2, 2] = math.nan
    states["site18"]["scale"].fill_(-math.inf)
    states["site05"]["bias"][1] = 3e38  # whose square is not finite, while it is
    updates = Updates.of({client: Update(state) for client, state in states.items()})
    usable, lost, _ = screen(updates, Sharing({}, {}), None)
    assert lost == ("site03", "site18")
    assert list(usable) == [client for client in CLIENTS if client not in lost]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_every_client_takes_over_what_it_receives(layout: str, rate: float) -> None:
    """``site07`` receives nothing, ``site02`` something else, and all others what ``site09`` sent,
    which is overwritten meanwhile."""
    states = states_of(layout)
    own = states_of("each alone", seed=2)["site02"]
    received: dict[str, State] = dict.fromkeys(CLIENTS, states["site09"])
    received["site02"] = own
    del received["site07"]
    before = states_of(layout)
    updates = Updates.of({client: Update(state) for client, state in states.items()})
    write_back_all(updates.columns, apart(received, updates), rate)
    for client, state in states.items():
        for name, value in state.items():
            expected = before[client][name]
            if client in received:
                target = own[name] if client == "site02" else before["site09"][name]
                expected = target if rate == 1 else expected.lerp(target, rate)
            assert torch.equal(value, expected), (client, name)


def test_layouts_are_recognised() -> None:
    for layout, size in LAYOUTS.items():
        states = states_of(layout)
        tensors = [states[client]["weight"] for client in CLIENTS]
        assert starts_of(tensors) == list(range(0, len(CLIENTS), size))
