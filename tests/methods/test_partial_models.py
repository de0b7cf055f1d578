"""Partial models: what stays private is what a configuration's title says; of parts in turn, which
moves when."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from federations import SmallNet, make_run
from torch import nn

from fedlit import MLP, Alternating, FedBABU, GlobalLayers
from fedlit.client.client import FederatedClient
from fedlit.train.personal import FineTune, Then


class Watched(FederatedClient):
    """Notes which of its parts each step moves: the first letters of their names."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self.before = {name: own.detach().clone() for name, own in self.named_parameters()}

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        moved = {
            name[0]
            for name, own in self.named_parameters()
            if not torch.equal(own, self.before[name])
        }
        self.moved = [*getattr(self, "moved", []), "".join(sorted(moved))]


# momentum and decay move whatever they can
BUSY = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5)


@pytest.mark.parametrize(
    ("kind", "first", "every", "tuned", "turns"),
    [
        (Alternating, {"steps": 1}, "epoch", False, "hccc" * 3),
        (Alternating, {"steps": 2}, {"steps": 3}, False, "hhc" * 4),
        (Alternating, "epoch", {"epochs": 2}, False, "hhhh" + "cccc" + "hhhh"),
        (Alternating, {"epochs": 1}, {"epochs": 3}, False, "hhhh" + "cccc" * 2),
        # all is trained in the private last phase
        (Alternating, {"steps": 2}, "epoch", True, "hhcc" * 3 + "aaaa"),
        (FedBABU, None, "epoch", True, "c" * 12 + "aaaa"),
    ],
)
def test_one_part_moves_at_a_time(
    kind: Any, first: Any, every: Any, tuned: bool, turns: str, tmp_path: Path
) -> None:
    client = partial(
        type("Moves", (Watched, kind), {}),
        network=SmallNet,
        **({"private_first": first} if first else {}),
    )
    federated = ["*"] if kind is FedBABU else ["encoder", "core"]
    run = make_run(
        tmp_path,
        loop={
            "client": client,
            "optimizer": BUSY,
            "then": Then(FineTune(epochs=1)) if tuned else None,
        },
        exchange={"federated": federated, "every": every},
        align="both",
    )
    assert not any("never trains its head" in note for note in run.describe().notes)
    run.fit(quiet=True)
    assert run.loop.federation["ash"].moved == [
        {"h": "h", "c": "ce", "a": "ceh"}[turn] for turn in turns
    ]
    assert not [name for name in run.exchange.sharing.all_names if name.startswith("head")]


def test_a_head_that_nobody_will_ever_train_is_said(tmp_path: Path) -> None:
    loop = {"client": partial(FedBABU, network=SmallNet)}
    plan = make_run(tmp_path, loop=loop, exchange={"federated": ["*"]}, align="both").describe()
    assert [
        note
        for note in plan.notes
        if "FedBABU never trains its head" in note and "ash, birch, cedar" in note
    ]


CONFIGS = Path(__file__).parents[2] / "configs" / "methods"
NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


def private_of(folder: Path, name: str, network: Any) -> tuple[FederatedClient, set[str]]:
    config = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    run = make_run(
        folder, loop={"client": lambda spec: FederatedClient(spec, network)}, exchange=config["exchange"],
        align=config.get("data", {}).get("align", "none"),
    )  # fmt: skip
    federated = set(run.describe().exchange["federated"])
    client = run.loop.federation["ash"]
    return client, {name for name, _ in client.named_parameters()} - federated


def test_fedbn_keeps_normalisations_and_nothing_else(tmp_path: Path) -> None:
    client, private = private_of(
        tmp_path, "fedbn", lambda d, k: GlobalLayers(d, k, global_features=1, blocks=2)
    )
    norms = [name for name, module in client.named_modules() if isinstance(module, NORMS)]
    assert (
        private == {f"{name}.{part}" for name in norms for part in ("weight", "bias")}
        and len(norms) > 8
    )


PRIVATE = {
    "head": "fedper fedrep fedbabu",
    "encoder": "lg_fedavg",
    "encoder head": "fedalt fedsim global_layers",
}


@pytest.mark.parametrize(
    ("parts", "name"), [(parts, own) for parts, names in PRIVATE.items() for own in names.split()]
)
def test_whole_parts_stay_private(parts: str, name: str, tmp_path: Path) -> None:
    client, private = private_of(tmp_path, name, MLP)
    assert (
        private
        == {own for own, _ in client.named_parameters() if own.split(".")[0] in parts.split()}
        != set()
    )
