"""Batches: their order, resuming in the middle of an epoch, evaluation, who steps when, and what
hands them out."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import make_run
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import Given

from fedlit.data.encoding import Rows
from fedlit.data.loader import Batching, ClientLoader, EvalLoader, gather_together, sit_out
from fedlit.data.module import FederatedData
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

PROPERTY = settings(derandomize=True, max_examples=20, deadline=None)


def numbered(n: int) -> Rows:
    """Rows whose label and first column are their number."""
    number = torch.arange(n)
    return Rows(torch.stack([number.float(), -number.float()], 1), number, np.arange(n))


def loader_of(n: int, seed: int = 8, client: str = "a", **batching: Any) -> ClientLoader:
    return ClientLoader(numbered(n), Batching(**batching), seed, client)


def drawn(loader: ClientLoader, epoch: int = 0) -> list[list[int] | None]:
    """The numbers of the rows of each batch, None where the client waits."""
    loader.epoch = epoch
    found = list(loader)
    whole = (batch for batch in found if batch is not None)
    assert all(
        torch.equal(batch.x, torch.stack([batch.y.float(), -batch.y.float()], 1)) for batch in whole
    )
    return [None if batch is None else batch.y.tolist() for batch in found]


# ------------------------------------------------------------------ order


def test_order_depends_on_seed_client_and_epoch_alone() -> None:
    torch.manual_seed(1)
    first = drawn(loader_of(40, batches=4), 3)
    torch.manual_seed(2)
    used = loader_of(40, batches=4)
    for epoch in range(3):
        drawn(used, epoch)
    before = torch.get_rng_state()
    assert drawn(used, 3) == first
    assert torch.equal(torch.get_rng_state(), before)
    others = [loader_of(40, 9, batches=4), loader_of(40, client="b", batches=4)]
    assert first not in [drawn(other, 3) for other in others] and first != drawn(used, 4)


@PROPERTY
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_epoch_visits_each_row_at_most_once(n: int, batches: int, epoch: int) -> None:
    batches = min(n, batches)
    loader = loader_of(n, batches=batches)
    found = drawn(loader, epoch)
    visited = [row for batch in found for row in batch or []]
    assert [len(batch or []) for batch in found] == [n // batches] * batches and len(
        loader
    ) == batches
    assert len(set(visited)) == len(visited) == batches * (n // batches)


def test_more_steps_than_batches_shuffle_the_rows_again() -> None:
    batches = drawn(loader_of(24, batch_size=8, steps=7), 2)
    passes = [sorted(row for batch in batches[at : at + 3] for row in batch or []) for at in (0, 3)]
    assert passes == [list(range(24))] * 2 and len(batches) == 7 and batches[:3] != batches[3:6]
    # the first pass is that of a client with as many steps as batches
    assert drawn(loader_of(24, batch_size=8), 2) == batches[:3]
    assert [len(batch or []) for batch in drawn(loader_of(37, batch_size=8))] == [8, 8, 8, 8]
    assert [len(batch or []) for batch in drawn(loader_of(5, batch_size=8))] == [5]


def test_steps_drawn_by_client_and_epoch_alone() -> None:
    def counts(client: str, epochs: Any) -> list[int]:
        loader = loader_of(40, 3, client, batch_size=4, steps={"a": [0, 6], "*": 2})
        return [sum(batch is not None for batch in drawn(loader, epoch)) for epoch in epochs]

    first = counts("a", range(30))
    assert set(first) == {0, 1, 2, 3, 4, 5, 6} and counts("a", reversed(range(30))) == first[::-1]
    assert counts("b", range(3)) == [2, 2, 2]


@pytest.mark.parametrize("together", [False, True])
def test_who_sits_out_changes_no_batch_of_others(together: bool) -> None:
    """The clients that take part change in the middle of a pass through the rows."""
    loaders = {name: loader_of(24, 3, name, batch_size=4) for name in "abcd"}
    expected = {name: drawn(loader) for name, loader in loaders.items()}
    if together:
        gather_together(loaders.values())
    iterators = {name: iter(loader) for name, loader in loaders.items()}
    for position, active in enumerate(["abcd", "bd", "bd", "ac", "", "abcd"]):
        sit_out(loaders.values(), None if active == "abcd" else set(active))
        for name, iterator in iterators.items():
            batch = next(iterator)
            rows = None if batch is None else batch.y.tolist()
            assert rows == (expected[name][position] if name in active else None)


# ------------------------------------------------------------------ resuming and evaluation


@PROPERTY
@given(st.integers(0, 6), st.integers(0, 3))
def test_resumed_epoch_hands_out_the_remaining_batches(taken: int, epoch: int) -> None:
    # of six steps the last two go through the rows again
    whole, interrupted, resumed = (loader_of(30, batch_size=7, steps=6) for _ in range(3))
    expected = (
        drawn(whole, epoch)[taken:] if taken < 6 else drawn(whole, epoch + 1)
    )  # after an epoch comes the next one
    interrupted.epoch, iterator = epoch, iter(interrupted)
    for _ in range(taken):
        next(iterator)
    torch.manual_seed(taken)
    resumed.load_state_dict(interrupted.state_dict())
    assert resumed.epoch == epoch + (taken == 6)
    assert drawn(resumed, resumed.epoch) == expected


@PROPERTY
@given(st.integers(1, 40), st.integers(1, 50))
def test_evaluation_covers_all_rows_in_order(n: int, batch_size: int) -> None:
    few = numbered(3)
    loader = EvalLoader({"oak": numbered(n), "elm": few}, batch_size)
    assert len(loader) == int(np.ceil(max(n, 3) / batch_size))
    for _ in range(2):
        rounds = list(loader)
        of_elm = [batches["elm"].y for batches in rounds if "elm" in batches]
        assert torch.equal(torch.cat(of_elm), few.y)
        batches = [batches["oak"] for batches in rounds if "oak" in batches]
        assert torch.equal(torch.cat([batch.y for batch in batches]), torch.arange(n))
        assert torch.equal(torch.cat([batch.x for batch in batches]), numbered(n).x)
        assert len(batches) == int(np.ceil(n / batch_size))
        assert {len(batch.y) for batch in batches[:-1]} <= {batch_size}


@pytest.mark.parametrize(
    ("pace", "message"),
    [
        ({}, "expected one of batches .* found neither"),
        ({"batch_size": 0}, "data.batch_size: expected at least 1, found 0"),
        (
            {"batches": 3, "steps": [5, 2]},
            r"data.steps: expected a number of at least 1, or \[least, most\]",
        ),
    ],
)
def test_what_is_refused(pace: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Batching(**pace)
    with pytest.raises(
        ConfigError, match=r"client 'a': expected a checkpoint with 5 steps per epoch, found 10"
    ):
        loader_of(20, batches=5).load_state_dict({"epoch": 0, "position": 7, "length": 10})


# ------------------------------------------------------------------ the data module


def made(rows: dict[str, int], **settings: Any) -> FederatedData:
    """Clients of so many training rows."""
    tables = []
    for name, train in rows.items():
        n = train + 8
        splits: Any = dict(
            zip(
                ("train", "validation", "test"),
                np.split(np.arange(n), [train, train + 3]),
                strict=True,
            )
        )
        frame = pd.DataFrame({"x": np.arange(n) / 7})
        tables.append(ClientTable(name, frame, pd.Series(np.arange(n) % 2, name="y"), splits))
    data = FederatedData(Given(tables), **settings)
    data.setup()
    return data


def test_clients_take_the_same_number_of_steps() -> None:
    rows = {"c": 103, "a": 20, "b": 57}
    data = made(rows, batches=10)
    combined = data.train_dataloader()
    steps = list(combined)
    assert len(combined) == len(steps) == 10
    for batch, _, _ in steps:
        assert {name: len(rows.y) for name, rows in batch.items()} == {"a": 2, "b": 5, "c": 10}
    with pytest.raises(
        DataError, match=r"data.batches: .* a \(20\); set data.batches to at most 20"
    ):
        made(rows, batches=25)
    with pytest.raises(
        ConfigError, match=r"data.steps: expected one of the clients .*found 'aa'.*'a'"
    ):
        made(rows, batches=4, steps={"aa": 3})


def test_sites_are_ordered_by_name_and_match_their_batches() -> None:
    data = made({"c": 30, "a": 20, "b": 25}, batches=5)
    assert [spec.name for spec in data.specs] == ["a", "b", "c"]
    assert [(client, site) for client, site, _ in data.sites("test")] == [
        ("a", "a"),
        ("b", "b"),
        ("c", "c"),
    ]
    (batches,) = data.test_dataloader()
    for (_, site, rows), (name, batch) in zip(data.sites("test"), batches.items(), strict=True):
        assert site == name
        assert torch.equal(batch.x, rows.x)


# ------------------------------------------------------------------ in a run


def steps_of(client: Any) -> int:
    return max((int(state["step"]) for state in client._optimizers[0].state.values()), default=0)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_clients_step_once_a_batch_and_the_exchange_waits(accumulate: int, tmp_path: Path) -> None:
    data = {"batches": None, "batch_size": 8}
    loop = {"accumulate": accumulate}
    run = make_run(tmp_path, data=data, loop=loop, exchange={"federated": ["core"]})
    run.fit(quiet=True)
    batches = {name: len(loader.rows) // 8 for name, loader in run.data.train_loaders.items()}
    assert len(set(batches.values())) == 3
    # gradients that were accumulated at a client's own last batch of an epoch are not lost
    assert {name: steps_of(client) for name, client in run.loop.federation.items()} == {
        name: 3 * -(-own // accumulate) for name, own in batches.items()
    }
    assert run.loop.federation.step == 3 * max(batches.values()) and run.exchange.rounds == 3
