"""What a rule returns is checked before it is written; mistakes are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import make_run
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.errors import RunError
from fedlit.exchange.checked import check_received
from fedlit.exchange.questions import bytes_of
from fedlit.exchange.rules import Mean, Round, Update
from fedlit.exchange.transport import InProcess
from fedlit.sharing import State

NAME = "core.0.weight"
Received = dict[str, dict[str, Any]]


class Wrong(Mean):
    """The mean, with a mistake in it."""

    def __init__(self, mistake: Callable[[Received], Any], at_begin: bool = False) -> None:
        super().__init__()
        self.mistake, self.at_begin = mistake, at_begin

    def begin(self, round: Round) -> Any:
        return self.mistake(self._own(round)) if self.at_begin else {}

    def __call__(self, round: Round) -> Any:
        return super().__call__(round) if self.at_begin else self.mistake(self._own(round))

    def _own(self, round: Round) -> Received:
        return {client: dict(state) for client, state in super().__call__(round).items()}


class Remembers(FederatedClient):
    """Knows what it was when it sent, and how often it received."""

    def on_send(self, steps: int) -> None:
        self.before = {name: value.clone() for name, value in self.state_dict().items()}

    def on_receive(self, received: State) -> None:
        self.state["received"] = self.state.get("received", 0) + 1


def change(received: Received, client: str, name: str, value: Any) -> Received:
    received[client][name] = value(received[client][name]) if callable(value) else value
    return received


def without(received: Received, client: str) -> Received:
    del received[client]
    return received


def shared(received: Received, name: str, value: Tensor) -> Received:
    """All clients share one tensor."""
    return {client: {**state, name: value} for client, state in received.items()}


def everywhere(received: Received) -> Received:
    """The tensor of one name under that of another, at another client: first where it fits."""
    received["birch"]["core.0.bias"] = received["ash"][NAME]
    return received


NOT_FINITE = torch.full((8, 8), float("nan"))
MISTAKES: dict[str, tuple[Callable[[Received], Any], str]] = {
    "an unknown client": (
        lambda received: {**received, "brich": {}},
        "expected the clients ash, birch, cedar, found 'brich'. Did you mean 'birch'?",
    ),
    "a missing client": (
        lambda received: without(received, "birch"),
        "expected an entry for each client, found none for 'birch' ({} if it receives nothing)",
    ),
    "an unknown name": (
        lambda received: change(received, "birch", "core.0.wieght", torch.zeros(8, 8)),
        "client 'birch': expected names of its federated tensors, found 'core.0.wieght'. Did you mean 'core.0.weight'?",
    ),
    "a private name": (
        lambda received: change(received, "cedar", "head.bias", torch.zeros(4)),
        "client 'cedar': expected names of its federated tensors, found 'head.bias'. Did you mean 'core.1.bias'?",
    ),
    "a name of the rule's own": (
        lambda received: change(received, "cedar", "momentum", torch.zeros(4)),
        "client 'cedar': expected names of its federated tensors, found 'momentum'. What goes beside them is called "
        "down/…",
    ),
    "another shape": (
        lambda received: change(received, "birch", NAME, torch.zeros(8, 1)),
        "client 'birch': core.0.weight: expected float32 of shape (8, 8), found float32 of shape (8, 1)",
    ),
    "another dtype": (
        lambda received: change(received, "birch", NAME, lambda value: value.double()),
        "client 'birch': core.0.weight: expected float32 of shape (8, 8), found float64 of shape (8, 8)",
    ),
    "another shape of a shared tensor": (
        everywhere,
        "client 'birch': core.0.bias: expected float32 of shape (8,), found float32 of shape (8, 8)",
    ),
    "not finite at one": (
        lambda received: change(received, "birch", NAME, lambda value: value / 0),
        "client 'birch': core.0.weight: expected finite numbers, found some that are not (all updates were finite)",
    ),
    "not finite, shared": (
        lambda received: shared(received, NAME, NOT_FINITE),
        "client 'ash': core.0.weight: expected finite numbers, found some that are not (all updates were finite)",
    ),
    "not finite beside": (
        lambda received: change(received, "cedar", "down/c", torch.tensor(float("inf"))),
        "client 'cedar': down/c: expected finite numbers, found some that are not (all updates were finite)",
    ),
    "nothing": (lambda received: None, "expected a mapping from clients to named tensors, found NoneType"),
    "a list": (lambda received: [*received], "expected a mapping from clients to named tensors, found list"),
    "a tensor for a client": (
        lambda received: {**received, "birch": torch.zeros(3)},
        "client 'birch': expected named tensors, found Tensor",
    ),
    "no tensor": (
        lambda received: change(received, "birch", NAME, 1.5),
        "client 'birch': core.0.weight: expected a tensor, found float",
    ),
    "no tensor beside": (
        lambda received: change(received, "birch", "down/c", 1.5),
        "client 'birch': down/c: expected a tensor, found float",
    ),
}


def told(problem: str) -> str:
    """The message's end, which begins anew behind a question."""
    return f"{problem} Mend the rule" if problem.endswith("?") else f"{problem}; mend the rule"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_rule_is_named_and_nothing_is_written(mistake: str, tmp_path: Path) -> None:
    make, problem = MISTAKES[mistake]
    run = make_run(tmp_path, epochs=1, client=Remembers, exchange={"federated": ["core"], "rule": Wrong(make)})
    with pytest.raises(RunError) as error:
        run.fit(quiet=True)
    assert str(error.value) == f"exchange.rule: Wrong, exchange 1: {told(problem)}"
    for client in run.loop.federation.values():
        assert isinstance(client, Remembers) and client.state["received"] == 1  # what it started from
        after = client.state_dict()
        assert after.keys() == client.before.keys()
        assert all(torch.equal(value, after[name]) for name, value in client.before.items())
    assert run.exchange.rounds == 0 and run.exchange.bytes == 0


def test_a_rule_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, exchange={"federated": ["core"], "rule": Wrong(lambda received: {}["foo"])})
    with pytest.raises(RunError, match=r"exchange.rule: Wrong, exchange 1: .* KeyError: 'foo' \(test_checked.py, line"):
        run.fit(quiet=True)


@pytest.mark.parametrize("mistake", [name for name in MISTAKES if name != "a missing client"])
def test_what_clients_start_from_is_checked_too(mistake: str, tmp_path: Path) -> None:
    make, problem = MISTAKES[mistake]
    run = make_run(tmp_path, epochs=1, exchange={"federated": ["core"], "rule": Wrong(make, at_begin=True)})
    run.describe()
    before = {name: value.clone() for name, value in run.loop.federation["ash"].state_dict().items()}
    with pytest.raises(RunError) as error:
        run.fit(quiet=True)
    assert str(error.value) == f"exchange.rule: Wrong, before training: {told(problem)}"
    assert all(torch.equal(value, before[name]) for name, value in run.loop.federation["ash"].state_dict().items())


def test_begin_may_leave_clients_out(tmp_path: Path) -> None:
    start = torch.full((8, 8), 0.25)

    def only_birch(received: Received) -> Received:
        return {"birch": {NAME: start}}

    class Start(FederatedClient):
        def on_receive(self, received: State) -> None:
            self.state.setdefault("first", received[NAME].clone())

    rule = Wrong(only_birch, at_begin=True)
    run = make_run(tmp_path, epochs=1, client=Start, exchange={"federated": ["core"], "rule": rule})
    run.describe()
    initial = run.loop.federation["ash"].state_dict()[NAME].clone()
    run.fit(quiet=True)
    first = {name: client.state["first"] for name, client in run.loop.federation.items()}
    assert torch.equal(first["birch"], start)
    assert torch.equal(first["ash"], initial) and torch.equal(first["cedar"], initial)


class InPlace(Mean):
    def __init__(self, published: bool = False) -> None:
        super().__init__()
        self.published = published

    def __call__(self, round: Round) -> Any:
        own = round.updates["birch"]
        (own.published["note"] if self.published else own.state[NAME]).mul_(0.5)
        return super().__call__(round)


class Notes(FederatedClient):
    def publish(self) -> State:
        return {"note": self.head.bias.detach()[:1]}  # type: ignore[union-attr, index]


@pytest.mark.parametrize(("published", "name"), [(False, "core.0.weight"), (True, "note")])
def test_a_rule_that_changes_an_update_in_place_is_refused(published: bool, name: str, tmp_path: Path) -> None:
    exchange = {"federated": ["core"], "rule": InPlace(published)}
    with pytest.raises(RunError) as error:
        make_run(tmp_path, epochs=1, client=Notes, exchange=exchange).fit(quiet=True)
    assert str(error.value) == (
        f"exchange.rule: InPlace: expected updates to stay as they are, found that {name} of birch was changed in "
        "place; work on a copy (tensor.clone())"
    )


class Greedy(FederatedClient):
    """Changes what it is given, with which others are told too."""

    when = 2

    def on_receive(self, received: State) -> None:
        self.state["times"] = self.state.get("times", 0) + 1
        if self.spec.name == "birch" and self.state["times"] == self.when:
            received[NAME].zero_()


@pytest.mark.parametrize("when", [1, 2])
def test_a_client_that_changes_what_it_is_given_is_named(when: int, tmp_path: Path) -> None:
    client = type("Greedy", (Greedy,), {"when": when})
    with pytest.raises(RunError) as error:
        make_run(tmp_path, epochs=1, client=client, exchange={"federated": ["core"]}).fit(quiet=True)
    assert str(error.value) == (
        "client 'birch': expected Greedy.on_receive to leave what it is given as it is, found that core.0.weight was "
        "changed in place; work on a copy (tensor.clone())"
    )


class Sends(Mean):
    """Sends a number of its own beside, to some."""

    def __call__(self, round: Round) -> Any:
        received = super().__call__(round)
        beside = torch.full((3,), float(round.number))
        return {
            name: {**state, **({"down/c/x": beside} if name != "cedar" else {})} for name, state in received.items()
        }

    @property
    def sends(self) -> str:
        return "three numbers of mine"


class Keeps(FederatedClient):
    def on_receive(self, received: State) -> None:
        self.state.setdefault("got", []).append({name: value.clone() for name, value in received.items()})


class Weighs(InProcess):
    """Weighs what goes to and fro."""

    def __init__(self) -> None:
        self.up, self.down = 0, 0

    def exchange(self, server: Any, number: int, updates: Any, answer: Any, *, measure: bool) -> Any:
        outcome = super().exchange(server, number, updates, answer, measure=measure)
        self.up += sum(bytes_of(own.state) + bytes_of(own.published) for own in updates.values())
        self.down += sum(map(bytes_of, outcome.received.values()))
        return outcome


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("participation", [1.0, 0.3])
def test_a_rule_sends_tensors_beside_the_federated_ones(participation: float, rate: float, tmp_path: Path) -> None:
    exchange = {"federated": ["core"], "rate": rate, "participation": participation}
    weighs = Weighs()
    run = make_run(tmp_path / "a", client=Keeps, exchange={**exchange, "rule": Sends()}, transport=weighs)
    assert "The rule sends each client three numbers of mine." in str(run.describe())
    run.fit(quiet=True)
    plain = make_run(tmp_path / "b", client=Keeps, exchange={**exchange, "rule": Mean()})
    plain.fit(quiet=True)
    for name, client in run.loop.federation.items():
        got = [own.get("down/c/x") for own in client.state["got"]]
        assert got[0] is None  # the start
        numbers = [None if value is None else value.tolist() for value in got[1:]]
        assert numbers == ([None] * 3 if name == "cedar" else [[0.0] * 3, [1.0] * 3, [2.0] * 3])
        other = plain.loop.federation[name].state_dict()
        assert client.state_dict().keys() == other.keys()  # written nowhere
        assert all(torch.equal(value, other[key]) for key, value in client.state_dict().items())
    assert run.exchange.bytes == weighs.up + weighs.down == plain.exchange.bytes + 3 * 2 * 3 * 4


@pytest.mark.parametrize("at_begin", [True, False])
def test_values_that_float32_cannot_hold_are_finite_in_float64(at_begin: bool) -> None:
    update = Update({"w": torch.tensor([1e300], dtype=torch.float64)}, 1)
    round = Round(0, 0, {"a": update}, {"a": ("w",)})
    check_received(Mean(), round, {"a": {"w": update.state["w"].clone()}}, {"w": ("float64", (1,))}, begin=at_begin)
    with pytest.raises(RunError, match="client 'a': w: expected finite numbers"):
        check_received(Mean(), round, {"a": {"w": update.state["w"] * 1e300}}, {"w": ("float64", (1,))})
