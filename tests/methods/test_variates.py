"""SCAFFOLD and FedDyn: gradients, recursions, what clients keep in step with the server, where they come to rest."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import Explodes, Faulty, SmallNet, make_run, weights
from lightning.pytorch import Callback
from methods.quadratic import STEPS, point, problems, quadratic

from fedlit.exchange.exchange import Exchange
from fedlit.exchange.schedule import cohort
from fedlit.methods import FedDyn, FedDynMean, Scaffold, ScaffoldMean
from fedlit.run.run import Run

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


@each
def test_it_is_the_recursion_of_the_paper(kind: str, tmp_path: Path) -> None:
    lr, rounds, share = 0.1, 5, 0.6
    client, rule = KINDS[kind]
    run = quadratic(tmp_path, client=client, lr=lr, rounds=rounds, exchange={"rule": rule, "participation": share})
    own = problems(run)
    run.describe()
    x, server, mine = point(run), np.zeros(3), {name: np.zeros(3) for name in own}  # c and c_k; h and g_k
    run.fit(quiet=True)
    for number in range(rounds):
        ends, changes = [], []
        for name in cohort(share, list(own), run.seed, number) or own:
            y = x.copy()
            for _ in range(STEPS[name]):
                pull = server if kind == "scaffold" else ALPHA * (y - x)
                y -= lr * (own[name].gradient(y) - mine[name] + pull)
            change = (x - y) / (STEPS[name] * lr) - server if kind == "scaffold" else -ALPHA * (y - x)
            ends, changes = [*ends, y], [*changes, change]
            mine[name] = mine[name] + change
        if kind == "scaffold":
            x, server = np.mean(ends, 0), server + sum(changes) / len(own)
        else:
            server = server - ALPHA / len(own) * sum(y - x for y in ends)
            x = np.mean(ends, 0) - server / ALPHA
    assert point(run) == pytest.approx(x, abs=1e-5)
    ash: Any = run.loop.federation["ash"]
    rows = run.data.train_loaders["ash"].rows
    assert not torch.equal(ash.objective(rows.x, rows.y), ash.loss(ash(rows.x), rows.y))
    ash.fine_tuning = True  # nothing is added then
    assert torch.equal(ash.objective(rows.x, rows.y), ash.loss(ash(rows.x), rows.y))
