"""Settings of exchanges, rules, methods and trainings that are refused before training, by the key
that is named."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import ALIKE, NAMED, SmallNet, make_run, trained
from lightning import LightningModule
from torch.optim.lr_scheduler import ReduceLROnPlateau

import fedlit as m
from fedlit import MLP, Network
from fedlit.client.build import build_clients
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.ranks import deal
from fedlit.sharing import State
from fedlit.spec import ClientSpec
from fedlit.tasks import Counts, Regression
from fedlit.train.callbacks import Checkpoints
from fedlit.train.manifest import read_checkpoint
from fedlit.train.personal import FineTune


class Headless(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(
            torch.nn.Linear(num_features, num_outputs), torch.nn.Identity(), torch.nn.Identity()
        )


class Token(torch.nn.Module):
    """A parameter of its own and no ``reset_parameters``, as many published networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.token = torch.nn.Parameter(torch.randn(4))


class WithToken(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(torch.nn.Linear(num_features, 4), Token(), torch.nn.Linear(4, num_outputs))


def spec(**more: Any) -> ClientSpec:
    return ClientSpec("ash", ("a", "b"), (0, 1), {}, (), **more)


HUBER = ClientSpec("ash", ("a",), (), {}, (), task=Regression("huber"))
COUNTS = ClientSpec("ash", ("a",), (), {}, (), task=Counts(target="falls"))
SHARED = {"shared": ("a",)}
SETTINGS: list[tuple[Any, str]] = [
    # rules
    (partial(m.CFL, 0, 1), "epsilon_2"),
    (partial(m.IFCA, 0), "clusters"),
    *((partial(m.Agglomerative, **own), key) for own, key in (
        ({}, "None and None"), ({"clusters": 2, "distance": 1.0}, "2 and 1.0"), ({"distance": -0.1}, "-0.1"),
        ({"clusters": 0}, "clusters: "), ({"after": 0, "clusters": 2}, "after: "))),
    *((partial(m.FedGMCC, **{key: own}), f"found .*{own}") for key, own in (("grid", 3), ("lr", 0), ("move", 60))),  # type: ignore[arg-type]
    (partial(m.FedAvgM, 1.0), "momentum"),
    *((partial(m.Median, wrong), "attackers") for wrong in (0, -1, 0.5, 0.0, True, 1.5)),
    (partial(m.MultiKrum, keep=0), "keep"),
    (partial(m.GeometricMedian, iterations=0), "iterations"),
    (partial(m.NormBound, bound=0.0), "bound"),
    (partial(m.CenteredClipping, radius=-1.0), "radius"),
    (partial(m.CenteredClipping, iterations=0), "iterations"),
    *((partial(m.GrowForest, **{"trees": 2, **own}), next(iter(own)))  # type: ignore[arg-type]
      for own in ({"trees": 0}, {"minimum": 0}, {"max_features": 1.5})),
    *((partial(m.ByPart, parts), key) for parts, key in (  # type: ignore[arg-type]
        ({}, "none"), ({"core": "median"}, "core: .*'median'"), ({"core": "maen"}, "Did you mean "
            "'mean'"),
        ({"core": None}, "None"), ({"": "mean"}, "found ''"), ({"!head": "mean"}, "'!head'"),
        ({"core": m.GrowForest(3)}, "GrowForest"), ({"core": m.ByPart({"core": "mean"})}, "found "
            "ByPart"),
        ({"core": m.CFL(9.0, 1e-6), "head": m.IFCA()}, "core and head"))),
    # exchanges
    (partial(Exchange, ["core"], rate=1.5), "1.5"),
    (partial(Exchange, ["core"], minimum=0), "at least 1 client"),
    (partial(Exchange, ["core"], participation=0.0), "exchange.participation"),
    (partial(Exchange, [], participation=0.5), "something to exchange"),
    *((partial(Exchange, ["core"], every=wrong), "expected step, epoch|at least 1")  # type: ignore[arg-type]
      for wrong in ({"steps": 0}, {"steps": 1, "epochs": 1}, {"rounds": 3}, {}, "batch")),
    (partial(deal, {"a": 1, "b": 1}, 3), "2 clients on 3 ranks"),
    # clients
    *((partial(m.APFL, spec(), MLP, alpha=wrong), "alpha") for wrong in (1.5, {"oak": 0.9})),
    (partial(m.Ditto, spec(), MLP, strength=-1), "strength"),
    (partial(m.FedProx, spec(), MLP, mu=-1), "mu"),
    (partial(m.MOON, spec(), MLP, temperature=0), "temperature"),
    (partial(m.PerFedAvg, spec(), MLP, alpha=0), "alpha"),
    *((partial(m.PFedMe, spec(), MLP, **own), *own) for own in ({"strength": 0}, {"inner_steps": 0}, {"eta": 2.0})),
    *((partial(m.Alternating, spec(), MLP, own), "private_first") for own in ("step", {"steps": 0}, {"rounds": 1})),  # type: ignore[arg-type]
    (partial(m.FedPAC, spec(), MLP, classifier_first={"steps": 0}), "FedPAC: classifier_first"),
    (partial(m.CHFL, spec(common=None)), "data.common"),
    (partial(m.CHFL, spec(common={}), unique="none"), "common column"),
    *((partial(m.CHFL, spec(common=SHARED), mu=own), "mu") for own in (1.5, {"b*": 0.5})),
    (partial(m.IFedAvg, spec(), MLP, lr_factor=0.0), "lr_factor"),
    (partial(m.FedBABU, spec(), Headless), "head"),
    (partial(build_clients, [spec()], partial(FederatedClient, network=WithToken), 8), "'ash': "
        ".*core.token .*reset_"),
    (partial(m.Forest, HUBER), "huber"),
    (partial(m.MixedModel, HUBER), "task"),
    (partial(m.StratifiedCox, HUBER), "expected task survival"),
    (partial(m.PartialLikelihood, ridge=-1.0), "ridge"),
    (partial(m.PooledLogistic, COUNTS), "counts"),
    *((partial(m.PooledLogistic, spec(), **own), "strength|ridge")
      for own in ({"strength": -1.0}, {"ridge": 0.0}, {"strength": "strong"})),
    # trainings; names that torch uses
    (partial(FineTune, patience=0), "fine_tune"),
    *((partial(build_clients, [ClientSpec(own, ("a",), (0, 1), {}, ())], partial(FederatedClient, network=MLP), 8),
       f"client '{own}': expected")
      for own in ("type", "keys", "cpu", "training")),
]  # fmt: skip


@pytest.mark.parametrize(("make", "key"), SETTINGS)
def test_settings_out_of_range(make: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()


class Deep(FederatedClient):
    """Cedar has a part more."""

    def __init__(self, spec: Any, network: Any) -> None:
        super().__init__(spec, network)
        if spec.name == "cedar":
            self.deep = torch.nn.Linear(2, 2)


class Tallies(FederatedClient):
    def publish(self) -> State:
        return {"count": torch.tensor([3])}


class Overriding(FederatedClient):
    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("never called")


class Uneven(m.FedDyn):
    """Clients of different α."""

    def __init__(self, spec: Any, network: Any) -> None:
        super().__init__(spec, network, 0.1 if spec.name == "ash" else 0.2)


def plateau(optimizer: Any) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, "val/auc")  # type: ignore[arg-type]


def small(client: Any = FederatedClient, exchange: Any = None, **options: Any) -> dict[str, Any]:
    loop = {"client": partial(client, network=SmallNet), **options.pop("loop", {})}
    return {"loop": loop, "exchange": {"federated": ["core"], **(exchange or {})}, **options}


def parts(**options: Any) -> dict[str, Any]:
    return small(exchange={"federated": ["*"], "rule": partial(m.ByPart, options)}, align="both")


def forest(
    rule: Any = None, federated: tuple[str, ...] = (), client: Any = m.Forest, **options: Any
) -> dict[str, Any]:
    exchange = {"federated": list(federated), "rule": rule or m.GrowForest(2)}
    loop = {"client": client} if client else {}
    return {
        "align": "both",
        "data": {"scaling": "pooled"},
        "loop": loop,
        "exchange": exchange,
        **options,
    }


SGD = {"optimizer": partial(torch.optim.SGD, lr=0.1)}
COMMON = {
    "loop": {"client": partial(m.CHFL, hidden=[8, 6])},
    "data": {"common": "all", "scaling": "pooled"},
}
SLICES = {"federated": ["encoder"], "by_name": ["encoder"]}
GMCC = {"rule": partial(m.FedGMCC, outputs="raw"), "federated": ["common", "!common.*.head"]}
FEDERATIONS: list[tuple[dict[str, Any], str]] = [
    # rules and exchanges
    (small(exchange={"rule": m.Krum}), "Krum: expected at least 5 clients"),
    (small(exchange={"rule": m.Median, "participation": 0.6}), "exchange.partici"),
    *((small(exchange={"rule": rule, "rate": 0.5}), "exchange.rate") for rule in (m.FedNova, m.CFL)),
    (small(partial(m.FedProx, mu=0.1), {"rule": m.FedNova}, loop=SGD), "model.client: .*FedProx"),
    (small(exchange={"rule": partial(m.FedGMCC, outputs="probabilities")}), "head in "
        "exchange.federated"),
    ({"exchange": GMCC, **COMMON}, "found common"),
    (small(Deep, {"rule": m.IFCA, "federated": ["core", "deep"]}), "deep.bias at cedar and not at "
        "ash"),
    (small(exchange={"participation": 0.5, "minimum": 3}), "take part in a round, 2, found 3"),
    (small(Tallies), "client 'ash': .*found count"),
    (small(exchange={"by_name": ["*"]}), r"exchange.by_name: pattern '\*': expected a federated tensor whose slices"),
    ({"clients": ALIKE, "loop": {"client": NAMED}, "exchange": {**SLICES, "rule": partial(m.FedGMCC, inputs="range")}},
     "expected whole tensors"),
    (parts(core="mean"), "none for encoder.0.weight"),
    (parts(**{"core": "mean", "*": "mean"}), r"put '\*' first"),
    (parts(**{"*": "mean", "haed": "none"}), "pattern '!haed'"),
    (parts(**{"*": "mean", "core": m.Krum()}), "core: .*Krum: expected at least 5 clients"),
    (parts(**{"*": "mean", "head": "by_name"}), "exchange.by_name: pattern 'head'"),
    # what would never be trained
    *((small(partial(m.Alternating, private_first=first), {"every": every}), "'ash': "  # type: ignore[arg-type]
        ".*exchange.every")
      for first, every in (("epoch", "epoch"), ({"steps": 1}, "step"), ({"steps": 5}, {"steps": 5}))),
    *((small(partial(m.Alternating, private_first={"steps": 1}), {"federated": own}, align="both"),
       "exchange.federated") for own in (["*"], [])),
    (small(m.FedPAC, {"rule": m.FedPACMean()}), "'ash': FedPAC .*classifier_first.* exchange.every"),
    # what stays private, or must be federated
    (small(m.FedPAC, {"rule": m.FedPACMean(), "federated": ["head"]}, align="both"), "FedPAC "
        ".*exchange.federated"),
    (small(m.IFedAvg, {"federated": ["core", "affine_in"]}), "pattern 'affine_in'"),
    (small(m.MOON, {"federated": ["head"]}, align="both"), "'ash': MOON"),
    (small(m.PerFedAvg, {"federated": []}), "'ash': PerFedAvg"),
    (small(m.PFedMe, loop={"accumulate": 2}), "model.accumulate"),
    # a method and its rule belong together
    (small(m.Scaffold, loop=SGD), "exchange.rule: ScaffoldMean"),
    *((small(exchange={"rule": rule}, loop=SGD), "model.client: .*FederatedClient")
      for rule in (m.ScaffoldMean, m.FedDynMean)),
    (small(m.FedDyn), "exchange.rule: FedDynMean"),
    (forest(rule=m.Mean()), "GrowForest.*Mean"),
    (forest(client=None), "'ash': .*FederatedClient"),
    (forest(federated=("core",), client=None), "GrowForest"),
    ({"loop": {"client": m.PooledLogistic}, "exchange": {"federated": ["prior"]}}, "Newton"),
    (small(exchange={"rule": m.Newton}, align="both"), "exchange.federated: .*core"),
    # settings that break what is promised
    *((small(m.Scaffold, {"rule": m.ScaffoldMean}, loop={"optimizer": own}), "'ash': "
        ".*model.optimizer")
      for own in (torch.optim.AdamW, partial(torch.optim.SGD, lr=0.1, momentum=0.9))),
    (small(m.FedDyn, {"rule": m.FedDynMean, "rate": 0.5}), "exchange.rate"),
    (small(Uneven, {"rule": m.FedDynMean}), "'birch': .*alpha 0.2"),
    (forest(align="none"), "data.align"),
    (forest(data={"scaling": "client"}), "data.scaling"),
    ({"loop": {"client": m.MixedModel}, "data": {"scaling": "pooled", "batches": 1},
      "exchange": {"federated": ["effects"], "rule": partial(m.MixedEffects, ["nowhere"])}}, "slopes"),
    # trainings
    ({"gradient_clip_val": 1.0}, "model.gradient_clip_val"),
    ({"accumulate_grad_batches": 2}, "model.accumulate"),
    ({"checkpoints": Checkpoints(monitor="val/rmse")}, "checkpoint.monitor"),
    ({"data": {"batches": 30}}, "'ash': .*50 training rows in 30"),
    ({"loop": {"client": partial(FederatedClient, network=partial(MLP, hidden=[-1]))}}, "'ash'"),
    ({"client": Overriding}, "'ash': .*optimizer_step"),
    ({"loop": {"client": LightningModule}}, "fedlit.FederatedClient, found LightningModule"),
    ({"loop": {"scheduler": plateau}}, "val/auc"),
    ({"loop": {"average": 1.0}}, "model.average"),
    ({"loop": {"keep": "aurok"}}, "model.keep"),
    ({"loop": {"overrides": {"cedra": None}}}, "cedra"),
]  # fmt: skip


LATER = (
    "'ash': .*FederatedClient",
    "Newton",
    "'birch': .*alpha 0.2",
    "checkpoint.monitor",
    "val/auc",
)
"""What clients say of each other, and what only a Trainer sees: the plan does not know it."""


@pytest.mark.parametrize(("options", "key"), FEDERATIONS)
def test_what_does_not_fit_a_federation(options: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=key):
        trained(tmp_path, epochs=1, **options)
    if key not in LATER:
        with pytest.raises(ConfigError, match=key):
            make_run(tmp_path / "plan", **options).describe()


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "cut.ckpt").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"cut\.ckpt"):
        read_checkpoint(tmp_path / "cut.ckpt", resumable=False)
