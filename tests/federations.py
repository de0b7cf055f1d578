"""Small made federations for tests: clients whose columns, classes and sizes differ, trained in
well under a second."""

import inspect
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn

import fedlit as m
from fedlit import Network, TabM
from fedlit.attacks import Attack
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.module import FederatedData
from fedlit.data.sources.base import Source
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.exchange.exchange import Exchange
from fedlit.run.run import Run
from fedlit.spec import ClientSpec
from fedlit.testing import StopAfter as StopAfter
from fedlit.testing import different as different
from fedlit.testing import weights as weights
from fedlit.train.callbacks import Checkpoints
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop
from fedlit.train.personal import FineTune, Then
from fedlit.train.stop import Stop

SEVEN = tuple(f"site{number}" for number in range(7))
# features, classes, rows
SHAPES = {"ash": (5, 3, 90), "birch": (4, 2, 70), "cedar": (6, 4, 120), "dune": (5, 3, 80)}
SHAPES |= {**dict.fromkeys(SEVEN, (5, 3, 90)), "site6": (4, 3, 70)}
# clients that may share a stack, if all have the first's shape
ALIKE = ("ash", "birch", "cedar", "fir")

BUNDLED = Path(__file__).with_name("bundled.yaml")
"""A configuration of clients that share neither columns nor classes, for commands and studies."""

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


def table(name: str, x: np.ndarray, y: np.ndarray, seed: int, test: float = 0.3) -> ClientTable:
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    return ClientTable(name, frame, pd.Series(y, name="y"), random_split(len(x), seed, test, 0.2))


class Made(Source):
    """Clients with Gaussian features and labels that depend on them."""

    name = "made"
    about = "made data"

    def __init__(self, clients: tuple[str, ...] = ("ash", "birch", "cedar")) -> None:
        self.clients = clients
        self.test = 0.3
        self.alike = "fir" in clients

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for name in self.clients:
            features, classes, rows = SHAPES["ash" if self.alike else name]
            rng = np.random.default_rng(sum(map(ord, name)))
            x = rng.normal(size=(rows, features))
            y = np.clip(
                np.digitize(x[:, 0] + x[:, 1], np.linspace(-1, 1, classes - 1)), 0, classes - 1
            )
            tables.append(table(name, x, y, seed, self.test))
        return tables


class Timed(Made):
    """The same clients with times to an event, which are rounded up and of which some are
    censored."""

    name = "timed"

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for table in super().tables(seed):
            rng = np.random.default_rng(len(table.target))
            rate = np.exp(table.features["x0"] - 0.5 * table.features["x1"])
            death = np.ceil(rng.exponential(20 / rate))
            end = np.ceil(rng.uniform(5, 60, len(death)))
            rows = zip(np.minimum(death, end), (death <= end).astype(int), strict=True)
            y = pd.Series(list(rows), name=("days", "died"))
            task = {"name": "survival", "time": "days", "event": "died"}
            tables.append(replace(table, target=y, task=task))
        return tables


class SmallNet(Network):
    """A network with everything that is delicate: batch normalisation (buffers, an integer one too)
    and dropout."""

    def __init__(self, num_features: int, num_outputs: int, dry: bool = False) -> None:
        super().__init__(
            nn.Sequential(
                nn.Linear(num_features, 8, not dry),
                nn.BatchNorm1d(8),
                nn.ReLU(),
                *([] if dry else [nn.Dropout(0.3)]),
            ),
            nn.Sequential(nn.Linear(8, 8, not dry), nn.BatchNorm1d(8), nn.ReLU()),
            nn.Linear(8, num_outputs),
        )


Dry = partial(SmallNet, dry=True)
"""Without dropout, and without biases before a normalisation: these have no gradient but rounding,
which Adam makes a step of, so that engines could not be compared.
"""


class Named(Network):
    """A network whose first layer has a name for each column, and whose last has one for each
    class."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 8), nn.ReLU()),
            nn.Linear(8, 8),
            nn.Linear(8, num_outputs),
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
        for optimizer in self.optimizers():
            loss = self.loss(self(batch.x), batch.y)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
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
    source: Source | type[Made] = Made,
    **options: Any,
) -> Run:
    """A run over made clients, or those of a source, that writes below ``folder``."""
    if isinstance(source, type):
        source = source(clients)
    settings: dict[str, Any] = {
        "optimizer": partial(torch.optim.AdamW, lr=0.01),
        "threads": 1,
        **(loop or {}),
    }
    module = FederatedLoop(
        settings.pop("client", partial(client, network=SmallNet)), seed=seed, **settings
    )
    rest: dict[str, Any] = {"batches": 4, "scaling": "pooled" if pool else "client", **(data or {})}
    rows = FederatedData(source, seed=seed, align=align, pool=pool, **rest)  # type: ignore[arg-type]
    if not isinstance(exchange, Exchange):
        exchange = dict(exchange or {})
        if isinstance(exchange.get("rule"), partial | type):  # one for each run: it remembers
            exchange["rule"] = exchange["rule"]()
        exchange = Exchange(**exchange)
    checkpoints = options.pop("checkpoints", Checkpoints(best=0))
    # pictures take longer than these trainings
    options.setdefault("board", BoardSettings(pictures=0))
    return Run(
        module, rows, exchange, root=folder, checkpoints=checkpoints, max_epochs=epochs, **options
    )


def trained(folder: Path, ckpt: Any = None, **options: Any) -> Run:
    """Such a run behind its training."""
    run = make_run(folder, **options)
    run.fit(ckpt, quiet=True)
    return run


class Faulty(FederatedClient):
    """Sends other numbers than it learnt, if it is the guilty one: ten times its state with the
    other sign, thirty times its update, or a number in all places.
    """

    guilty = "cedar"
    fault = "state"
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


def parts() -> m.ByPart:
    """Rules with states of their own."""
    return m.ByPart(
        {"*": m.FedAvgM(0.5), "core": m.FedAdam(0.05), "head": m.Median(), "encoder.1.bias": "none"}
    )


# not Adam: a shift right before batch normalisation has no gradient but rounding, which Adam makes
# as large as any
SLOW = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
SGD = partial(torch.optim.SGD, lr=0.05)


def of(
    client: Any = None,
    federated: str = "core",
    align: str = "",
    data: Any = None,
    loop: Any = None,
    **exchange: Any,
) -> dict[str, Any]:
    """Options of :func:`make_run`: a class of clients around SmallNet, or what makes them; words
    are patterns."""
    around = {"client": client} if isinstance(client, type) else {}
    if isinstance(client, partial):
        loop = {"client": client, **(loop or {})}
    exchange = {**({"federated": federated.split()} if federated else {}), **exchange}
    more = {"exchange": exchange, "align": align, "data": data, "loop": loop}
    return {**around, **{key: value for key, value in more.items() if value}}


small = partial(partial, network=SmallNet)
PACE = {"batches": None, "batch_size": 8}
UNEVEN = {**PACE, "steps": {"ash": [1, 7], "b*": 3, "*": [0, 12]}}
POOLED = {"scaling": "pooled"}
MOMENTUM = {"optimizer": SLOW}
PLAIN = {"optimizer": SGD}
TUNED = Then(FineTune(epochs=2, patience=1, lr=0.005, average=0.3))
EARLY = Stop(patience=1, min_delta=99, min_epochs=2)  # behind the second epoch, whatever is scored
BOTH: dict[str, Any] = {"federated": "*", "align": "both"}
NAMED = partial(FederatedClient, network=Named)
SMALL_TABM = partial(TabM, k=2, width=8, embedding=3, num_bins=4)
COMMON = "common !common.*.head"
THREE: dict[str, Any] = {"every": {"steps": 3}}
METHODS: dict[str, dict[str, Any]] = {
    "local": {},
    "global layers": of(),
    "global layers, every step": of(every="step"),
    "global layers, rate 0.5, every 3 steps": of(rate=0.5, **THREE),
    "fedavg": of(buffers="average", **BOTH),
    "centralized": {"align": "both", "pool": True},
    "fedprox": of(small(m.FedProx, mu=0.1), every={"epochs": 2}),
    "by name, momentum at the server": of(NAMED, "*", by_name=["*"], rule=partial(m.FedAvgM, 0.6)),
    "centered clipping, one client replays": of(
        rule=m.CenteredClipping, attacks=[Attack("replay", client="birch")], **THREE
    ),
    "multi-krum, statistics too, one client is noisy": of(
        rule=partial(m.MultiKrum, 0.2), buffers="average",
        attacks=[Attack("noise", share=0.3, by=0.1)], **BOTH,
    ),
    "averages, then fine-tuned": of(loop={"average": 0.5, "keep": "auroc", "then": TUNED}),
    "stopped early": of(loop={"stop": EARLY}, buffers="average", **BOTH),
    "stopped early, averages, then fine-tuned": of(loop={"average": 0.5, "stop": EARLY, "then": TUNED}),
    "two optimizers": of(TwoOptimizers),
    "ifedavg": of(m.IFedAvg, data=POOLED, loop=MOMENTUM, **BOTH),
    "ifedavg around global layers": of(small(m.IFedAvg, lr_factor=3.0, outputs="scalar"), loop=MOMENTUM),
    "apfl": of(m.APFL, **BOTH),
    "apfl, alpha learnt": of(small(m.APFL, learn_alpha=True), loop=MOMENTUM),
    "chfl": of(partial(m.CHFL, hidden=[8, 6]), COMMON, data={"common": "all", **POOLED}),
    "chfl, concatenation, groups": of(
        partial(m.CHFL, hidden=[8], unique="concatenation"), COMMON, data={"common": "groups"}
    ),
    "tabm": of(partial(FederatedClient, network=SMALL_TABM), data={"num_bins": 4}),
    "forest": of(
        federated="", align="both", data=POOLED, loop={"client": m.Forest},
        rule=partial(m.GrowForest, 3, minimum=2),
    ),
    "global layers, batches of 8": of(data=PACE),
    "global layers, another number of steps in each round": of(data=UNEVEN),
    "ditto": of(m.Ditto, **BOTH),
    "fedala": of(small(m.FedALA, threshold=0.01), buffers="average", participation=0.7, **BOTH),
    "fedproto": of(small(m.FedProto), federated="", rule=m.PrototypeMean, participation=0.7),
    "fedproto, core shared": of(m.FedProto, rule=m.PrototypeMean, **THREE),
    "fedrod": of(m.FedRoD, buffers="average", **BOTH),
    "binary cross-entropy": of(m.BinaryCrossEntropy, **BOTH),
    "fedrep": of(small(m.Alternating, private_first={"steps": 2}), "encoder core", "both", loop=MOMENTUM),
    "fedalt, an epoch each": of(m.Alternating, every={"epochs": 2}),
    "fedbabu": of(small(m.FedBABU), loop={"then": Then(FineTune(epochs=1, lr=0.005))}),
    "fedadam at the server, by rows": of(rule=partial(m.FedAdam, 0.05, weights="rows"), buffers="average"),
    "fedyogi at the server, rate 0.5": of(rule=partial(m.FedYogi, 0.05), rate=0.5, **BOTH),
    "fedadagrad at the server, every 3 steps": of(rule=partial(m.FedAdagrad, 0.05), **THREE),
    "fednova, other steps in each round": of(rule=partial(m.FedNova, weights="rows"), data=UNEVEN),
    "scaffold": of(small(m.Scaffold), loop=PLAIN, rule=m.ScaffoldMean),
    "scaffold, by name, some take part, rate 0.5, every 3 steps": of(
        partial(m.Scaffold, network=Named), "*", loop=PLAIN, by_name=["*"], rule=m.ScaffoldMean, participation=0.7,
        rate=0.5, **THREE,
    ),
    "feddyn": of(small(m.FedDyn, alpha=1.0), rule=m.FedDynMean, buffers="average", participation=0.7, **BOTH),
    "rules by part": of(rule=partial(parts), buffers="average", participation=0.7, **BOTH),
    "pfedme": of(small(m.PFedMe, inner_steps=2, eta=0.05), loop=MOMENTUM, **THREE),
    "per-fedavg, first-order": of(m.PerFedAvg, buffers="average", **BOTH),
    "per-fedavg, hessian-free": of(small(m.PerFedAvg, hessian="finite_difference", delta=0.01), loop=MOMENTUM),
    "moon": of(small(m.MOON, mu=0.5), loop=MOMENTUM, **THREE),
}  # fmt: skip
# rules that give clients different states
CLUSTERED: dict[str, dict[str, Any]] = {
    "fedgmcc": of(
        rule=partial(
            m.FedGMCC, samples=8, steps=3, grid=4, inputs="range", outputs="raw", epsilon="barriers"
        )
    ),
    "fedpac": of(
        small(m.FedPAC, classifier_first={"steps": 2}),
        rule=m.FedPACMean,
        participation=0.7,
        buffers="average",
        **BOTH,
    ),
    "fedpac, by name, rate 0.5": of(
        partial(m.FedPAC, network=Named, classifier_first={"steps": 1}),
        "core head",
        rule=m.FedPACMean,
        by_name=["head"],
        rate=0.5,
        loop=MOMENTUM,
        **THREE,
    ),
    "fedamp": of(
        small(m.FedProx, mu=0.5), rule=partial(m.FedAMP, sigma=3.0), participation=0.7, **THREE
    ),
    "cfl": of(rule=partial(m.CFL, 9.0, 1e-6), every="step"),
    "ifca": of(rule=partial(m.IFCA, 3, "drawn"), buffers="average", **BOTH),
    "agglomerative": of(rule=partial(m.Agglomerative, 2, clusters=2)),
}
# whose rule works by questions and keeps no clusters
ASKING: dict[str, dict[str, Any]] = {
    "pooled logistic": of(
        federated="prior", data=POOLED, loop={"client": m.PooledLogistic}, rule=m.Newton
    ),
    "mixed model": of(
        federated="effects", data=POOLED, loop={"client": m.MixedModel}, rule=m.MixedEffects
    ),
    "stratified cox": {
        **of(
            federated="effects",
            data=POOLED,
            loop={"client": m.StratifiedCox},
            rule=m.PartialLikelihood,
        ),
        "source": Timed,
    },
}
# whom the guard leaves out
FAULTY = {"one is far from the others": of(Faulty, **THREE)}
FEDERATED = [name for name, method in METHODS.items() if "federated" in method.get("exchange", {})]


def dry(method: dict[str, Any], engine: str, threads: int) -> dict[str, Any]:
    """The method around a network without dropout, where it is around one, for an engine of so many
    threads."""
    loop = method.get("loop", {})
    client: Any = loop.get("client", method.get("client", FederatedClient))
    # as dry as the other
    named = isinstance(client, partial) and client.keywords.get("network") is Named
    if not named and "network" in inspect.signature(client).parameters:
        client = partial(client, network=Dry)
    return {**method, "loop": {**loop, "client": client, "engine": engine, "threads": threads}}


def close(first: Run, second: Run, tolerance: float = 2e-4) -> bool:
    """Whether the clients of two runs predict the same."""
    for owner, _, rows in first.data.sites("test"):
        with torch.no_grad():
            one, two = (
                run.loop.federation[owner].eval().evaluate(Batch(rows.x, rows.y))[0]
                for run in (first, second)
            )
        if not torch.allclose(one, two, atol=tolerance):
            return False
    return True


def alike(folder: Path, engine: str = "auto", network: Any = Dry, **options: Any) -> Run:
    """A run over six clients of one shape, and one that differs."""
    loop = {
        "client": partial(options.pop("client", FederatedClient), network=network),
        "engine": engine,
    }
    return make_run(folder, clients=SEVEN, loop={**loop, **options.pop("loop", {})}, **options)


class Spy(Callback):
    """Notes which clients were stacked together."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.stacks = [
            [client.spec.name for client in stack.clients]
            for _, stack in pl_module.engine._stacks.values()
        ]


class Killed(BaseException):
    """What ends a run or a site in a thread, where Lightning cannot take an interrupt. It is no
    exception: whoever handles those must not handle it."""


class Explodes(FederatedClient):
    """Birch's loss is not finite at one aligned step."""

    at = 5

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return (
            loss * math.nan
            if self.spec.name == "birch" and self.trainer.global_step == self.at
            else loss
        )
