"""Partial participation: idle clients cost memory only. Who takes part: train/test_loop.py,
methods/test_by_hand.py."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import alike, trained
from lightning.pytorch import Callback, Trainer
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedlit.client.client import FederatedClient
from fedlit.errors import RunError
from fedlit.train.loop import FederatedLoop

OPTIONS: dict[str, Any] = {"exchange": {"federated": ["core"], "participation": 0.4}, "epochs": 6}


def test_idle_clients_share_the_memory_of_the_federated_part(tmp_path: Path) -> None:
    class Watch(Callback):
        def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
            idle = [
                c
                for name, c in pl_module.federation.items()
                if name not in (pl_module.federation.cohort or ())
            ]
            places = {client.core[0].weight.data_ptr() for client in idle}  # type: ignore[index]
            counts.append((len(idle), len(places)))

    counts: list[tuple[int, int]] = []
    alike(tmp_path, callbacks=[Watch()], **OPTIONS).fit(quiet=True)
    # of the four idle ones, those that were stepped in the round just ended have memory of their
    # own
    assert [idle for idle, _ in counts] == [4] * 6 and all(places <= 4 for _, places in counts)
    assert min(places for _, places in counts) == 1 or sum(places for _, places in counts) < 4 * 6
    own = alike(
        tmp_path / "r",
        callbacks=[Watch()],
        **{**OPTIONS, "exchange": {**OPTIONS["exchange"], "rate": 0.5}},
    )
    counts.clear()
    own.fit(quiet=True)
    assert all(places == idle for idle, places in counts)


class Reads(TorchDispatchMode):
    """Counts values that are read from tensors, for which an accelerator would have to be waited
    for."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class Lists(TorchFunctionMode):
    """The same for what does not pass through the dispatcher."""

    seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func in (Tensor.tolist, Tensor.numpy, Tensor.cpu)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("clip", [None, 0.1])
def test_a_round_reads_twice_from_the_device_and_a_step_never(
    clip: float | None, tmp_path: Path
) -> None:
    """Once whom to leave out, once whether what the rule returned is finite."""
    reads: list[int] = []

    class Watch(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            self.modes = (Reads(), Lists())
            self.watch = ExitStack()
            for mode in self.modes:
                self.watch.enter_context(mode)

        def on_train_batch_end(self, *_: Any) -> None:  # after the exchange
            self.watch.close()
            reads.append(sum(mode.seen for mode in self.modes))

    options: dict[str, Any] = {
        "loop": {"gradient_clip_val": clip, "threads": 1},
        "callbacks": [Watch()],
    }
    trained(tmp_path, exchange={"federated": ["core"], "every": {"steps": 2}}, **options)
    assert reads == [0, 2] * 6


class FailsLater(FederatedClient):
    """Fails in a round in which others are idle."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step == 9:
            raise ValueError("enough")
        return super().training_step(batch, batch_idx)


def test_a_failure_gives_idle_clients_their_memory_back(tmp_path: Path) -> None:
    run = alike(tmp_path, client=FailsLater, loop={"engine": "plain", "threads": 1}, **OPTIONS)
    with pytest.raises(RunError, match="step 10: ValueError: enough"):
        run.fit(quiet=True)
    places = [
        own.data_ptr()
        for client in run.loop.federation.values()
        for own in client.core.parameters()
    ]
    assert len(set(places)) == len(places) == 7 * 3


class Adds(FederatedClient):
    """Adds 1 to each federated weight when it receives."""

    @torch.no_grad()
    def on_receive(self, received: Any) -> None:
        for tensor in self.federated.values():
            tensor.add_(1.0)


class AddsUndeclared(Adds):
    adapts = False


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_what_an_idle_client_changes_is_its_own(participation: float, tmp_path: Path) -> None:
    """Without learning, each client has one more than all had before: at the start, and after each
    exchange."""
    options = {
        **OPTIONS,
        "exchange": {**OPTIONS["exchange"], "participation": participation, "guard": False},
    }
    still = {"optimizer": partial(torch.optim.SGD, lr=0.0)}
    run = alike(tmp_path, client=Adds, loop=still, **options)
    run.describe()
    start = {name: own.core[0].weight.detach().clone() for name, own in run.loop.federation.items()}  # type: ignore[index]
    run.fit(quiet=True)
    for name, client in run.loop.federation.items():
        torch.testing.assert_close(client.core[0].weight, start[name] + 1 + options["epochs"])  # type: ignore[index]


def test_a_class_that_wrongly_says_that_it_adapts_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="adapts"):
        alike(tmp_path, client=AddsUndeclared, **OPTIONS).fit(quiet=True)
