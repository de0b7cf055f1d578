"""FedRep and FedAlt: which part moves when, while the other does not move at all; the joint optimum of quadratics."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, make_run

from fedlit.methods import Alternating
from fedlit.train.tuning import FineTune, Then


class Watched(Alternating):
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
    ("first", "every", "turns"),
    [
        ({"steps": 1}, "epoch", "hccc" * 3),
        ({"steps": 2}, {"steps": 3}, "hhc" * 4),
        ("epoch", {"epochs": 2}, "hhhh" + "cccc" + "hhhh"),
        ({"epochs": 1}, {"epochs": 3}, "hhhh" + "cccc" * 2),
    ],
)
def test_one_part_moves_at_a_time(first: Any, every: Any, turns: str, tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        loop={"client": partial(Watched, network=SmallNet, private_first=first), "optimizer": BUSY},
        exchange={"federated": ["encoder", "core"], "every": every},
        align="both",
    )
    run.fit(quiet=True)
    assert run.loop.federation["ash"].moved == [{"h": "h", "c": "ce"}[turn] for turn in turns]


def test_all_is_trained_in_the_private_last_phase(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "exchange": {"federated": ["core"]},
        "loop": {
            "client": partial(Watched, network=SmallNet, private_first={"steps": 2}),
            "then": Then(FineTune(epochs=1)),
        },
    }
    whole = make_run(tmp_path / "whole", **options)
    whole.fit(quiet=True)
    assert whole.loop.federation["ash"].moved == ["eh", "eh", "c", "c"] * 3 + ["ceh"] * 4
