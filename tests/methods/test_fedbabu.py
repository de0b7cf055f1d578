"""FedBABU: the head rests during the federation and moves behind it."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from federations import SmallNet, different, make_run, weights

from fedlit.methods import FedBABU
from fedlit.train.tuning import FineTune, Then

# momentum and decay move whatever they can
BUSY = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5)


def babu(folder: Path, then: Then | None = None, **options: Any) -> Any:
    loop = {"client": partial(FedBABU, network=SmallNet), "then": then, **({} if then else {"optimizer": BUSY})}
    return make_run(folder, loop=loop, exchange={"federated": ["*"]}, align="both", **options)


def heads(run: Any) -> dict[str, torch.Tensor]:
    return {name: value for name, value in weights(run).items() if ".head." in name}


def test_the_head_rests_and_never_travels(tmp_path: Path) -> None:
    run = babu(tmp_path)
    plan = run.describe()
    start = weights(run)
    assert not [name for name in plan.exchange["federated"] if name.startswith("head")]
    assert [note for note in plan.notes if "FedBABU never trains its head" in note and "ash, birch, cedar" in note]
    run.fit(quiet=True)
    end = weights(run)
    assert different(heads(run), {name: value for name, value in start.items() if ".head." in name}) == []
    moved = {name.split(".")[2] for name in different(start, end) if "running" not in name and "num_b" not in name}
    assert moved == {"encoder", "core"}
    first, *others = (client.head.weight for client in run.loop.federation.values())
    assert all(torch.equal(first, other) for other in others)


def test_the_head_moves_when_clients_are_fine_tuned(tmp_path: Path) -> None:
    then = Then(FineTune(epochs=2, lr=0.02))
    whole = babu(tmp_path / "whole", then)
    assert not [note for note in whole.describe().notes if "never trains" in note]
    start = heads(whole)
    whole.fit(quiet=True)
    assert all(client.fine_tuning for client in whole.loop.federation.values())
    moved = {name.split(".")[1] for name in different(start, heads(whole))}
    assert moved == {"birch", "cedar"}  # ash's best epoch comes before
