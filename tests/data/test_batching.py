"""A fixed batch size, and steps that differ by client and round: who steps when, and that an exchange waits for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import make_run
from lightning.pytorch import Callback, Trainer

from fedlit.data.encoding import Rows
from fedlit.data.loader import Batching, ClientLoader
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange


def numbered(n: int) -> Rows:
    return Rows(torch.arange(float(n))[:, None], torch.zeros(n, dtype=torch.long), np.arange(n))


def drawn(loader: ClientLoader, epoch: int) -> list[list[int] | None]:
    loader.epoch = epoch
    return [None if batch is None else batch.x[:, 0].int().tolist() for batch in loader]


def test_a_batch_size_gives_each_client_its_own_number_of_steps() -> None:
    batches = drawn(ClientLoader(numbered(37), Batching(batch_size=8), 1, "a"), 0)
    assert [len(batch or []) for batch in batches] == [8, 8, 8, 8]
    rows = [row for batch in batches for row in batch or []]
    assert len(set(rows)) == 32
    small = ClientLoader(numbered(5), Batching(batch_size=8), 1, "a")
    assert [len(batch or []) for batch in drawn(small, 0)] == [5]


def test_more_steps_than_batches_go_through_the_rows_again_in_another_order() -> None:
    loader = ClientLoader(numbered(24), Batching(batch_size=8, steps=7), 1, "a")
    batches = [batch for batch in drawn(loader, 2) if batch is not None]
    passes = [sorted(row for batch in batches[at : at + 3] for row in batch) for at in (0, 3)]
    assert passes == [list(range(24))] * 2 and len(batches) == 7
    assert batches[:3] != batches[3:6]
    once = ClientLoader(numbered(24), Batching(batch_size=8), 1, "a")
    assert drawn(once, 2) == batches[:3]  # the first pass is that of a client with as many steps as batches


def test_steps_drawn_by_client_and_epoch_alone() -> None:
    pace = Batching(batch_size=4, steps={"a": [0, 6], "*": 2})

    def counts(name: str, epochs: Any) -> list[int]:
        loader = ClientLoader(numbered(40), pace, 3, name)
        return [sum(batch is not None for batch in drawn(loader, epoch)) for epoch in epochs]

    first = counts("a", range(30))
    assert set(first) == {0, 1, 2, 3, 4, 5, 6} and counts("a", reversed(range(30))) == first[::-1]
    assert counts("b", range(3)) == [2, 2, 2]


@pytest.mark.parametrize(
    ("pace", "message"),
    [
        ({}, "expected one of batches .* found neither"),
        ({"batch_size": 0}, "data.batch_size: expected at least 1, found 0"),
        ({"batches": 3, "steps": [5, 2]}, r"data.steps: expected a number of at least 1, or \[least, most\]"),
    ],
)
def test_what_is_refused(pace: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Batching(**pace)


class Counts(Callback):
    """How many optimizer steps each client had when an exchange came."""

    def __init__(self) -> None:
        self.seen: list[dict[str, int]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        exchange = next(own for own in trainer.callbacks if isinstance(own, Exchange))  # type: ignore[attr-defined]
        if exchange.rounds > len(self.seen):
            self.seen.append({name: steps_of(client) for name, client in pl_module.federation.items()})


def steps_of(client: Any) -> int:
    return max((int(state["step"]) for state in client._optimizers[0].state.values()), default=0)


def test_an_exchange_waits_for_the_client_with_most_batches(tmp_path: Path) -> None:
    counts = Counts()
    run = make_run(
        tmp_path,
        data={"batches": None, "batch_size": 8},
        exchange={"federated": ["core"]},
        callbacks=[counts],
    )
    run.fit(quiet=True)
    batches = {name: len(loader.rows) // 8 for name, loader in run.data.train_loaders.items()}
    assert len(set(batches.values())) == 3
    assert counts.seen == [{name: round_ * own for name, own in batches.items()} for round_ in (1, 2, 3)]
    assert run.loop.federation.step == 3 * max(batches.values())


def test_gradients_accumulated_at_a_clients_own_last_batch_are_not_lost(tmp_path: Path) -> None:
    run = make_run(tmp_path, loop={"accumulate": 3}, data={"batches": None, "batch_size": 8}, epochs=1)
    run.fit(quiet=True)
    for name, loader in run.data.train_loaders.items():
        assert steps_of(run.loop.federation[name]) == -(-loader.batches // 3)


def test_a_pattern_that_matches_no_client_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, data={"batches": None, "batch_size": 8, "steps": {"ahs": 3}})
    with pytest.raises(ConfigError, match=r"data.steps: expected one of the clients .*found 'ahs'.*'ash'"):
        run.describe()
