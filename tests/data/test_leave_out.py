"""A client that is left out: its table is made, and nothing else of it is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import Made, make_run

from fedlit.client.build import ClientOverride
from fedlit.data.module import FederatedData
from fedlit.data.shaping.mutations import Mutation
from fedlit.errors import ConfigError

CLIENTS = ("ash", "birch", "cedar")


def same(first: Any, second: Any) -> bool:
    mine, theirs = first.state_dict(), second.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_without_exchange_the_others_end_with_the_same_bits(tmp_path: Path) -> None:
    whole, without = (
        make_run(tmp_path / str(number), clients=CLIENTS, loop={"engine": "plain"}, data={"leave_out": gone})
        for number, gone in enumerate((None, ["birch"]))
    )
    whole.fit(quiet=True)
    without.fit(quiet=True)
    assert list(without.loop.federation) == ["ash", "cedar"] == list(without.data.names)
    for name in ("ash", "cedar"):
        assert same(whole.loop.federation[name], without.loop.federation[name])
    assert whole.loop.results["validation"].scores["ash"] == without.loop.results["validation"].scores["ash"]
    assert "left out (data.leave_out): birch" in without.data.notes


def test_what_is_drawn_among_all_clients_stays(tmp_path: Path) -> None:
    faults = [Mutation("shift"), Mutation("shift"), Mutation("shift")]  # one at each, drawn
    whole, without = (
        FederatedData(Made(CLIENTS), batches=2, mutations=faults, leave_out=gone, seed=3) for gone in (None, ["ash"])
    )
    whole.setup()
    without.setup()
    others = [fault for fault in whole.planted if fault.clients != ("ash",)]
    assert others == without.planted and len(others) == 2
    kept = [client.fingerprint() for client in whole.clients if client.spec.name != "ash"]
    assert kept == [client.fingerprint() for client in without.clients]
    # what is said of a client is no mistake where it is left out
    overrides = {"ash": ClientOverride(gradient_clip_val=1.0)}
    run = make_run(tmp_path, loop={"overrides": overrides}, data={"leave_out": ["ash"], "steps": {"ash": 1, "*": 2}})
    assert list(run.describe().clients) == ["birch", "cedar"]


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (["brich"], "data.leave_out: expected one of the clients ash, birch, cedar, found 'brich'. Did"),
        ([*CLIENTS], "data.leave_out: expected a client that stays, found all left out"),
    ],
)
def test_nonsense_is_refused(gone: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FederatedData(Made(CLIENTS), batches=2, leave_out=gone).setup()
    assert message in str(caught.value)
