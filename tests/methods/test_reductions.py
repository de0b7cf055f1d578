"""Without what it adds, a method is local training or FedAvg bit for bit, whatever engine trains it."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from contracts import covering
from federations import SmallNet, different, trained, weights
from torch import Tensor

from fedlit import APFL, MOON, Ditto, FedProx, IFedAvg
from fedlit.client.client import FederatedClient

Train = Callable[..., dict[str, Tensor]]
REDUCED: dict[str, tuple[Any, float | None, tuple[str, ...]]] = {
    # a client, the bound of its gradients (each copy's own), and which of its copies is compared
    "fedprox": (partial(FedProx, mu=0.0), None, ("fedavg",)),
    "moon": (partial(MOON, mu=0.0), None, ("fedavg",)),
    "ditto": (partial(Ditto, strength=0.0), 0.5, ("fedavg", "local")),
    "apfl, all local": (partial(APFL, alpha=1.0), 0.5, ("local",)),
    "apfl, all global": (partial(APFL, alpha=0.0), None, ("fedavg",)),
    "ifedavg": (partial(IFedAvg, inputs="none"), None, ("fedavg",)),
}
BESIDE = (".personal.", ".received.", ".previous.", "affine", "alpha")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    @cache
    def made(engine: str, client: Any, federated: str, clip: float | None) -> dict[str, Tensor]:
        loop = {"engine": engine, "client": partial(client, network=SmallNet), "gradient_clip_val": clip}
        exchange = {"federated": [federated] if federated else []}
        run = trained(tmp_path_factory.mktemp("run"), loop=loop, exchange=exchange, align="both")
        return weights(run)

    return made


@pytest.mark.parametrize(("method", "engine"), covering(list(REDUCED), ["plain", "auto"]))
def test_without_what_it_adds(method: str, engine: str, train: Train) -> None:
    client, clip, copies = REDUCED[method]
    found = train(engine, client, "*", clip)
    if "fedavg" in copies:
        shared = {name: value for name, value in found.items() if not any(part in name for part in BESIDE)}
        assert len(shared) > 30 and different(train(engine, FederatedClient, "*", clip), shared) == []
    if "local" in copies:
        own = {name.replace("personal.", ""): value for name, value in found.items() if ".personal." in name}
        assert different(train(engine, FederatedClient, "", clip), own) == []
