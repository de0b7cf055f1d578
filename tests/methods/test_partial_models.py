"""Partial models that are patterns alone: what stays private is what the configuration's title says."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from federations import make_run
from torch import nn

from fedlit import MLP, GlobalLayers
from fedlit.client.client import FederatedClient

CONFIGS = Path(__file__).parents[2] / "configs" / "methods"
NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


def configured(name: str) -> dict[str, Any]:
    """A method's configuration, from its file."""
    return dict(yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")))


def private_of(folder: Path, name: str, network: Any) -> tuple[FederatedClient, set[str]]:
    config = configured(name)
    run = make_run(
        folder, loop={"client": lambda spec: FederatedClient(spec, network)}, exchange=config["exchange"],
        align=config.get("data", {}).get("align", "none"),
    )  # fmt: skip
    federated = set(run.describe().exchange["federated"])
    client = run.loop.federation["ash"]
    return client, {name for name, _ in client.named_parameters()} - federated


def test_fedbn_keeps_normalisations_and_nothing_else(tmp_path: Path) -> None:
    client, private = private_of(tmp_path, "fedbn", lambda d, k: GlobalLayers(d, k, global_features=1, blocks=2))
    norms = [name for name, module in client.named_modules() if isinstance(module, NORMS)]
    assert private == {f"{name}.{part}" for name in norms for part in ("weight", "bias")} and len(norms) > 8


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("fedper", {"head"}),
        ("fedrep", {"head"}),
        ("fedbabu", {"head"}),
        ("lg_fedavg", {"encoder"}),
        ("fedalt", {"encoder", "head"}),
        ("fedsim", {"encoder", "head"}),
        ("global_layers", {"encoder", "head"}),
    ],
)
def test_whole_parts_stay_private(name: str, parts: set[str], tmp_path: Path) -> None:
    client, private = private_of(tmp_path, name, MLP)
    assert private == {own for own, _ in client.named_parameters() if own.split(".")[0] in parts} != set()
