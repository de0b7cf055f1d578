"""Engines: side by side gives the bits of one after another, and what cannot run side by side does not."""

import threading
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import one_in
from federations import METHODS, SmallNet, close, different, dry, make_run, trained, weights
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.base import PlainEngine, ThreadedEngine
from fedlit.engine.stacked import StackedEngine, make_engine


class Watched(FederatedClient):
    """Says on which thread it was stepped."""

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.state.setdefault("threads", []).append(threading.current_thread().name)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("method", one_in(15, [name for name in METHODS if name != "centralized"]))
def test_auto_gives_the_bits_of_threads_and_plain_steps_are_close(method: str, tmp_path: Path) -> None:
    """Other numbers of threads give the same bits: contract/test_contract.py."""
    one, auto, plain = (
        trained(tmp_path / engine, **dry(METHODS[method], engine, workers))
        for engine, workers in (("threads", 1), ("auto", 3), ("plain", 1))
    )
    assert different(weights(one), weights(auto)) == [] and close(plain, one)


def test_threads_are_really_used_and_the_first_step_is_plain(tmp_path: Path) -> None:
    for engine, plain in (("threads", [0]), ("auto", [0, 1, 3])):
        run = trained(tmp_path, **dry({"client": Watched}, engine, 2), epochs=2)
        for client in run.loop.federation.values():
            steps = enumerate(client.state["threads"][:5])
            assert [step for step, name in steps if not name.startswith("fedlit")] == plain


def test_a_client_with_dropout_is_found_and_stepped_plainly(tmp_path: Path) -> None:
    options: dict[str, Any] = {"loop": {"client": partial(Watched, network=SmallNet), "engine": "auto", "threads": 2}}
    run = trained(tmp_path / "auto", **options)
    assert {name for name in run.loop.federation["ash"].state["threads"]} == {"MainThread"}
    reference = make_run(tmp_path / "one", client=Watched)  # one thread
    reference.fit(quiet=True)
    assert different(weights(reference), weights(run)) == []
    options["loop"]["engine"] = "threads"
    threaded = make_run(tmp_path / "threads", **options)
    threaded.fit(quiet=True)  # fused optimizers round otherwise: compared with the same engine on one thread
    alone = trained(tmp_path / "alone", loop={**options["loop"], "threads": 1})
    assert different(weights(alone), weights(threaded)) == [] and close(reference, threaded)
    assert {name for name in threaded.loop.federation["ash"].state["threads"]} == {"MainThread"}


def test_a_resumed_run_keeps_engine_and_threads(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1, **dry({}, "plain", 1))
    resumed = make_run(tmp_path, epochs=2, **dry({}, "threads", 3))
    resumed.fit("last", quiet=True)
    assert (resumed.loop.engine_name, resumed.loop.threads) == ("plain", 1)


def test_threads_are_shared_out() -> None:
    cpu = torch.device("cpu")
    make = partial(make_engine, scope=nullcontext)
    assert isinstance(make("auto", 1, 8, cpu), PlainEngine) and make("auto", 1, 8, cpu).intra_op == 8
    engine = make("auto", 3, 2, cpu)
    assert isinstance(engine, ThreadedEngine) and engine.workers == 2 and engine.intra_op == 1
    assert isinstance(make("auto", 3, 16, torch.device("cuda")), PlainEngine)
    assert isinstance(make("threads", 4, 16, cpu), ThreadedEngine)
    stacked = make("auto", 4, 1, cpu)
    assert isinstance(stacked, StackedEngine) and isinstance(stacked.inner, PlainEngine)
