"""SCAFFOLD and FedDyn: gradients, recursions, what clients keep in step with the server, where they come to rest."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import Explodes, Faulty, SmallNet, different, make_run, weights
from lightning.pytorch import Callback
from methods.quadratic import STEPS, optimum, point, problems, quadratic, rest

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import FedNova
from fedlit.exchange.schedule import cohort
from fedlit.methods import FedDyn, FedDynMean, FedProx, Scaffold, ScaffoldMean
from fedlit.run.run import Run
from fedlit.train.tuning import FineTune, Then

SGD = partial(torch.optim.SGD, lr=0.05)
ALPHA = 2.0
KINDS: dict[str, tuple[Any, Any]] = {
    "scaffold": (Scaffold, ScaffoldMean),
    "feddyn": (partial(FedDyn, alpha=ALPHA), FedDynMean),
}
each = pytest.mark.parametrize("kind", KINDS)


def small(folder: Path, kind: str, client: Any = None, exchange: Any = None, **options: Any) -> Run:
    own, rule = KINDS[kind]
    loop = {"client": partial(client or own, network=SmallNet), "optimizer": SGD, **options.pop("loop", {})}
    if not isinstance(exchange, Exchange):
        exchange = {"federated": ["core"], "rule": rule, **(exchange or {})}
    return make_run(folder, loop=loop, exchange=exchange, **options)


def variates(run: Run, kind: str) -> tuple[dict[str, list[torch.Tensor]], dict[str, torch.Tensor]]:
    """Tensor → what each client keeps of it, and what the server keeps: their mean, if they are in step."""
    rule: Any = run.exchange.rule
    found: dict[str, list[torch.Tensor]] = {}
    for client in run.loop.federation.values():
        for name in run.exchange.sharing.parameters[client.spec.name]:
            own = (
                client.state["control"][name]
                if kind == "scaffold"
                else client.gradient.get_buffer(name.replace(".", "/"))
            )
            found.setdefault(name, []).append(own)
    if kind == "scaffold":
        return found, rule.state_dict()["control"]
    return found, {name: -ALPHA * gone for name, gone in rule.state_dict()["gone"].items()}


class InStep(Callback):
    """After every exchange clients' variates have the server's as their mean."""

    def __init__(self, kind: str) -> None:
        self.kind, self.run, self.seen = kind, None, 0

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        of_clients, of_server = variates(self.run, self.kind)  # type: ignore[arg-type]
        for name, value in of_server.items():
            torch.testing.assert_close(torch.stack(of_clients[name]).mean(0), value, atol=1e-5, rtol=1e-4)
            self.seen += bool(value.abs().max() > 1e-3)


# ------------------------------------------------------------------ gradients


@each
def test_the_gradient_has_what_the_paper_adds(kind: str, tmp_path: Path) -> None:
    run = small(tmp_path, kind)
    run.fit(quiet=True)
    client: Any = run.loop.federation["ash"].eval()
    with torch.no_grad():
        for parameter in client.parameters():
            parameter.add_(torch.randn_like(parameter))
    rows = run.data.train_loaders["ash"].rows
    own = dict(client.named_parameters())
    total = torch.autograd.grad(client.objective(rows.x, rows.y), list(own.values()))
    plain = torch.autograd.grad(client.loss(client(rows.x), rows.y), list(own.values()))
    corrected = 0.0
    for (name, value), with_it, without in zip(own.items(), total, plain, strict=True):
        added = torch.zeros_like(value)
        if name in client.federated and kind == "scaffold":
            added = run.exchange.rule.state_dict()["control"][name] - client.state["control"][name]
            corrected += float(added.abs().max())
        elif name in client.federated:
            g, start = (module.get_buffer(name.replace(".", "/")) for module in (client.gradient, client.received))
            added = ALPHA * (value.detach() - start) - g
        torch.testing.assert_close(with_it - without, added, atol=1e-5, rtol=1e-4)
    assert corrected > 1e-2 or kind == "feddyn"


@each
def test_when_a_client_is_fine_tuned_nothing_is_added(kind: str, tmp_path: Path) -> None:
    run = small(tmp_path, kind, loop={"then": Then(FineTune(epochs=1, lr=0.005))})
    run.fit(quiet=True)
    client: Any = run.loop.federation["ash"].eval()
    rows = run.data.train_loaders["ash"].rows
    assert client.fine_tuning
    assert torch.equal(client.objective(rows.x, rows.y), client.loss(client(rows.x), rows.y))
    client.fine_tuning = False
    assert not torch.equal(client.objective(rows.x, rows.y), client.loss(client(rows.x), rows.y))


def test_without_a_correction_scaffold_is_fedavg_bit_for_bit(tmp_path: Path) -> None:
    ends = []
    for number, (client, rule) in enumerate(((Scaffold, ScaffoldMean), (FederatedClient, None))):
        first = small(tmp_path / f"a{number}", "scaffold", client, {"rule": rule}, epochs=1)  # no variate is known yet
        alone = small(tmp_path / f"b{number}", "scaffold", client, {"rule": rule}, clients=("ash",))  # c is its own
        for run in (first, alone):
            run.fit(quiet=True)
        ends.append(
            [
                {k: v for k, v in weights(run).items() if ".core." in k and "correction" not in k}
                for run in (first, alone)
            ]
        )
    for mine, plain in zip(*ends, strict=True):
        shared = {name: value for name, value in mine.items() if name in plain}
        assert len(shared) > 5 and different(shared, plain) == []


# ------------------------------------------------------------------ recursions


def test_scaffold_is_the_recursion_of_the_paper(tmp_path: Path) -> None:
    lr, rounds, share = 0.1, 5, 0.6
    run = quadratic(
        tmp_path, client=Scaffold, lr=lr, rounds=rounds, exchange={"rule": ScaffoldMean, "participation": share}
    )
    own = problems(run)
    x, c = np.zeros(3), np.zeros(3)
    mine = {name: np.zeros(3) for name in own}
    run.describe()
    x = point(run)
    run.fit(quiet=True)
    for number in range(rounds):
        drawn = cohort(share, list(own), run.seed, number)
        ends, changes = [], []
        for name in drawn or own:
            y = x.copy()
            for _ in range(STEPS[name]):
                y -= lr * (own[name].gradient(y) - mine[name] + c)
            new = mine[name] - c + (x - y) / (STEPS[name] * lr)
            ends, changes = [*ends, y], [*changes, new - mine[name]]
            mine[name] = new
        x, c = np.mean(ends, 0), c + len(ends) / len(own) * np.mean(changes, 0)
    assert point(run) == pytest.approx(x, abs=1e-5)
    for name, value in mine.items():
        assert run.loop.federation[name].state["control"]["core.weight"][0].numpy() == pytest.approx(value, abs=1e-4)
    assert run.exchange.rule.state_dict()["control"]["core.weight"][0].numpy() == pytest.approx(c, abs=1e-4)


def test_feddyn_is_the_recursion_of_the_paper(tmp_path: Path) -> None:
    lr, rounds, share, alpha = 0.1, 5, 0.6, 0.5
    client = partial(FedDyn, alpha=alpha)
    run = quadratic(
        tmp_path, client=client, lr=lr, rounds=rounds, exchange={"rule": FedDynMean, "participation": share}
    )
    own = problems(run)
    run.describe()
    x, h = point(run), np.zeros(3)
    g = {name: np.zeros(3) for name in own}
    run.fit(quiet=True)
    for number in range(rounds):
        ends = {}
        for name in cohort(share, list(own), run.seed, number) or own:
            y = x.copy()
            for _ in range(STEPS[name]):
                y -= lr * (own[name].gradient(y) - g[name] + alpha * (y - x))
            ends[name] = y
            g[name] = g[name] - alpha * (y - x)
        h = h - alpha / len(own) * sum(y - x for y in ends.values())
        x = np.mean(list(ends.values()), 0) - h / alpha
    assert point(run) == pytest.approx(x, abs=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_scaffold_minds_the_rates_that_were_really_used(accumulate: int, tmp_path: Path) -> None:
    falling = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (1 + step))
    loop = {"scheduler": falling, "scheduler_interval": "step", "accumulate": accumulate}
    run = quadratic(tmp_path, client=Scaffold, lr=0.2, rounds=1, loop=loop, exchange={"rule": ScaffoldMean})
    own = problems(run)
    run.describe()
    x = point(run)
    run.fit(quiet=True)
    for name, steps in STEPS.items():
        y, way, gradients = x.copy(), 0.0, np.zeros(3)
        updates = -(-steps // accumulate)
        left = steps
        for step in range(updates):
            batches = min(accumulate, left)  # the last step of an epoch may have fewer batches
            left -= batches
            gradient = own[name].gradient(y) * batches / accumulate
            rate = 0.2 / (1 + step)
            y, way, gradients = y - rate * gradient, way + rate, gradients + rate * gradient
        found = run.loop.federation[name].state["control"]["core.weight"][0].numpy()
        assert found == pytest.approx(gradients / way, abs=1e-4)


# ------------------------------------------------------------------ in step with the server


@each
def test_variates_are_in_step_with_the_server_s_after_every_round(kind: str, tmp_path: Path) -> None:
    watch = InStep(kind)
    run = small(
        tmp_path, kind, exchange={"federated": ["*"], "participation": 0.7}, align="both", epochs=6, callbacks=[watch]
    )
    watch.run = run
    run.fit(quiet=True)
    assert watch.seen > 10


def troubled(kind: str) -> dict[str, Any]:
    """Client that is not finite in one round, or far from the others in each → the class of all."""
    base = KINDS[kind][0]
    cls = base.func if isinstance(base, partial) else base
    settings = base.keywords if isinstance(base, partial) else {}

    class Lost(Explodes, cls):  # type: ignore[misc, valid-type]
        at = 5

    class Far(Faulty, cls):  # type: ignore[misc, valid-type]
        def on_send(self, steps: int) -> None:
            cls.on_send(self, steps)
            Faulty.on_send(self, steps)

        def on_receive(self, received: Any) -> None:
            cls.on_receive(self, received)
            Faulty.on_receive(self, received)

    return {"birch": partial(Lost, **settings), "cedar": partial(Far, **settings)}


@each
def test_a_client_that_was_left_out_is_still_in_step(kind: str, tmp_path: Path) -> None:
    """Its state is not finite in one round, or far from the others' in each."""
    for guilty, made in troubled(kind).items():
        watch = InStep(kind)
        own = Exchange(federated=["core"], rule=KINDS[kind][1]())
        run = small(tmp_path / guilty, kind, made, exchange=own, epochs=4, callbacks=[watch])
        watch.run = run
        run.fit(quiet=True)
        assert watch.seen > 5
        assert run.exchange.found.keys() == {guilty}
        assert all(torch.isfinite(value).all() for value in weights(run).values() if value.is_floating_point())


# ------------------------------------------------------------------ where they come to rest


@pytest.mark.parametrize(("kind", "own"), [("scaffold", 0), ("feddyn", 0), ("scaffold", 1)])
def test_they_find_the_optimum_that_fedavg_does_not(kind: str, own: int, tmp_path: Path) -> None:
    client, rule = KINDS[kind]
    run = quadratic(tmp_path, client=client, lr=0.1, rounds=150, own=own, exchange={"rule": rule})
    known = problems(run)
    run.fit(quiet=True)
    if not own:
        assert point(run) == pytest.approx(optimum(known), abs=1e-3)
        assert np.abs(rest(known, lr=0.1) - optimum(known)).max() > 0.03
    else:  # all gradients of the shared part cancel, and each of the own part is 0
        pulls = {name: problem.gradient(point(run, name)) for name, problem in known.items()}
        assert sum(pulls.values())[:2] == pytest.approx(np.zeros(2), abs=2e-3)
        assert [pull[2] for pull in pulls.values()] == pytest.approx([0, 0, 0], abs=2e-2)


# ------------------------------------------------------------------ what travels, and what is refused


def test_what_travels_is_in_the_plan_and_in_the_bytes(tmp_path: Path) -> None:
    run = small(tmp_path, "scaffold", epochs=1, clients=("ash", "birch"))
    plan = run.describe()
    state = sum(value.numel() for value in run.loop.federation["ash"].federated.values())
    assert plan.clients["ash"]["bytes_per_exchange"] == 2 * 4 * state
    assert "sends each client the mean of the clients' control variates" in str(plan)
    run.fit(quiet=True)
    assert run.exchange.bytes == 2 * (2 * 4 * state + 2 * 4 * state + 4)


@pytest.mark.parametrize(
    ("optimizer", "found"),
    [(torch.optim.AdamW, "AdamW"), (partial(torch.optim.SGD, lr=0.1, momentum=0.9), "momentum 0.9")],
)
def test_scaffold_refuses_steps_that_are_no_gradients(optimizer: Any, found: str, tmp_path: Path) -> None:
    run = small(tmp_path, "scaffold", loop={"optimizer": optimizer})
    with pytest.raises(ConfigError, match=f"'ash': Scaffold expected model.optimizer: torch.optim.SGD.*found {found}"):
        run.fit(quiet=True)


@each
def test_clients_and_rules_that_do_not_belong_together_are_refused(kind: str, tmp_path: Path) -> None:
    name = KINDS[kind][1].__name__
    with pytest.raises(ConfigError, match=f"expected exchange.rule: {name}, found Mean"):
        small(tmp_path, kind, exchange={"rule": None}).describe()
    wanted = KINDS[kind][1].facts.requires
    with pytest.raises(ConfigError, match=rf"client 'ash'.*expected model.client: {wanted}, found FederatedClient"):
        small(tmp_path, kind, FederatedClient).describe()


def test_the_plan_names_what_is_published_tensor_by_tensor(tmp_path: Path) -> None:
    plan = small(tmp_path, "scaffold").describe()
    run = small(tmp_path, "scaffold")
    run.describe()
    for name, client in run.loop.federation.clients.items():
        expected = {
            f"control/{key}": ("float32", tuple(client.federated[key].shape))
            for key in run.exchange.sharing.parameters[name]
        }
        assert plan.clients[name]["published"] == expected
        for key, (_, shape) in list(expected.items())[:2]:
            assert f"{key} (float32 {' × '.join(map(str, shape))})" in str(plan)


def test_fednova_refuses_a_proximal_term(tmp_path: Path) -> None:
    settings = {
        "loop": {"client": partial(FedProx, network=SmallNet, mu=0.1), "optimizer": partial(torch.optim.SGD, lr=0.1)}
    }
    with pytest.raises(ConfigError, match=r"model.client: .*FedNova.*found FedProx"):
        make_run(tmp_path, exchange={"federated": ["core"], "rule": FedNova()}, **settings).describe()
    settings["loop"]["client"] = partial(FedProx, network=SmallNet, mu=0.0)  # a plain client
    make_run(tmp_path, exchange={"federated": ["core"], "rule": FedNova()}, **settings).describe()


def test_feddyn_refuses_what_breaks_its_sums(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"FedDyn expected exchange.guard: leave_out or watch or off, found clip"):
        small(tmp_path, "feddyn", exchange={"guard": "clip"}).describe()
    with pytest.raises(ConfigError, match=r"exchange.rate: expected 1, found 0.5; FedDynMean"):
        small(tmp_path, "feddyn", exchange={"rate": 0.5}).describe()
    with pytest.raises(ConfigError, match=r"FedDyn: alpha: expected a number above 0, found 0"):
        small(tmp_path, "feddyn", partial(FedDyn, alpha=0.0)).describe()

    class Other(FedDyn):
        def __init__(self, spec: Any, network: Any) -> None:
            super().__init__(spec, network, 0.1 if spec.name == "ash" else 0.2)

    with pytest.raises(ConfigError, match=r"client 'birch': FedDynMean .* found alpha 0.2"):
        small(tmp_path, "feddyn", Other).fit(quiet=True)
