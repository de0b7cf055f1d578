"""What an exchange takes and gives, and what is checked before it is written; the bit-level
contracts are in ``tests/contract``.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import ALIKE, Dry, different, make_run, trained
from lightning.pytorch import Callback
from torch import Tensor, nn

from fedlit import IFCA, FedAvgM, Mean, Network, Round
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.checks import check_received
from fedlit.exchange.rule import Update
from fedlit.sharing import State


class Before(Mean):
    """Keeps what it was given."""

    def __call__(self, round: Round) -> Any:
        self.given = {
            name: {key: value.clone() for key, value in update.state.items()}
            for name, update in round.updates.items()
        }
        self.rows = {name: update.rows for name, update in round.updates.items()}
        return super().__call__(round)


class Publishes(FederatedClient):
    def publish(self) -> State:
        return {"rows": torch.ones(2, 3, dtype=torch.float64)}


@pytest.mark.parametrize("weights", ["uniform", "rows"])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_written_back_is_the_share_of_the_aggregate(
    weights: Any, rate: float, tmp_path: Path
) -> None:
    rule = Before(weights)
    exchange = {"federated": ["core"], "rule": rule, "rate": rate, "buffers": "average"}
    run = make_run(tmp_path, client=Publishes, epochs=1, exchange=exchange)
    planned = sum(own["bytes_per_exchange"] for own in run.describe().clients.values())
    run.fit(quiet=True)
    # all that was sent, and as much received, but what was told
    assert run.exchange.bytes == 2 * planned - 3 * 6 * 8
    assert rule.rows == {"ash": 50, "birch": 39, "cedar": 67}
    for key in ("core.0.weight", "core.0.bias", "core.1.running_var"):
        given = {name: state[key].double().numpy() for name, state in rule.given.items()}
        mean = np.average(
            [*given.values()], 0, [*rule.rows.values()] if weights == "rows" else None
        )
        for name, client in run.loop.federation.items():
            expected = (1 - rate) * given[name] + rate * mean
            np.testing.assert_allclose(
                client.state_dict()[key].numpy(), expected, rtol=2e-6, atol=1e-7
            )


class Rotate(Before):
    """Gives each client what the next one sent, without a copy."""

    def __call__(self, round: Round) -> Any:
        super().__call__(round)
        names = list(round.updates)
        following = zip(names, names[1:] + names[:1], strict=True)
        return {name: dict(round.updates[other].state) for name, other in following}


@pytest.mark.parametrize("engine", ["plain", "auto"])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_rule_may_give_clients_the_tensors_of_others(
    engine: str, rate: float, tmp_path: Path
) -> None:
    rule = Rotate()
    exchange = {"federated": ["core"], "rule": rule, "rate": rate, "guard": False}
    heard: dict[str, State] = {}

    class Hears(FederatedClient):
        stackable = True
        adapts = False

        def on_receive(self, received: State) -> None:
            heard[self.spec.name] = {key: value.clone() for key, value in received.items()}

    run = make_run(
        tmp_path,
        clients=ALIKE,
        epochs=1,
        exchange=exchange,
        loop={"engine": engine, "client": partial(Hears, network=Dry)},
    )
    run.fit(quiet=True)
    names = list(rule.given)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        state = run.loop.federation[name].state_dict()
        for key, value in rule.given[name].items():
            target = rule.given[other][key]
            assert torch.equal(heard[name][key], target)
            expected = target if rate == 1 else value.lerp(target, rate)
            assert torch.equal(state[key], expected), (name, key)


class Assigns(Callback):
    """Assigns a new parameter, or a new layer, to one client's federated part."""

    def __init__(self, part: str) -> None:
        self.part = part

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step != 2:
            return
        core = pl_module.federation["birch"].core
        torch.manual_seed(0)
        if self.part == "layer":
            core[0] = nn.Linear(core[0].in_features, core[0].out_features)
        else:
            core[0].weight = nn.Parameter(torch.randn_like(core[0].weight))


@pytest.mark.parametrize("engine", ["plain", "auto"])
@pytest.mark.parametrize("part", ["parameter", "layer"])
def test_a_new_parameter_of_a_client_is_exchanged(engine: str, part: str, tmp_path: Path) -> None:
    rule = Before()
    run = make_run(
        tmp_path,
        clients=ALIKE,
        epochs=1,
        exchange={"federated": ["core"], "rule": rule, "guard": False},
        loop={"engine": engine, "client": partial(FederatedClient, network=Dry)},
        callbacks=[Assigns(part)],
    )
    run.fit(quiet=True)
    states = [client.state_dict() for client in run.loop.federation.values()]
    mean = torch.stack([state["core.0.weight"] for state in rule.given.values()]).mean(0)
    for state in states:
        assert torch.equal(state["core.0.weight"], states[0]["core.0.weight"])
    torch.testing.assert_close(states[0]["core.0.weight"], mean)
    torch.manual_seed(0)
    assert not torch.equal(rule.given["birch"]["core.0.weight"], rule.given["ash"]["core.0.weight"])


def test_a_replaced_part_without_federated_tensors_is_named(tmp_path: Path) -> None:
    class Removes(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            pl_module.federation["birch"].core = nn.Sequential(nn.Tanh())

    run = make_run(
        tmp_path,
        clients=ALIKE,
        epochs=1,
        exchange={"federated": ["core"]},
        loop={"engine": "plain", "client": partial(FederatedClient, network=Dry)},
        callbacks=[Removes()],
    )
    with pytest.raises(RunError, match=r"birch.*core"):
        run.fit(quiet=True)


class Tied(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        first = nn.Linear(4, 4)
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 4), first),
            nn.Sequential(first),
            nn.Linear(4, num_outputs),
        )


def test_a_tensor_that_two_modules_share_is_mixed_once(tmp_path: Path) -> None:
    rule = Before()
    options = {"federated": ["core", "encoder.1"], "rule": rule, "rate": 0.5}
    run = trained(
        tmp_path,
        epochs=1,
        exchange=options,
        loop={"client": partial(FederatedClient, network=Tied)},
    )
    given = [rule.given[name]["encoder.1.weight"] for name in ("ash", "birch", "cedar")]
    expected = 0.5 * given[0] + 0.5 * sum(given) / 3
    torch.testing.assert_close(run.loop.federation["ash"].state_dict()["core.0.weight"], expected)


def test_a_rule_that_changes_starts_is_refused_after_a_run(
    tmp_path: Path,
) -> None:
    for rule, refused in ((IFCA(2), True), (FedAvgM(), False)):
        run = make_run(tmp_path, align="both", exchange={"federated": ["*"], "rule": rule})
        run.describe()
        run.exchange.started = True  # as model.start has it
        with (
            pytest.raises(ConfigError, match=r"model.start: .*found IFCA")
            if refused
            else nullcontext()
        ):
            run.fit(quiet=True)


NOTE = torch.zeros(2, 3)


class Changes(FederatedClient):
    """Publishes something else than it did for the plan, once it trains."""

    other: ClassVar[State] = {}

    def publish(self) -> State:
        return self.other if self.spec.name == "birch" and self.steps_taken else {"note": NOTE}


@pytest.mark.parametrize(
    "other", [{}, {"note": NOTE, "more": NOTE}, {"note": NOTE.T}, {"note": NOTE.double()}]
)
def test_unplanned_publishing_is_refused_before_it_leaves(other: State, tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        client=type("Changes", (Changes,), {"other": other}),
        exchange={"federated": ["core"]},
    )
    assert run.describe().clients["birch"]["published"] == {"note": ("float32", (2, 3))}
    with pytest.raises(RunError, match="client 'birch'"):
        run.fit(quiet=True)
    assert run.exchange.rounds == 0


# ------------------------------------------------------------------ what a rule returns

NAME = "core.0.weight"
Received = dict[str, dict[str, Any]]
FORMS = {"w": ("float32", (2, 2)), "b": ("float32", (2,))}
CLIENTS = ("ash", "birch", "cedar")


def right() -> Received:
    return {client: {"w": torch.ones(2, 2), "b": torch.zeros(2)} for client in CLIENTS}


def put(client: str, name: str, value: Any) -> Callable[[Received], Any]:
    return lambda received: {**received, client: {**received[client], name: value}}


SHARED = torch.full((2, 2), torch.nan)
MISTAKES: dict[str, tuple[Callable[[Received], Any], str]] = {
    "an unknown client": (lambda received: {**received, "brich": {}}, "'brich'.*'birch'"),
    "a missing client": (lambda received: {own: received[own] for own in CLIENTS[1:]}, "'ash'"),
    "an unknown name": (put("birch", "wieght", torch.zeros(2, 2)), "'birch'.*'wieght'"),
    "another shape": (put("birch", "w", torch.zeros(2, 1)), r"'birch': w: .*\(2, 1\)"),
    "another dtype": (put("birch", "w", torch.zeros(2, 2).double()), "'birch': w: .*float64"),
    "a tensor that fits elsewhere": (lambda r: put("birch", "b", r["ash"]["w"])(r), "'birch': b: "),
    "not finite at one": (put("birch", "w", torch.ones(2, 2) / 0), "'birch': w: .*finite"),
    "not finite, shared": (
        lambda r: {own: {**state, "w": SHARED} for own, state in r.items()},
        "'ash': w: .*finite",
    ),
    "not finite beside": (
        put("cedar", "down/c", torch.tensor(torch.inf)),
        "'cedar': down/c: .*finite",
    ),
    "nothing": (lambda received: None, "NoneType"),
    "a list": (lambda received: [*received], "list"),
    "a tensor for a client": (
        lambda received: {**received, "birch": torch.zeros(3)},
        "'birch': .*Tensor",
    ),
    "no tensor": (put("birch", "w", 1.5), "'birch': w: .*float"),
    "no tensor beside": (put("birch", "down/c", 1.5), "'birch': down/c: .*float"),
}


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_rule_is_named(mistake: str, begin: bool) -> None:
    make, key = MISTAKES[mistake]
    updates = {client: Update(state, 1) for client, state in right().items()}
    round = Round(0, 0, updates, dict.fromkeys(CLIENTS, ("w", "b")))
    check_received(Mean(), round, right(), FORMS, begin=begin)
    if begin and mistake == "a missing client":
        check_received(Mean(), round, make(right()), FORMS, begin=True)  # it may leave clients out
        return
    with pytest.raises(
        RunError,
        match=f"exchange.rule: Mean, {'before training' if begin else 'exchange 1'}: .*{key}",
    ):
        check_received(Mean(), round, make(right()), FORMS, begin=begin)


def test_values_that_float32_cannot_hold_are_finite_in_float64() -> None:
    state = {"w": torch.tensor([1e300], dtype=torch.float64)}
    round = Round(0, 0, {"a": Update(state, 1)}, {"a": ("w",)})
    check_received(Mean(), round, {"a": state}, {"w": ("float64", (1,))}, begin=False)


class Wrong(Mean):
    """The mean, with a mistake in it."""

    def __init__(self, mistake: Callable[[Received], Any]) -> None:
        super().__init__()
        self.mistake = mistake

    def __call__(self, round: Round) -> Any:
        return self.mistake(
            {client: dict(state) for client, state in super().__call__(round).items()}
        )


class Remembers(FederatedClient):
    """Knows what it was when it sent, and what it received, with tensors that were sent beside."""

    def on_send(self, steps: int) -> None:
        self.before = {name: value.clone() for name, value in self.state_dict().items()}

    def on_receive(self, received: State) -> None:
        self.state.setdefault("got", []).append(
            {name: value.clone() for name, value in received.items()}
        )


@pytest.mark.parametrize(
    ("mistake", "key"),
    [
        (put("birch", NAME, 1.5), NAME),
        (lambda r: dict[str, Any]()["foo"], "test_exchange.py, line"),
    ],
)
def test_nothing_is_written_of_what_is_refused(mistake: Any, key: str, tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        epochs=1,
        client=Remembers,
        exchange={"federated": ["core"], "rule": Wrong(mistake)},
    )
    with pytest.raises(RunError, match=key):
        run.fit(quiet=True)
    for client in run.loop.federation.values():
        assert len(client.state["got"]) == 1  # what it started from
        before: Any = client.before
        after = client.state_dict()
        assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert run.exchange.rounds == 0 and run.exchange.bytes == 0


class InPlace(Mean):
    def __call__(self, round: Round) -> Any:
        round.updates["birch"].state[NAME].mul_(0.5)
        return super().__call__(round)


class Greedy(FederatedClient):
    """Changes what it is given, with which others are told too."""

    def on_receive(self, received: State) -> None:
        if self.spec.name == "birch" and self.steps_taken:
            received[NAME].zero_()


@pytest.mark.parametrize(
    ("client", "rule", "key"),
    [
        (FederatedClient, InPlace, f"InPlace: .*{NAME} of birch"),
        (Greedy, Mean, f"'birch': .*Greedy.on_receive .*{NAME}"),
    ],
)
def test_who_changes_what_is_not_its_own_is_named(
    client: Any, rule: Any, key: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=key):
        trained(tmp_path, epochs=1, client=client, exchange={"federated": ["core"], "rule": rule})


class Sends(Mean):
    """Sends a number of its own beside, to some."""

    def __call__(self, round: Round) -> Any:
        beside: dict[str, Tensor] = {"down/c/x": torch.full((3,), float(round.number))}
        received = super().__call__(round)
        return {
            name: {**state, **(beside if name != "cedar" else {})}
            for name, state in received.items()
        }

    @property
    def sends(self) -> str:  # type: ignore[override]
        return "three numbers of mine"


@pytest.mark.parametrize(("participation", "rate"), [(1.0, 1.0), (0.3, 0.5)])
def test_a_rule_sends_tensors_beside_the_federated_ones(
    participation: float, rate: float, tmp_path: Path
) -> None:
    exchange = {"federated": ["core"], "rate": rate, "participation": participation}
    run = make_run(tmp_path / "a", client=Remembers, exchange={**exchange, "rule": Sends()})
    assert "three numbers of mine" in str(run.describe())
    run.fit(quiet=True)
    plain = trained(tmp_path / "b", client=Remembers, exchange={**exchange, "rule": Mean()})
    for name, client in run.loop.federation.items():
        got = [
            own["down/c/x"].tolist() if "down/c/x" in own else None for own in client.state["got"]
        ]
        assert got == [
            None,
            *([None] * 3 if name == "cedar" else [[0.0] * 3, [1.0] * 3, [2.0] * 3]),
        ]
    assert different(dict(run.loop.state_dict()), dict(plain.loop.state_dict())) == []
    assert run.exchange.bytes == plain.exchange.bytes + 3 * 2 * 3 * 4
