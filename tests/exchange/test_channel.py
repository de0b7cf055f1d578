"""Three methods as one small class each, against NumPy: what clients publish, what rules send down, how many steps were
taken.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import different, make_run, weights
from lightning.pytorch import Callback
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.exchange.rules import Mean, Round, Rule
from fedlit.nn import Network
from fedlit.run.run import Run
from fedlit.sharing import State

LR = 0.5


class Linear(Network):
    """Softmax regression: all of it is the core."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Identity(), nn.Linear(num_features, num_outputs), nn.Identity())


def linear(folder: Path, client: Any, rule: Rule | None, **options: Any) -> Run:
    loop = {"client": partial(client, network=Linear), "optimizer": partial(torch.optim.SGD, lr=LR)}
    exchange = {"federated": ["core"], "rule": rule}
    return make_run(folder, align="both", epochs=2, loop=loop, exchange=exchange, **options)


def batches_of(run: Run, epoch: int) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """The batches of an epoch, (x with a column of ones, one-hot labels), in float64."""
    found = {}
    for name, loader in run.data.train_loaders.items():
        loader.epoch = epoch
        own = [batch for batch in loader if batch is not None][: loader.batches]
        classes = len(run.data.specs[0].classes)
        found[name] = [
            (np.hstack([b.x.double().numpy(), np.ones((len(b.y), 1))]), np.eye(classes)[b.y.numpy()]) for b in own
        ]
    return found


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of softmax regression's mean cross-entropy; w (classes, features + 1), the biases last."""
    logits = x @ w.T
    p = np.exp(logits - logits.max(1, keepdims=True))
    return (p / p.sum(1, keepdims=True) - y).T @ x / len(x)


def joint(state: Any) -> np.ndarray:
    weight, bias = state["core.weight"].detach().double().numpy(), state["core.bias"].detach().double().numpy()
    return np.hstack([weight, bias[:, None]])


# ------------------------------------------------------------------ SCAFFOLD


class Scaffold(FederatedClient):
    """Karimireddy et al. 2020, option II: each gradient is corrected by the server's control minus the client's own."""

    def on_receive(self, received: State) -> None:
        zeros = {name: torch.zeros_like(value) for name, value in self.federated.items()}
        self.state["start"] = {name: value.clone() for name, value in self.federated.items()}
        self.state["c"] = {name: received.get(f"down/c/{name}", zero).clone() for name, zero in zeros.items()}
        self.state.setdefault("own", zeros)

    def on_after_backward(self) -> None:
        for name, parameter in self.named_parameters():
            if name in self.federated and parameter.grad is not None:
                parameter.grad += self.state["c"][name] - self.state["own"][name]

    def on_send(self, steps: int) -> None:
        rate, before = steps * self._optimizers[0].param_groups[0]["lr"], self.state["own"]
        self.state["own"] = {
            name: before[name] - self.state["c"][name] + (self.state["start"][name] - value) / rate
            for name, value in self.federated.items()
        }
        self.state["moved"] = {name: value - before[name] for name, value in self.state["own"].items()}

    def publish(self) -> State:
        moved = self.state.get("moved", self.federated)
        return {f"c/{name}": value for name, value in moved.items()}


class Control(Mean):
    """The mean, and the server's control, which goes down beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.control: dict[str, Tensor] = {}

    @property
    def sends(self) -> str:
        return "its control"

    def __call__(self, round: Round) -> Any:
        for name in next(iter(round.updates.values())).parameters:
            moved = sum(update.published[f"c/{name}"] for update in round.updates.values())
            self.control[name] = self.control.get(name, 0) + moved / len(round.receivers)  # type: ignore[operator]
        beside = {f"down/c/{name}": value for name, value in self.control.items()}
        return {client: {**state, **beside} for client, state in super().__call__(round).items()}

    def state_dict(self) -> dict[str, Any]:
        return {"control": self.control}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.control = state["control"]


def test_scaffold(tmp_path: Path) -> None:
    run = linear(tmp_path, Scaffold, Control())
    plan = run.describe()
    assert sorted(plan.clients["ash"]["published"]) == ["c/core.bias", "c/core.weight"]
    x = joint(run.loop.federation["ash"].state_dict())
    epochs = [batches_of(run, epoch) for epoch in range(2)]
    run.fit(quiet=True)

    c, own = np.zeros_like(x), {name: np.zeros_like(x) for name in epochs[0]}
    for batches in epochs:
        ends, moved = {}, {}
        for name, mine in batches.items():
            y = x.copy()
            for rows, labels in mine:
                y -= LR * (gradient(y, rows, labels) - own[name] + c)
            new = own[name] - c + (x - y) / (len(mine) * LR)
            ends[name], moved[name], own[name] = y, new - own[name], new
        x, c = np.mean(list(ends.values()), 0), c + np.mean(list(moved.values()), 0)
    for name, client in run.loop.federation.items():
        np.testing.assert_allclose(joint(client.state_dict()), x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(joint(client.state["own"]), own[name], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(joint(run.exchange.rule.control), c, rtol=1e-3, atol=1e-4)  # type: ignore[attr-defined]
    fedavg = linear(tmp_path, FederatedClient, None)
    fedavg.fit(quiet=True)
    assert np.abs(joint(fedavg.loop.federation["ash"].state_dict()) - x).max() > 1e-3  # the control matters


class Stop(Callback):
    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", [4, 6])
def test_scaffold_resumed_ends_with_the_same_bits(step: int, tmp_path: Path) -> None:
    whole = linear(tmp_path / "whole", Scaffold, Control())
    whole.fit(quiet=True)
    path = tmp_path / "middle.ckpt"
    with pytest.raises(KeyboardInterrupt):
        linear(tmp_path / "part", Scaffold, Control(), callbacks=[Stop(step, path)]).fit(quiet=True)
    resumed = linear(tmp_path / "part", Scaffold, Control())
    resumed.fit(path, quiet=True)
    assert different(weights(whole), weights(resumed)) == []


# ------------------------------------------------------------------ FedNova


class FedNova(Rule):
    """Wang et al. 2020: the mean of updates per step, times the mean number of steps; weights by rows."""

    def begin(self, round: Round) -> Any:
        self.x = {name: value.clone() for name, value in next(iter(round.updates.values())).state.items()}
        return {}

    def __call__(self, round: Round) -> Any:
        total = sum(update.rows for update in round.updates.values())
        share = {client: update.rows / total for client, update in round.updates.items()}
        steps = sum(share[client] * update.steps for client, update in round.updates.items())
        for name, before in self.x.items():
            pulls = [share[c] * (before - own.state[name]) / own.steps for c, own in round.updates.items()]
            self.x[name] = before - steps * torch.stack(pulls).sum(0)
        return {client: {name: self.x[name] for name in names} for client, names in round.receivers.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x = state["x"]


def test_fednova(tmp_path: Path) -> None:
    run = linear(tmp_path, FederatedClient, FedNova(), data={"batches": None, "batch_size": 8})
    run.describe()
    x = joint(run.loop.federation["ash"].state_dict())
    rows = {name: len(loader.rows) for name, loader in run.data.train_loaders.items()}
    epochs = [batches_of(run, epoch) for epoch in range(2)]
    run.fit(quiet=True)

    share = {name: own / sum(rows.values()) for name, own in rows.items()}
    for batches in epochs:
        pulls = {}
        for name, mine in batches.items():
            y = x.copy()
            for features, labels in mine:
                y -= LR * gradient(y, features, labels)
            pulls[name] = (x - y) / len(mine)
        steps = {name: len(mine) for name, mine in batches.items()}
        assert len(set(steps.values())) == 3  # otherwise it would be FedAvg
        effective = sum(share[name] * own for name, own in steps.items())
        x = x - effective * sum(share[name] * pull for name, pull in pulls.items())
    for client in run.loop.federation.values():
        np.testing.assert_allclose(joint(client.state_dict()), x, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ FedRep


class FedRep(FederatedClient):
    """Collins et al. 2021: in each round first the head, with the body as it was received, then the body."""

    head_steps = 2

    def on_receive(self, received: State) -> None:
        self.state["done"] = 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        first = self.state["done"] < self.head_steps
        self.state["done"] += 1
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith("head") == first)
        return super().training_step(batch, batch_idx)


def test_fedrep_trains_the_head_and_then_the_body(tmp_path: Path) -> None:
    changed: list[set[str]] = []

    class Watch(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            self.before = {n: p.detach().clone() for n, p in pl_module.federation["birch"].named_parameters()}

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            now = dict(pl_module.federation["birch"].named_parameters())
            changed.append({n.partition(".")[0] for n, p in self.before.items() if not torch.equal(p, now[n])})

    options: dict[str, Any] = {
        "client": FedRep,
        "epochs": 2,
        "exchange": {"federated": ["encoder", "core"]},
        "align": "both",
        "loop": {"optimizer": partial(torch.optim.SGD, lr=0.1)},
    }
    run = make_run(tmp_path / "whole", callbacks=[Watch()], **options)
    run.fit(quiet=True)
    assert changed == [{"head"}, {"head"}, {"encoder", "core"}, {"encoder", "core"}] * 2
    bodies = [
        {name: value for name, value in own.state_dict().items() if name in own.federated}
        for own in run.loop.federation.values()
    ]
    assert bodies[0] and different(bodies[0], bodies[1]) == different(bodies[0], bodies[2]) == []

    path = tmp_path / "middle.ckpt"
    with pytest.raises(KeyboardInterrupt):
        make_run(tmp_path / "part", callbacks=[Stop(5, path)], **options).fit(quiet=True)
    resumed = make_run(tmp_path / "part", **options)
    resumed.fit(path, quiet=True)
    assert different(weights(run), weights(resumed)) == []
