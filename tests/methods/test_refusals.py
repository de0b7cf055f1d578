"""Settings of methods that are refused, by the key that the message names."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, make_run

from fedlit import methods as m
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.rules import GrowForest, Mean, MixedEffects, Newton
from fedlit.nn import MLP, Network
from fedlit.spec import ClientSpec
from fedlit.tasks import Counts, Regression


class Headless(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(torch.nn.Linear(num_features, num_outputs), torch.nn.Identity(), torch.nn.Identity())


def spec(**more: Any) -> ClientSpec:
    return ClientSpec("ash", ("a", "b"), (0, 1), {}, (), **more)


HUBER = ClientSpec("ash", ("a",), (), {}, (), task=Regression("huber"))
SHARED = {"shared": ("a",)}
CLIENTS: list[tuple[Any, str]] = [
    *((partial(m.APFL, spec(), MLP, alpha=wrong), "alpha") for wrong in (1.5, {"oak": 0.9})),
    (partial(m.Ditto, spec(), MLP, strength=-1), "strength"),
    (partial(m.FedProx, spec(), MLP, mu=-1), "mu"),
    (partial(m.MOON, spec(), MLP, temperature=0), "temperature"),
    (partial(m.PerFedAvg, spec(), MLP, alpha=0), "alpha"),
    *((partial(m.PFedMe, spec(), MLP, **own), "eta") for own in ({"strength": 0}, {"inner_steps": 0}, {"eta": 2.0})),
    *((partial(m.Alternating, spec(), MLP, own), "private_first") for own in ("step", {"steps": 0}, {"rounds": 1})),
    (partial(m.CHFL, spec(common=None)), "data.common"),
    (partial(m.CHFL, spec(common={}), unique="none"), "common column"),
    *((partial(m.CHFL, spec(common=SHARED), mu=own), "mu") for own in (1.5, {"b*": 0.5})),
    (partial(m.IFedAvg, spec(), MLP, lr_factor=0.0), "lr_factor"),
    (partial(m.FedBABU, spec(), Headless), "head"),
    (partial(m.Forest, HUBER), "huber"),
    (partial(m.MixedModel, HUBER), "task"),
    (partial(m.PooledLogistic, ClientSpec("ash", ("a",), (), {}, (), task=Counts(target="falls"))), "counts"),
    *((partial(m.PooledLogistic, spec(), **own), "strength|ridge")
      for own in ({"strength": -1.0}, {"ridge": 0.0}, {"strength": "strong"})),
    *((partial(GrowForest, **{"trees": 2, **own}), next(iter(own)))
      for own in ({"trees": 0}, {"minimum": 0}, {"max_features": 1.5})),
]  # fmt: skip


@pytest.mark.parametrize(("make", "key"), CLIENTS)
def test_settings_out_of_range(make: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make()


class Uneven(m.FedDyn):
    """Clients of different α."""

    def __init__(self, spec: Any, network: Any) -> None:
        super().__init__(spec, network, 0.1 if spec.name == "ash" else 0.2)


def small(client: Any, exchange: dict[str, Any], **options: Any) -> dict[str, Any]:
    loop = {"client": partial(client, network=SmallNet), **options.pop("loop", {})}
    return {"loop": loop, "exchange": {"federated": ["core"], **exchange}, **options}


def forest(rule: Any = None, federated: tuple[str, ...] = (), client: Any = m.Forest, **options: Any) -> dict[str, Any]:
    exchange = {"federated": list(federated), **({"rule": rule} if rule else {"rule": GrowForest(2)})}
    return {"align": "both", "data": {"scaling": "pooled"}, "loop": {"client": client} if client else {},
            "exchange": exchange, **options}  # fmt: skip


SGD = {"optimizer": partial(torch.optim.SGD, lr=0.1)}
FEDERATIONS: list[tuple[dict[str, Any], str]] = [
    # what would never be trained
    *((small(partial(m.Alternating, private_first=first), {"every": every}), "'ash': .*exchange.every")
      for first, every in (("epoch", "epoch"), ({"steps": 1}, "step"), ({"steps": 5}, {"steps": 5}))),
    *((small(partial(m.Alternating, private_first={"steps": 1}), {"federated": own}, align="both"),
       "exchange.federated") for own in (["*"], [])),
    # what stays private, or must be federated
    (small(m.IFedAvg, {"federated": ["core", "affine_in"]}), "affine_in.weight"),
    (small(m.MOON, {"federated": ["head"]}, align="both"), "'ash': MOON"),
    (small(m.PerFedAvg, {"federated": []}), "'ash': PerFedAvg"),
    (small(m.PFedMe, {}, loop={"accumulate": 2}), "model.accumulate"),
    # a method and its rule belong together
    (small(m.Scaffold, {}, loop=SGD), "exchange.rule: ScaffoldMean"),
    (small(FederatedClient, {"rule": m.ScaffoldMean}, loop=SGD), "model.client: .*FederatedClient"),
    (small(m.FedDyn, {}), "exchange.rule: FedDynMean"),
    (small(FederatedClient, {"rule": m.FedDynMean}), "model.client: .*FederatedClient"),
    (forest(rule=Mean()), "GrowForest.*Mean"),
    (forest(client=None), "'ash': .*FederatedClient"),
    (forest(federated=("core",), client=None), "GrowForest"),
    ({"loop": {"client": m.PooledLogistic}, "exchange": {"federated": ["prior"]}}, "Newton"),
    (small(FederatedClient, {"rule": Newton}, align="both"), "exchange.federated: .*core"),
    # settings that break what is promised
    *((small(m.Scaffold, {"rule": m.ScaffoldMean}, loop={"optimizer": own}), "'ash': .*model.optimizer")
      for own in (torch.optim.AdamW, partial(torch.optim.SGD, lr=0.1, momentum=0.9))),
    (small(m.FedDyn, {"rule": m.FedDynMean, "rate": 0.5}), "exchange.rate"),
    (small(Uneven, {"rule": m.FedDynMean}), "'birch': .*alpha 0.2"),
    (forest(align="none"), "data.align"),
    (forest(data={"scaling": "client"}), "data.scaling"),
    ({"loop": {"client": m.MixedModel}, "data": {"scaling": "pooled", "batches": 1},
      "exchange": {"federated": ["effects"], "rule": partial(MixedEffects, ["nowhere"])}}, "slopes"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "key"), FEDERATIONS)
def test_what_does_not_fit_a_federation_is_refused_before_training(
    options: dict[str, Any], key: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=key):
        make_run(tmp_path, epochs=1, **options).fit(quiet=True)
