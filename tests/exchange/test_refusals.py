"""Settings of exchanges and rules that are refused, by the key that the message names."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, make_run

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.ranks import deal
from fedlit.exchange.rules import (
    CFL,
    IFCA,
    Agglomerative,
    ByPart,
    CenteredClipping,
    FedAvgM,
    FedGMCC,
    FedNova,
    GeometricMedian,
    GrowForest,
    Krum,
    Median,
    MultiKrum,
    NormBound,
)
from fedlit.methods import CHFL, FedProx
from fedlit.sharing import State

SETTINGS: list[tuple[Any, str]] = [
    (lambda: CFL(0, 1), "epsilon_2"),
    (lambda: IFCA(0), "clusters"),
    (lambda: Agglomerative(), "clusters and distance"),
    (lambda: Agglomerative(after=0, clusters=2), "found 0"),
    (lambda: FedGMCC(grid=3), "found .*3"),
    (lambda: FedGMCC(lr=0), "found .*0"),
    (lambda: FedGMCC(move=60), "found .*60"),
    (lambda: FedAvgM(1.0), "momentum"),
    *((partial(Median, wrong), "attackers") for wrong in (0, -1, 0.5, 0.0, True, 1.5)),
    (lambda: MultiKrum(keep=0), "keep"),
    (lambda: GeometricMedian(iterations=0), "iterations"),
    (lambda: NormBound(bound=0.0), "bound"),
    (lambda: CenteredClipping(radius=-1.0), "radius"),
    (lambda: CenteredClipping(iterations=0), "iterations"),
    (lambda: ByPart({}), "none"),
    (lambda: ByPart({"core": "median"}), "core: .*'median'"),  # type: ignore[dict-item]
    (lambda: ByPart({"core": "maen"}), "Did you mean 'mean'"),  # type: ignore[dict-item]
    (lambda: ByPart({"core": None}), "None"),  # type: ignore[dict-item]
    (lambda: ByPart({"": "mean"}), "found ''"),
    (lambda: ByPart({"!head": "mean"}), "'!head'"),
    (lambda: ByPart({"core": GrowForest(3)}), "GrowForest"),
    (lambda: ByPart({"core": ByPart({"core": "mean"})}), "found ByPart"),
    (lambda: ByPart({"core": CFL(9.0, 1e-6), "head": IFCA()}), "core and head"),
    (lambda: Exchange(["core"], rate=1.5), "1.5"),
    (lambda: Exchange(["core"], minimum=0), "at least 1 client"),
    (lambda: Exchange(["core"], participation=0.0), "exchange.participation"),
    (lambda: Exchange([], participation=0.5), "something to exchange"),
    *(
        (partial(Exchange, ["core"], every=wrong), "expected step, epoch|at least 1")
        for wrong in ({"steps": 0}, {"steps": 1, "epochs": 1}, {"rounds": 3}, {}, "batch")
    ),
    (lambda: deal({"a": 1, "b": 1}, 3), "2 clients on 3 ranks"),
]


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


class Counts(FederatedClient):
    def publish(self) -> State:
        return {"count": torch.tensor([3])}


COMMON = {"loop": {"client": partial(CHFL, hidden=[8, 6])}, "data": {"common": "all", "scaling": "pooled"}}
PROX = {"loop": {"client": partial(FedProx, network=SmallNet, mu=0.1), "optimizer": partial(torch.optim.SGD, lr=0.1)}}
FEDERATIONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"rule": Krum}, {}, "Krum: expected at least 5 clients"),
    ({"rule": Median, "participation": 0.6}, {}, "exchange.partici"),
    ({"rule": FedNova, "rate": 0.5}, {}, "exchange.rate"),
    ({"rule": CFL, "rate": 0.5}, {}, "exchange.rate"),
    ({"rule": FedNova}, PROX, "model.client: .*FedProx"),
    ({"rule": partial(FedGMCC, outputs="probabilities")}, {}, "head in exchange.federated"),
    ({"rule": partial(FedGMCC, outputs="raw"), "federated": ["common", "!common.*.head"]}, COMMON, "found common"),
    ({"rule": IFCA, "federated": ["core", "deep"]}, {"client": Deep}, "deep.bias at cedar and not at ash"),
    ({"participation": 0.5, "minimum": 3}, {}, "take part in a round, 2, found 3"),
    ({}, {"client": Counts}, "client 'ash': .*found count"),
    *(
        ({"federated": ["*"], "rule": partial(ByPart, parts)}, {"align": "both"}, key)
        for parts, key in (
            ({"core": "mean"}, "none for encoder.0.weight"),
            ({"core": "mean", "*": "mean"}, r"put '\*' first"),
            ({"*": "mean", "haed": "none"}, "exchange.rule.parts: 'haed'"),
            ({"*": "mean", "core": Krum()}, "core: .*Krum: expected at least 5 clients"),
            ({"*": "mean", "head": "by_name"}, "exchange.by_name: pattern 'head'"),
        )
    ),
]


@pytest.mark.parametrize(("exchange", "options", "key"), FEDERATIONS)
def test_what_does_not_fit_a_federation_is_refused_before_training(
    exchange: dict[str, Any], options: dict[str, Any], key: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=key):
        make_run(tmp_path, exchange={"federated": ["core"], **exchange}, **options).describe()
