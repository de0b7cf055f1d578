"""Small made federations for tests: clients whose columns, classes and sizes differ, trained in well under a second."""

from __future__ import annotations

import inspect
import math
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn

from fedlit.attacks import Attack
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.data.sources.base import Source, random_split
from fedlit.data.table import ClientTable
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import (
    CFL,
    IFCA,
    Agglomerative,
    ByPart,
    CenteredClipping,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedGMCC,
    FedNova,
    FedYogi,
    GrowForest,
    Median,
    MixedEffects,
    MultiKrum,
    Newton,
)
from fedlit.methods import (
    APFL,
    CHFL,
    MOON,
    Alternating,
    Ditto,
    FedBABU,
    FedDyn,
    FedDynMean,
    FedProx,
    Forest,
    IFedAvg,
    MixedModel,
    PerFedAvg,
    PFedMe,
    PooledLogistic,
    Scaffold,
    ScaffoldMean,
)
from fedlit.nn import Network, TabM
from fedlit.run.run import Run
from fedlit.spec import ClientSpec
from fedlit.train.callbacks import Checkpoints
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop
from fedlit.train.tuning import FineTune, Then

SHAPES = {"ash": (5, 3, 90), "birch": (4, 2, 70), "cedar": (6, 4, 120)}  # features, classes, rows
ALIKE = ("ash", "birch", "cedar", "fir")  # clients that may share a stack, if all have the first's shape

# a configuration that is trained in a second
TINY = """
data: {{source: {{class_path: fedlit.Bundled, init_args: {{clients: [wine, breast_cancer]}}}}, batches: 4}}
model:
  client:
    class_path: fedlit.FederatedClient
    init_args: {{network: {{class_path: fedlit.MLP, init_args: {{hidden: [8, 8]}}}}}}
  optimizer: {{class_path: torch.optim.AdamW, init_args: {{lr: 0.01}}}}
  threads: 1
exchange: {{federated: [core]}}
trainer: {{max_epochs: {epochs}, logger: false}}
"""


class Made(Source):
    """Clients with Gaussian features and labels that depend on them."""

    name = "made"
    about = "made data"

    def __init__(self, clients: tuple[str, ...] = ("ash", "birch", "cedar")) -> None:
        self.clients, self.test, self.alike = clients, 0.3, "fir" in clients

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for name in self.clients:
            features, classes, rows = SHAPES["ash" if self.alike else name]
            rng = np.random.default_rng(sum(map(ord, name)))
            x = rng.normal(size=(rows, features))
            y = np.clip(np.digitize(x[:, 0] + x[:, 1], np.linspace(-1, 1, classes - 1)), 0, classes - 1)
            frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(features)])
            tables.append(ClientTable(name, frame, pd.Series(y, name="y"), random_split(rows, seed, self.test, 0.2)))
        return tables


class SmallNet(Network):
    """A network with everything that is delicate: batch normalisation (buffers, an integer one too) and dropout."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3)),
            nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()),
            nn.Linear(8, num_outputs),
        )


class Dry(Network):
    """SmallNet without dropout, and without biases before a normalisation: these have no gradient but rounding, which
    Adam makes a step of, so that engines could not be compared.
    """

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU()),
            nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU()),
            nn.Linear(8, num_outputs),
        )


class Named(Network):
    """A network whose first layer has a name for each column, and whose last has one for each class."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 8), nn.ReLU()), nn.Linear(8, 8), nn.Linear(8, num_outputs)
        )
        first, last = self.encoder[0], self.head  # type: ignore[index]
        labels = tuple(map(str, range(num_outputs))) if num_outputs > 1 else ("0|1",)
        first.axes = {"weight": (1, tuple(f"x{place}" for place in range(num_features)))}
        last.axes = {"weight": (0, labels), "bias": (0, labels)}  # type: ignore[assignment]


class TwoOptimizers(FederatedClient):
    """Steps two optimizers by itself on one batch, as methods with two losses do."""

    def __init__(self, spec: ClientSpec, network: Any) -> None:
        super().__init__(spec, network)
        self.automatic_optimization = False

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        shared = [*self.encoder.parameters(), *self.core.parameters()]
        return [torch.optim.SGD(shared, lr=0.1), torch.optim.Adam(self.head.parameters(), lr=0.01)]

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        first, second = self.optimizers()
        loss = self.loss(self(batch.x), batch.y)
        self.manual_backward(loss)
        first.step()
        first.zero_grad()
        second.zero_grad()
        again = self.loss(self.head(self.core(self.encoder(batch.x)).detach()), batch.y)
        self.manual_backward(again)
        second.step()
        second.zero_grad()
        return loss.detach()


def make_run(
    folder: Path,
    *,
    clients: tuple[str, ...] = ("ash", "birch", "cedar"),
    client: type[FederatedClient] = FederatedClient,
    exchange: dict[str, Any] | Exchange | None = None,
    loop: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    align: str = "none",
    pool: bool = False,
    seed: int = 8,
    epochs: int = 3,
    **options: Any,
) -> Run:
    """A run over made clients that writes below ``folder``."""
    settings: dict[str, Any] = {"optimizer": partial(torch.optim.AdamW, lr=0.01), "threads": 1, **(loop or {})}
    module = FederatedLoop(settings.pop("client", partial(client, network=SmallNet)), seed=seed, **settings)
    rest: dict[str, Any] = {"batches": 4, "scaling": "pooled" if pool else "client", **(data or {})}
    rows = FederatedData(Made(clients), seed=seed, align=align, pool=pool, **rest)  # type: ignore[arg-type]
    if not isinstance(exchange, Exchange):
        exchange = dict(exchange or {})
        if isinstance(exchange.get("rule"), partial | type):  # one for each run: it remembers
            exchange["rule"] = exchange["rule"]()
        exchange = Exchange(**exchange)
    checkpoints = options.pop("checkpoints", Checkpoints(best=0))
    # pictures take longer than these trainings
    options.setdefault("board", BoardSettings(corrections=0, confusion_matrices=0, curves=False))
    return Run(module, rows, exchange, root=folder, checkpoints=checkpoints, max_epochs=epochs, **options)


class Faulty(FederatedClient):
    """Sends other numbers than it learnt, if it is the guilty one: ten times its state with the other sign, thirty
    times its update, or a number in all places.
    """

    guilty, fault = "cedar", "state"
    before: Any = MappingProxyType({})

    def on_send(self, steps: int) -> None:
        if self.spec.name != self.guilty:
            return
        with torch.no_grad():
            for name, tensor in self.federated.items():
                before = self.before.get(name, torch.zeros_like(tensor))
                if self.fault == "state":
                    tensor.mul_(-10)
                elif self.fault == "update":
                    tensor.copy_(before - 30 * (tensor - before))
                else:
                    tensor.fill_(float(self.fault))

    def on_receive(self, received: Any) -> None:
        self.before = {name: value.clone() for name, value in received.items()}


def parts() -> ByPart:
    """Rules with states of their own."""
    return ByPart({"*": FedAvgM(0.5), "core": FedAdam(0.05), "head": Median(), "encoder.1.bias": "none"})


# not Adam: a shift right before batch normalisation has no gradient but rounding, which Adam makes as large as any
SLOW = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
SGD = partial(torch.optim.SGD, lr=0.05)
METHODS: dict[str, dict[str, Any]] = {
    "local": {},
    "global layers": {"exchange": {"federated": ["core"]}},
    "global layers, every step": {"exchange": {"federated": ["core"], "every": "step"}},
    "global layers, rate 0.5, every 3 steps": {
        "exchange": {"federated": ["core"], "every": {"steps": 3}, "rate": 0.5, "optimizer_state": "average"}
    },
    "fedavg": {"exchange": {"federated": ["*"], "buffers": "average"}, "align": "both"},
    "centralized": {"align": "both", "pool": True},
    "fedprox": {
        "loop": {"client": partial(FedProx, network=SmallNet, mu=0.1)},
        "exchange": {"federated": ["core"], "every": {"epochs": 2}},
    },
    "by name, momentum at the server": {
        "loop": {"client": partial(FederatedClient, network=Named)},
        "exchange": {"federated": ["*"], "by_name": ["*"], "rule": partial(FedAvgM, 0.6)},
    },
    "centered clipping, one client replays": {
        "exchange": {
            "federated": ["core"],
            "rule": CenteredClipping,
            "every": {"steps": 3},
            "attacks": [Attack("replay", client="birch")],
        },
    },
    "multi-krum, statistics and moments too, one client is noisy": {
        "exchange": {
            "federated": ["*"],
            "rule": partial(MultiKrum, 0.2),
            "buffers": "average",
            "optimizer_state": "average",
            "attacks": [Attack("noise", share=0.3, by=0.1)],
        },
        "align": "both",
    },
    "averages, then fine-tuned": {
        "exchange": {"federated": ["core"]},
        "loop": {"average": 0.5, "keep": "auroc", "then": Then(FineTune(epochs=2, patience=1, lr=0.005, average=0.3))},
    },
    "two optimizers": {"client": TwoOptimizers, "exchange": {"federated": ["core"]}},
    "ifedavg": {
        "client": IFedAvg,
        "exchange": {"federated": ["*"]},
        "align": "both",
        "data": {"scaling": "pooled"},
        "loop": {"optimizer": SLOW},
    },
    "ifedavg around global layers, from round 2": {
        "loop": {"client": partial(IFedAvg, network=SmallNet, start_round=2), "optimizer": SLOW},
        "exchange": {"federated": ["core"]},
    },
    "apfl": {"client": APFL, "exchange": {"federated": ["*"]}, "align": "both"},
    "apfl, alpha learnt": {
        "loop": {"client": partial(APFL, network=SmallNet, learn_alpha=True), "optimizer": SLOW},
        "exchange": {"federated": ["core"]},
    },
    "chfl": {
        "loop": {"client": partial(CHFL, hidden=[8, 6])},
        "data": {"common": "all", "scaling": "pooled"},
        "exchange": {"federated": ["common", "!common.*.head"]},
    },
    "chfl, concatenation, groups": {
        "loop": {"client": partial(CHFL, hidden=[8], unique="concatenation")},
        "data": {"common": "groups"},
        "exchange": {"federated": ["common", "!common.*.head"], "optimizer_state": "average"},
    },
    "tabm": {
        "loop": {"client": partial(FederatedClient, network=partial(TabM, k=2, width=8, embedding=3, num_bins=4))},
        "exchange": {"federated": ["core"]},
        "data": {"num_bins": 4},
    },
    "forest": {
        "loop": {"client": Forest},
        "exchange": {"rule": partial(GrowForest, 3, minimum=2, noise=0.2)},
        "align": "both",
        "data": {"scaling": "pooled"},
    },
    "global layers, batches of 8": {
        "exchange": {"federated": ["core"]},
        "data": {"batches": None, "batch_size": 8},
    },
    "global layers, another number of steps in each round": {
        "exchange": {"federated": ["core"]},
        "data": {"batches": None, "batch_size": 8, "steps": {"ash": [1, 7], "b*": 3, "*": [0, 12]}},
    },
    "ditto": {"client": Ditto, "exchange": {"federated": ["*"]}, "align": "both"},
    "fedrep": {
        "loop": {"client": partial(Alternating, network=SmallNet, private_first={"steps": 2}), "optimizer": SLOW},
        "exchange": {"federated": ["encoder", "core"]},
        "align": "both",
    },
    "fedalt, an epoch each": {
        "client": Alternating,
        "exchange": {"federated": ["core"], "every": {"epochs": 2}, "optimizer_state": "average"},
    },
    "fedbabu": {
        "loop": {"client": partial(FedBABU, network=SmallNet), "then": Then(FineTune(epochs=1, lr=0.005))},
        "exchange": {"federated": ["core"]},
    },
    "fedadam at the server, by rows": {
        "exchange": {"federated": ["core"], "rule": partial(FedAdam, 0.05, weights="rows"), "buffers": "average"},
    },
    "fedyogi at the server, rate 0.5": {
        "exchange": {"federated": ["*"], "rule": partial(FedYogi, 0.05), "rate": 0.5},
        "align": "both",
    },
    "fedadagrad at the server, moments too": {
        "exchange": {
            "federated": ["core"],
            "rule": partial(FedAdagrad, 0.05),
            "every": {"steps": 3},
            "optimizer_state": "average",
        },
    },
    "fednova, other steps in each round": {
        "exchange": {"federated": ["core"], "rule": partial(FedNova, weights="rows")},
        "data": {"batches": None, "batch_size": 8, "steps": {"ash": [1, 7], "b*": 3, "*": [0, 12]}},
    },
    "scaffold": {
        "loop": {"client": partial(Scaffold, network=SmallNet), "optimizer": SGD},
        "exchange": {"federated": ["core"], "rule": ScaffoldMean},
    },
    "scaffold, by name, some take part, rate 0.5, every 3 steps": {
        "loop": {"client": partial(Scaffold, network=Named), "optimizer": SGD},
        "exchange": {
            "federated": ["*"],
            "by_name": ["*"],
            "rule": ScaffoldMean,
            "participation": 0.7,
            "rate": 0.5,
            "every": {"steps": 3},
        },
    },
    "feddyn": {
        "loop": {"client": partial(FedDyn, network=SmallNet, alpha=1.0)},
        "exchange": {"federated": ["*"], "rule": FedDynMean, "buffers": "average", "participation": 0.7},
        "align": "both",
    },
    "rules by part": {
        "exchange": {"federated": ["*"], "rule": partial(parts), "buffers": "average", "participation": 0.7},
        "align": "both",
    },
    "pfedme": {
        "loop": {"client": partial(PFedMe, network=SmallNet, inner_steps=2, eta=0.05), "optimizer": SLOW},
        "exchange": {"federated": ["core"], "every": {"steps": 3}},
    },
    "per-fedavg, first-order": {
        "client": PerFedAvg,
        "exchange": {"federated": ["*"], "buffers": "average"},
        "align": "both",
    },
    "per-fedavg, hessian-free": {
        "loop": {
            "client": partial(PerFedAvg, network=SmallNet, hessian="finite_difference", delta=0.01),
            "optimizer": SLOW,
        },
        "exchange": {"federated": ["core"]},
    },
    "moon": {
        "loop": {"client": partial(MOON, network=SmallNet, mu=0.5), "optimizer": SLOW},
        "exchange": {"federated": ["core"], "every": {"steps": 3}},
    },
}
# rules that give clients different states, and remember what they gave
CLUSTERED: dict[str, dict[str, Any]] = {
    "fedgmcc": {
        "exchange": {
            "federated": ["core"],
            "rule": partial(FedGMCC, samples=8, steps=3, grid=4, inputs="range", outputs="raw", epsilon="barriers"),
        }
    },
    "cfl": {"exchange": {"federated": ["core"], "rule": partial(CFL, 9.0, 1e-6), "every": "step"}},
    "ifca": {
        "exchange": {"federated": ["*"], "rule": partial(IFCA, 3, "drawn"), "buffers": "average"},
        "align": "both",
    },
    "agglomerative": {"exchange": {"federated": ["core"], "rule": partial(Agglomerative, 2, clusters=2)}},
}
# whose rule works by questions and keeps no clusters
ASKING: dict[str, dict[str, Any]] = {
    "pooled logistic": {
        "loop": {"client": PooledLogistic},
        "data": {"scaling": "pooled"},
        "exchange": {"federated": ["prior"], "rule": Newton},
    },
    "mixed model": {
        "loop": {"client": MixedModel},
        "data": {"scaling": "pooled"},
        "exchange": {"federated": ["effects"], "rule": MixedEffects},
    },
}
# whom the guard leaves out
FAULTY: dict[str, dict[str, Any]] = {
    "one is far from the others": {"client": Faulty, "exchange": {"federated": ["core"], "every": {"steps": 3}}},
    "one is far, and made smaller": {
        "client": Faulty,
        "exchange": {"federated": ["*"], "guard": "clip", "rate": 0.5, "rule": FedAvgM},
        "align": "both",
    },
}
FEDERATED = [name for name, method in METHODS.items() if "federated" in method.get("exchange", {})]


def client_around(method: dict[str, Any], network: Any) -> Any:
    """What makes a method's clients, with another network where they are around one."""
    client = method.get("loop", {}).get("client", method.get("client", FederatedClient))
    if isinstance(client, partial) and client.keywords.get("network") is Named:  # as dry as the other
        return client
    return partial(client, network=network) if "network" in inspect.signature(client).parameters else client


def dry(method: dict[str, Any], engine: str, threads: int) -> dict[str, Any]:
    loop, client = method.get("loop", {}), client_around(method, Dry)
    return {**method, "loop": {**loop, "client": client, "engine": engine, "threads": threads}}


def weights(run: Run) -> dict[str, Tensor]:
    """All tensors of all clients, by client and name, with what clients remember beside their network."""
    remembered = {
        f"{owner}.{name}.{key}": value
        for owner, client in ((f"clients.{name}", own) for name, own in run.loop.federation.items())
        for name, state in client.state.items()
        for key, value in (state.items() if isinstance(state, dict) else [])
    }
    return {name: value.clone() for name, value in {**run.loop.state_dict(), **remembered}.items()}


def different(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """Names whose bits differ, or that only one has."""
    shared = first.keys() & second.keys()
    return sorted(
        (first.keys() ^ second.keys()) | {name for name in shared if not torch.equal(first[name], second[name])}
    )


def close(first: Run, second: Run, tolerance: float = 2e-4) -> bool:
    """Whether the clients of two runs predict the same."""
    for owner, _, rows in first.data.sites("test"):
        with torch.no_grad():
            one, two = (run.loop.federation[owner].eval().evaluate(Batch(rows.x, rows.y))[0] for run in (first, second))
        if not torch.allclose(one, two, atol=tolerance):
            return False
    return True


class Alike(Made):
    """Six clients of one shape, and one that differs."""

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for number in range(7):
            rng = np.random.default_rng(number)
            rows, features = (90, 5) if number < 6 else (70, 4)
            x = rng.normal(size=(rows, features))
            y = (x[:, 0] + rng.normal(size=rows) > 0).astype(int) + (x[:, 1] > 1)
            frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(features)])
            split = random_split(rows, seed, 0.3, 0.2)
            tables.append(ClientTable(f"site{number}", frame, pd.Series(y, name="y"), split))
        return tables


def alike(folder: Path, engine: str = "auto", network: Any = Dry, **options: Any) -> Run:
    loop = {"client": partial(options.pop("client", FederatedClient), network=network), "engine": engine}
    run = make_run(folder, loop={**loop, **options.pop("loop", {})}, **options)
    run.data.source = Alike()
    return run


class Spy(Callback):
    """Notes which clients were stacked together."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.stacks = [[client.spec.name for client in stack.clients] for _, stack in pl_module.engine._stacks.values()]


class Killed(Exception):
    """What ends a run in a thread, where Lightning cannot take an interrupt."""


class StopAfter(Callback):
    """Save a checkpoint after an aligned step and stop there, as a kill would."""

    def __init__(self, step: int, path: Path, by: type[BaseException] = KeyboardInterrupt) -> None:
        self.step, self.path, self.by = step, path, by

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise self.by


class Explodes(FederatedClient):
    """Birch's loss is not finite at one aligned step."""

    at = 5

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * math.nan if self.spec.name == "birch" and self.trainer.global_step == self.at else loss
