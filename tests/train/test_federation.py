"""What a client knows of its federation: which of its tensors are federated, how many steps it took."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Made, SmallNet, trained
from lightning.pytorch import Trainer

from fedlit import Mean, Round
from fedlit.client.client import FederatedClient
from fedlit.data.module import FederatedData
from fedlit.exchange.exchange import Exchange
from fedlit.sharing import State
from fedlit.train.loop import FederatedLoop


class Looks(FederatedClient):
    """Trains its federated tensors at a rate of their own, and publishes how many there are."""

    def configure_optimizers(self) -> Any:
        own = dict(self.named_parameters())
        self.state["seen"] = [name for name in self.federated if name in own]
        groups = [
            {"params": [value for name, value in own.items() if (name in self.federated) == federated]}
            for federated in (True, False)
        ]
        return self.optimizer_of(groups, lr_factors=(0.5, 1.0))

    def publish(self) -> State:
        return {"tensors": torch.ones(len(self.federated))}


def test_what_is_federated_is_known_under_a_plain_trainer_too(tmp_path: Path) -> None:
    loop = FederatedLoop(partial(Looks, network=SmallNet))
    off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(max_epochs=1, callbacks=[Exchange(["core"])], default_root_dir=tmp_path, **off)  # type: ignore[arg-type]
    trainer.fit(loop, datamodule=FederatedData(Made(), batches=4))
    assert all(len(client.state["seen"]) == 4 for client in loop.federation.values())


# ------------------------------------------------------------------ steps since the last exchange


class Says(FederatedClient):
    """Notes what it is told before it sends, beside what its optimizer counts."""

    def on_send(self, steps: int) -> None:
        counted = max((int(own["step"]) for own in self._optimizers[0].state.values()), default=0)
        self.state.setdefault("told", []).append(steps)
        self.state.setdefault("counted", []).append(counted - self.state.get("before", 0))
        self.state["before"] = counted


class Notes(Mean):
    """Notes the steps of updates."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, int]] = []

    def __call__(self, round: Round) -> Any:
        self.steps.append({name: update.steps for name, update in round.updates.items()})
        return super().__call__(round)


CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    # what ash, birch and cedar say in three epochs of four batches each
    "accumulated, each step": (
        {"loop": {"accumulate": 3}, "exchange": {"every": "step"}},
        [[n, n, n] for n in (0, 0, 1, 1) * 3],
    ),
    "every two epochs": ({"exchange": {"every": {"epochs": 2}}}, [[8, 8, 8]]),
    "every five steps": ({"exchange": {"every": {"steps": 5}}}, [[5, 5, 5]] * 2),
    "a batch size, accumulated": (
        {"data": {"batches": None, "batch_size": 8}, "loop": {"accumulate": 4}},
        [[2, 1, 2]] * 3,
    ),
    "steps": ({"data": {"batches": 4, "steps": {"ash": 9, "*": 3}}}, [[9, 3, 3]] * 3),
}


def told_of(folder: Path, exchange: dict[str, Any], **options: Any) -> list[dict[str, int]]:
    """The steps that a run's rule was told; each client was told what its optimizer counted."""
    run = trained(folder, client=Says, exchange={"federated": ["core"], "rule": Notes(), **exchange}, **options)
    rounds = run.exchange.rule.steps  # type: ignore[attr-defined]
    for name, client in run.loop.federation.items():
        told = client.state.get("told", [])
        assert told == client.state.get("counted", []) == [own[name] for own in rounds if name in own]
    return rounds


@pytest.mark.parametrize("case", CASES)
def test_clients_and_rules_are_told_the_optimizer_steps_since_the_last_exchange(case: str, tmp_path: Path) -> None:
    options, expected = CASES[case]
    rounds = told_of(tmp_path, **{"exchange": {}, **options})
    assert [[own[name] for name in ("ash", "birch", "cedar")] for own in rounds] == expected


def test_a_client_that_takes_no_part_is_not_asked_and_starts_anew(tmp_path: Path) -> None:
    rounds = told_of(tmp_path, {"participation": 0.6}, epochs=6)
    assert [len(own) for own in rounds] == [2] * 6 and len({tuple(own) for own in rounds}) > 1
    assert {steps for own in rounds for steps in own.values()} == {4}
