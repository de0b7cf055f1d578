"""On quadratics the real loop takes the steps of each method's paper: a few rounds of them by
hand."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import Explodes
from methods.quadratic import STEPS, Problem, point, problems, quadratic

from fedlit import (
    APFL,
    Ditto,
    FedDyn,
    FedDynMean,
    FedNova,
    FedProx,
    Mean,
    PFedMe,
    Scaffold,
    ScaffoldMean,
)
from fedlit.client.client import FederatedClient
from fedlit.exchange.schedule import cohort

LR = 0.1
ROUNDS = 5
SHARE = 0.6
MU = 1.5
ALPHA = 2.0
K = 3
ETA = 0.3


class FedAvg:
    """Gradient descent from x, which all have received, and the mean of those who take part."""

    def __init__(self, own: dict[str, Problem], start: np.ndarray) -> None:
        self.own = own
        self.x = start
        self.server = np.zeros_like(start)
        self.mine = dict.fromkeys(own, start if self.personal else np.zeros_like(start))
        self.alpha = dict.fromkeys(own, 0.5)

    personal = False  # whether what is a client's own is a model

    def slope(self, k: str, y: np.ndarray) -> np.ndarray:
        return self.own[k].gradient(y)

    def step(self, k: str, y: np.ndarray) -> np.ndarray:
        return y - LR * self.slope(k, y)

    def aggregate(self, ends: dict[str, np.ndarray]) -> np.ndarray:
        return np.mean(list(ends.values()), 0)

    def round(self, clients: Any) -> None:
        ends = {}
        for k in clients:
            ends[k] = self.x
            for _ in range(STEPS[k]):
                ends[k] = self.step(k, ends[k])
        self.x = self.aggregate(ends)


class ByHandProx(FedAvg):
    def slope(self, k: str, y: np.ndarray) -> np.ndarray:  # Eq. 2
        return super().slope(k, y) + MU * (y - self.x)


class ByHandNova(FedAvg):
    def aggregate(self, ends: dict[str, np.ndarray]) -> np.ndarray:
        moves = [(y - self.x) / STEPS[k] for k, y in ends.items()]
        return self.x + np.mean([STEPS[k] for k in ends]) * np.mean(moves, 0)


class ByHandDitto(FedAvg):
    personal = True

    def step(self, k: str, y: np.ndarray) -> np.ndarray:
        v = self.mine[k]
        self.mine[k] = v - LR * (self.own[k].gradient(v) + MU * (v - self.x))
        return super().step(k, y)


class ByHandPFedMe(FedAvg):
    personal = True

    def step(self, k: str, y: np.ndarray) -> np.ndarray:
        for _ in range(K):
            theta = self.mine[k]
            self.mine[k] = theta - LR * (self.own[k].gradient(theta) + MU * (theta - y))
        return y - ETA * MU * (y - self.mine[k])


class ByHandAPFL(FedAvg):
    personal = True

    def step(self, k: str, y: np.ndarray) -> np.ndarray:
        v = self.mine[k]
        alpha = self.alpha[k]
        gradient = self.own[k].gradient(alpha * v + (1 - alpha) * y)  # lines 5 and 6, Eq. 10
        self.mine[k] = v - LR * alpha * gradient
        self.alpha[k] = float(np.clip(alpha - LR * (v - y) @ gradient, 0, 1))
        return super().step(k, y)


class ByHandScaffold(FedAvg):
    def slope(self, k: str, y: np.ndarray) -> np.ndarray:
        return super().slope(k, y) - self.mine[k] + self.server

    def aggregate(self, ends: dict[str, np.ndarray]) -> np.ndarray:
        changes = {k: (self.x - y) / (STEPS[k] * LR) - self.server for k, y in ends.items()}
        self.mine.update({k: self.mine[k] + change for k, change in changes.items()})
        self.server = self.server + sum(changes.values()) / len(self.own)
        return super().aggregate(ends)


class ByHandDyn(FedAvg):
    def slope(self, k: str, y: np.ndarray) -> np.ndarray:
        return super().slope(k, y) - self.mine[k] + ALPHA * (y - self.x)

    def aggregate(self, ends: dict[str, np.ndarray]) -> np.ndarray:
        self.mine.update({k: self.mine[k] - ALPHA * (y - self.x) for k, y in ends.items()})
        self.server = self.server - ALPHA / len(self.own) * sum(y - self.x for y in ends.values())
        return super().aggregate(ends) - self.server / ALPHA


METHODS: dict[str, tuple[Any, dict[str, Any], Any, type[FedAvg]]] = {
    "plain SGD": (FederatedClient, {}, Mean, FedAvg),
    "fedprox": (FedProx, {"mu": MU}, Mean, ByHandProx),
    "fednova": (FederatedClient, {}, FedNova, ByHandNova),
    "ditto": (Ditto, {"strength": MU}, Mean, ByHandDitto),
    "pfedme": (PFedMe, {"strength": MU, "inner_steps": K, "eta": ETA}, Mean, ByHandPFedMe),
    "apfl": (APFL, {"learn_alpha": True}, Mean, ByHandAPFL),
    "scaffold": (Scaffold, {}, ScaffoldMean, ByHandScaffold),
    "feddyn": (FedDyn, {"alpha": ALPHA}, FedDynMean, ByHandDyn),
}


def odd(cls: Any, why: str) -> Any:
    """The class, but birch's loss is not finite in the first round, or fir sends huge numbers in
    each."""

    class Far(cls):  # type: ignore[misc]
        def on_send(self, steps: int) -> None:
            super().on_send(steps)
            for tensor in self.federated.values() if self.spec.name == "fir" else ():
                tensor.data.fill_(1e8)

    return {"": cls, "lost": type("Lost", (Explodes, cls), {"at": 2}), "far": Far}[why]


LEFT_OUT = [
    (method, why) for method in ("plain SGD", "scaffold", "feddyn") for why in ("lost", "far")
]


@pytest.mark.parametrize(("method", "why"), [*((method, "") for method in METHODS), *LEFT_OUT])
def test_rounds_are_the_papers(method: str, why: str, tmp_path: Path) -> None:
    """What clients and the server keep is in step, even if a client is left out of the first round
    or of all."""
    cls, settings, rule, by_hand = METHODS[method]
    client = partial(odd(cls, why), **settings)
    share = 1.0 if why else SHARE
    exchange = {
        "rule": rule,
        "participation": share,
        "guard": "leave_out" if why == "far" else False,
    }
    run = quadratic(tmp_path, client=client, lr=LR, rounds=ROUNDS, exchange=exchange)
    own = problems(run)
    run.describe()
    hand = by_hand(own, point(run))
    run.fit(quiet=True)
    assert run.exchange.not_finite == ({"birch": 1} if why == "lost" else {})
    assert run.exchange.incident_counts.get("fir", {}).get("left_out") == (
        ROUNDS if why == "far" else None
    )
    for number in range(ROUNDS):
        out = {"birch"} if why == "lost" and not number else {"fir"} if why == "far" else set()
        hand.round([name for name in cohort(share, list(own), 8, number) or own if name not in out])
    for name, own_client in run.loop.federation.items():
        assert point(run, name) == pytest.approx(hand.x, abs=1e-5)
        if hand.personal:
            assert point(run, name, "personal.") == pytest.approx(hand.mine[name], abs=1e-4)
        if method == "scaffold":
            control = own_client.state["control"]["core.weight"][0].numpy()
            assert control == pytest.approx(hand.mine[name], abs=1e-4)
        if method == "feddyn":
            kept = own_client.gradient.get_buffer("core/weight")[0].numpy()
            assert kept == pytest.approx(hand.mine[name], abs=1e-4)
        if method == "apfl":
            assert own_client.alpha.item() == pytest.approx(hand.alpha[name], abs=1e-5) != 0.5  # type: ignore[operator]
    ash = run.loop.federation["ash"]
    rows = run.data.train_loaders["ash"].rows
    if method == "apfl":  # it takes one step in a round: its mean over a round is its end
        logged = [
            epoch["ash/train/alpha"] for epoch in run.loop.history if "ash/train/alpha" in epoch
        ]
        assert len(set(logged)) == len(logged) > 1 and logged[-1] == pytest.approx(
            hand.alpha["ash"], abs=1e-5
        )
        ash.alpha.data.fill_(1.7)  # type: ignore[operator]
        ash.on_train_batch_end(None, None, 0)
        assert ash.alpha == 1  # it stays a share
    if method in ("fedprox", "scaffold", "feddyn"):
        ash.core.weight.data.add_(1.0)  # type: ignore[operator]
        assert not torch.equal(ash.objective(rows.x, rows.y), ash.loss(ash(rows.x), rows.y))
        ash.fine_tuning = True  # nothing is added then
        assert torch.equal(ash.objective(rows.x, rows.y), ash.loss(ash(rows.x), rows.y))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_scaffold_minds_the_rates_that_were_really_used(accumulate: int, tmp_path: Path) -> None:
    falling = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (1 + step))
    loop = {"scheduler": falling, "scheduler_interval": "step", "accumulate": accumulate}
    run = quadratic(
        tmp_path, client=Scaffold, lr=0.2, rounds=1, loop=loop, exchange={"rule": ScaffoldMean}
    )
    own = problems(run)
    run.describe()
    x = point(run)
    run.fit(quiet=True)
    for name, left in STEPS.items():
        y = x
        way = 0.0
        gradients = np.zeros_like(x)
        step = 0
        while left > 0:
            batches = min(accumulate, left)  # the last step of an epoch may have fewer batches
            gradient = own[name].gradient(y) * batches / accumulate
            rate = 0.2 / (1 + step)
            y = y - rate * gradient
            way = way + rate
            gradients = gradients + rate * gradient
            left = left - batches
            step = step + 1
        found = run.loop.federation[name].state["control"]["core.weight"][0].numpy()
        assert found == pytest.approx(gradients / way, abs=1e-4)
