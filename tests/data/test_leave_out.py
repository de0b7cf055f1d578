"""A client that is left out: its table is made, and nothing else of it is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from federations import Made, make_run

from fedlit.client.build import ClientOverride
from fedlit.data.module import FederatedData
from fedlit.data.shaping.mutations import Mutation
from fedlit.errors import ConfigError

CLIENTS = ("ash", "birch", "cedar")


def test_what_is_drawn_among_all_clients_stays(tmp_path: Path) -> None:
    faults = [Mutation("shift"), Mutation("shift"), Mutation("shift")]  # one at each, drawn
    whole, without = (
        FederatedData(Made(CLIENTS), batches=2, mutations=faults, leave_out=gone, seed=3) for gone in (None, ["ash"])
    )
    whole.setup()
    without.setup()
    others = [fault for fault in whole.planted if fault.clients != ("ash",)]
    assert others == without.planted and len(others) == 2
    assert "left out (data.leave_out): ash" in without.notes
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
