"""Client classes of one's own, and what a configuration may give them."""

import sys
from pathlib import Path

import pytest
import torch
from federations import BUNDLED
from lightning.pytorch import LightningModule

import fedlit
from fedlit import MLP
from fedlit.errors import ConfigError

OWN = """
import fedlit

class WithSettings(fedlit.FederatedClient):
    def __init__(self, spec, network, rank=4):
        super().__init__(spec, network)
        self.save_hyperparameters("rank")

class Named(fedlit.FederatedClient):
    def __init__(self, spec, network, rank=4, **kwargs):
        super().__init__(spec, network, **kwargs)
        self.rank = rank

class Hidden(fedlit.FederatedClient):
    def __init__(self, spec, **kwargs):
        super().__init__(spec, **{**kwargs, "class_weights": "none"})
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_clients.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_clients", raising=False)
    return "own_clients"


def test_a_client_that_names_the_network_gets_a_class(module: str) -> None:
    args = (
        "--model.client.rank=3",
        "--model.client.network=fedlit.MLP",
        "--model.client.network.hidden=[7,5]",
    )
    run = fedlit.load(str(BUNDLED), f"--model.client={module}.Named", *args)
    run.describe()
    client = next(iter(run.loop.federation.clients.values()))
    assert (
        client.rank == 3
        and client.core.state_dict().keys() == MLP(4, 2, hidden=[7, 5]).core.state_dict().keys()
    )


def test_a_client_has_what_lightning_modules_offer(module: str, tmp_path: Path) -> None:
    states = []
    for kind in ("fedlit.FederatedClient", f"{module}.WithSettings"):
        args = (f"--model.client={kind}", "--model.client.network=fedlit.MLP")
        short = ("--model.engine=plain", "--trainer.max_epochs=2", "--trainer.logger=false")
        run = fedlit.load(
            str(BUNDLED), *args, *short, f"--trainer.default_root_dir={tmp_path / kind}"
        )
        run.fit(quiet=True)
        states.append(run.loop.clients.state_dict())
    assert isinstance(run.loop.federation["wine"], LightningModule)
    assert run.loop.federation["wine"].hparams == {"rank": 4}
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(("name", "given"), [("Named", "mu"), ("Hidden", "rank")])
def test_a_setting_that_nobody_takes_is_refused_with_its_key(
    name: str, given: str, module: str
) -> None:
    with pytest.raises(ConfigError, match=rf"--model\.client\.{given}: expected .*found '{given}'"):
        fedlit.load(
            "quickstart.yaml", f"--model.client={module}.{name}", f"--model.client.{given}=3"
        )
