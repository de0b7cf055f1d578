"""Ranks that are asked for different things, or are at different points: refused, with what and where."""

from __future__ import annotations

import json
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from federations import make_run
from ranks import on_ranks

from fedlit.errors import ConfigError
from fedlit.exchange import ranks as exchange_ranks
from fedlit.exchange.place import Place
from fedlit.exchange.transport import Group
from fedlit.run.alike import asked_of, check_alike, differences


def said_by(how: str, folder: Path) -> tuple[int, str, str]:
    ended = on_ranks(2, how, folder, script="unlike.py")
    return ended.returncode, ended.stderr, ended.stdout


@pytest.mark.full
def test_a_run_is_copied_on_ranks_and_ranks_at_different_points_are_told_apart(tmp_path: Path) -> None:
    status, said, printed = said_by("copies, then topics", tmp_path)
    assert status != 0 and printed.count("fitted again") == 2
    assert "found rank 0 at 'pears', rank 1 at 'apples'" in said


@pytest.mark.full
def test_training_goes_on_at_all_ranks_where_a_checkpoint_cannot_be_written(tmp_path: Path) -> None:
    status, said, printed = said_by("cannot be written", tmp_path)
    assert status == 0, said
    assert printed.count("trained to the end") == 2 and said.count("training goes on") == 1
    assert next(tmp_path.rglob("last.ckpt")).is_file()


def test_what_is_asked_for_is_compared_by_value_and_objects_by_their_class(tmp_path: Path) -> None:
    def asked(lr: float, command: str = "fit", rate: float = 1) -> str:
        settings = {"model.optimizer.init_args.lr": lr, "trainer.callbacks": [{"class_path": "A"}], "none": None}
        own = {"config_text": json.dumps(settings)} if lr else {"exchange": {"federated": ["core"], "rate": rate}}
        return asked_of(make_run(tmp_path, callbacks=[torch.nn.Identity()], **own), command)

    assert asked(0.1) == asked(0.1) and asked(0) == asked(0)
    changed = differences(asked(0.1), asked(0.2, "test"))
    assert '- command: "fit"; + command: "test"; - model.optimizer.init_args.lr: 0.1; + ' in changed
    assert differences(asked(0), asked(0, rate=0.5)) == "- exchange.rate: 1; + exchange.rate: 0.5"


class OfTwo(Group):
    """The first of two ranks, whose other one is asked for something else."""

    size = 2

    def gather(self, topic: str, value: str) -> list[str]:
        return [value, value.replace('"fit"', '"test"')]


def test_ranks_that_are_asked_for_different_things_are_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, transport=OfTwo())
    check_alike(run, "test")
    with pytest.raises(ConfigError, match=r'rank 1 \(\+\): - command: "fit"; \+ command: "test"; start all with one'):
        check_alike(run, "fit")


@pytest.mark.parametrize("away", [0, 1])
def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(away: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(exchange_ranks, "_MEETING", timedelta(seconds=0.3))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(ConfigError, match=rf"expected 2 ranks to meet at 127.0.0.1, port {port}"):
        exchange_ranks.Ranks(Place(1 - away, 2, 1 - away, "127.0.0.1", port))
    assert time.monotonic() - began < 20
