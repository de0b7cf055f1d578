"""Batches: their order, resuming in the middle of an epoch, evaluation, and the data module that hands them out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch, Batching, ClientLoader, EvalLoader
from fedlit.data.module import FederatedData
from fedlit.data.sources import Source
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

PROPERTY = settings(derandomize=True, max_examples=20, deadline=None)


def numbered(n: int) -> Rows:
    """Rows whose label and first column are their number."""
    number = torch.arange(n)
    return Rows(torch.stack([number.float(), -number.float()], 1), number, np.arange(n))


def order(loader: ClientLoader, epoch: int = 0) -> list[int]:
    loader.epoch = epoch
    return [label for batch in loader for label in batch.y.tolist()]


# ------------------------------------------------------------------ order


def test_order_depends_on_seed_client_and_epoch_alone() -> None:
    rows = numbered(40)
    torch.manual_seed(1)
    first = order(ClientLoader(rows, Batching(batches=4), seed=8, client="a"), epoch=3)
    torch.manual_seed(2)
    torch.rand(11)
    used = ClientLoader(rows, Batching(batches=4), seed=8, client="a")
    for epoch in range(3):
        order(used, epoch)
    before = torch.get_rng_state()
    assert order(used, epoch=3) == first
    assert torch.equal(torch.get_rng_state(), before)
    others = [
        order(ClientLoader(rows, Batching(batches=4), seed=9, client="a"), epoch=3),
        order(ClientLoader(rows, Batching(batches=4), seed=8, client="b"), epoch=3),
        order(ClientLoader(rows, Batching(batches=4), seed=8, client="a"), epoch=4),
    ]
    assert all(other != first for other in others)


@PROPERTY
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_epoch_visits_each_row_at_most_once(n: int, batches: int, epoch: int) -> None:
    if batches > n:
        batches = n
    loader = ClientLoader(numbered(n), Batching(batches=batches), seed=0, client="a")
    loader.epoch = epoch
    sizes, visited = [], []
    for batch in loader:
        assert isinstance(batch, Batch)
        assert torch.equal(batch.x, torch.stack([batch.y.float(), -batch.y.float()], 1))  # rows stay whole
        sizes.append(len(batch.y))
        visited += batch.y.tolist()
    assert sizes == [n // batches] * batches
    assert len(loader) == batches
    assert len(set(visited)) == len(visited) == batches * (n // batches)


# ------------------------------------------------------------------ resuming


@PROPERTY
@given(st.integers(0, 6), st.integers(0, 3))
def test_resumed_epoch_hands_out_the_remaining_batches(taken: int, epoch: int) -> None:
    pace = Batching(batch_size=7, steps=6)  # the last two go through the rows again
    uninterrupted, interrupted, resumed = (ClientLoader(numbered(30), pace, seed=8, client="a") for _ in range(3))
    uninterrupted.epoch = interrupted.epoch = epoch
    whole = list(uninterrupted)
    iterator = iter(interrupted)
    for _ in range(taken):
        next(iterator)
    torch.manual_seed(taken)
    resumed.load_state_dict(interrupted.state_dict())
    assert resumed.epoch == epoch + (taken == 6)
    remaining = list(resumed)
    uninterrupted.epoch += 1
    expected = list(uninterrupted) if taken == 6 else whole[taken:]  # after a finished epoch comes the next one
    assert len(remaining) == len(expected)
    for one, other in zip(remaining, expected, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)


def test_a_position_of_another_number_of_batches_is_refused() -> None:
    loader = ClientLoader(numbered(20), Batching(batches=5), seed=8, client="a")
    with pytest.raises(ConfigError, match=r"client 'a': expected a checkpoint with 5 steps per epoch, found 10"):
        loader.load_state_dict({"epoch": 0, "position": 7, "length": 10})


# ------------------------------------------------------------------ evaluation


@PROPERTY
@given(st.integers(1, 40), st.integers(1, 50))
def test_evaluation_covers_all_rows_in_order(n: int, batch_size: int) -> None:
    loader = EvalLoader(numbered(n), batch_size)
    for _ in range(2):
        batches = list(loader)
        assert torch.equal(torch.cat([batch.y for batch in batches]), torch.arange(n))
        assert torch.equal(torch.cat([batch.x for batch in batches]), numbered(n).x)
        assert len(batches) == len(loader) == int(np.ceil(n / batch_size))
        assert {len(batch.y) for batch in batches[:-1]} <= {batch_size}


# ------------------------------------------------------------------ the data module


class InMemory(Source):
    """Tables of chosen sizes, in a chosen order: the number of training rows by client."""

    name = "in memory"

    def __init__(self, **train_rows: int) -> None:
        self.train_rows = train_rows

    def tables(self, seed: int) -> list[ClientTable]:
        return [self.table(name, rows) for name, rows in self.train_rows.items()]

    def table(self, name: str, train: int) -> ClientTable:
        n = train + 8
        splits = {"train": np.arange(train), "validation": np.arange(train, train + 3), "test": np.arange(train + 3, n)}
        return ClientTable(name, pd.DataFrame({"x": np.arange(n) / 7}), pd.Series(np.arange(n) % 2, name="y"), splits)


def ready(data: FederatedData) -> FederatedData:
    data.setup()
    return data


def test_clients_take_the_same_number_of_steps() -> None:
    data = ready(FederatedData(InMemory(c=103, a=20, b=57), batches=10))
    combined = data.train_dataloader()
    steps = list(combined)
    assert len(combined) == len(steps) == 10
    for batch, _, _ in steps:
        assert {name: len(rows.y) for name, rows in batch.items()} == {"a": 2, "b": 5, "c": 10}
    assert {len(loader) for loader in data.train_loaders.values()} == {10}


def test_more_batches_than_rows_are_refused() -> None:
    with pytest.raises(DataError, match=r"data.batches: .* a \(20\), b \(24\); set data.batches to at most 20"):
        FederatedData(InMemory(c=103, a=20, b=24), batches=25).setup()
    assert len(ready(FederatedData(InMemory(c=103, a=20, b=24), batches=20)).specs) == 3


@pytest.mark.parametrize("split", ["train", "test"])
def test_sites_are_ordered_by_name_and_match_their_loaders(split: str) -> None:
    data = ready(FederatedData(InMemory(c=30, a=20, b=25), batches=5, predict=split))
    assert [spec.name for spec in data.specs] == ["a", "b", "c"]
    assert [(client, site) for client, site, _ in data.sites(split)] == [("a", "a"), ("b", "b"), ("c", "c")]
    loaders = data.predict_dataloader()
    assert len(loaders) == 3
    for (_, _, rows), loader in zip(data.sites(split), loaders, strict=True):
        (batch,) = loader
        assert torch.equal(batch.x, rows.x)


def test_sites_of_a_pooled_client() -> None:
    data = ready(FederatedData(InMemory(c=30, a=20), batches=5, align="both", pool=True))
    assert [(client, site) for client, site, _ in data.sites("test")] == [("centralized", "a"), ("centralized", "c")]
    assert list(data.train_loaders) == ["centralized"]
    assert data.train_loaders["centralized"].batch_size == 10
