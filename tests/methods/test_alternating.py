"""FedRep, FedAlt and FedBABU: which part moves when, while the other does not move at all."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, make_run

from fedlit import Alternating, FedBABU
from fedlit.client.client import FederatedClient
from fedlit.train.tuning import FineTune, Then


class Watched(FederatedClient):
    """Notes which of its parts each step moves: the first letters of their names."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self.before = {name: own.detach().clone() for name, own in self.named_parameters()}

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        moved = {name[0] for name, own in self.named_parameters() if not torch.equal(own, self.before[name])}
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
def test_one_part_moves_at_a_time(kind: Any, first: Any, every: Any, tuned: bool, turns: str, tmp_path: Path) -> None:
    client = partial(
        type("Moves", (Watched, kind), {}), network=SmallNet, **({"private_first": first} if first else {})
    )
    federated = ["*"] if kind is FedBABU else ["encoder", "core"]
    run = make_run(
        tmp_path,
        loop={"client": client, "optimizer": BUSY, "then": Then(FineTune(epochs=1)) if tuned else None},
        exchange={"federated": federated, "every": every},
        align="both",
    )
    assert not any("never trains its head" in note for note in run.describe().notes)
    run.fit(quiet=True)
    assert run.loop.federation["ash"].moved == [{"h": "h", "c": "ce", "a": "ceh"}[turn] for turn in turns]
    assert not [name for name in run.exchange.sharing.all_names if name.startswith("head")]


def test_a_head_that_nobody_will_ever_train_is_said(tmp_path: Path) -> None:
    loop = {"client": partial(FedBABU, network=SmallNet)}
    plan = make_run(tmp_path, loop=loop, exchange={"federated": ["*"]}, align="both").describe()
    assert [note for note in plan.notes if "FedBABU never trains its head" in note and "ash, birch, cedar" in note]
