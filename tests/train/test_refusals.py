"""Settings of a training that are refused before it, by the key that the message names."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from federations import SmallNet, make_run
from lightning import LightningModule
from torch.optim.lr_scheduler import ReduceLROnPlateau

from fedlit.client.build import build_clients
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.nn import MLP
from fedlit.spec import ClientSpec
from fedlit.train.callbacks import Checkpoints
from fedlit.train.manifest import read_checkpoint
from fedlit.train.tuning import FineTune


class Overriding(FederatedClient):
    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("never called")


def plateau(optimizer: Any) -> ReduceLROnPlateau:
    return ReduceLROnPlateau(optimizer, "val/auc")  # type: ignore[arg-type]


RUNS: list[tuple[dict[str, Any], str]] = [
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
]


@pytest.mark.parametrize(("options", "key"), RUNS)
def test_what_no_run_can_do(options: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=key):
        make_run(tmp_path, epochs=1, **options).fit(quiet=True)


@pytest.mark.parametrize("name", ["type", "keys", "cpu", "training"])
def test_client_names_that_torch_uses(name: str) -> None:
    with pytest.raises(ConfigError, match=f"client '{name}'"):
        build_clients([ClientSpec(name, ("a",), (0, 1), {}, ())], partial(FederatedClient, network=SmallNet), seed=8)


def test_what_is_no_checkpoint_and_no_tuning(tmp_path: Path) -> None:
    (tmp_path / "cut.ckpt").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"cut\.ckpt"):
        read_checkpoint(tmp_path / "cut.ckpt", resumable=False)
    with pytest.raises(ConfigError, match="fine_tune"):
        FineTune(patience=0)
