"""Ranks that are asked for different things, or are at different points: refused, with what and where."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest
import torch
from federations import make_run
from ranks import on_ranks

from fedlit.exchange import messages
from fedlit.exchange.alive import Place
from fedlit.run.alike import asked_of, differences


def said_by(how: str, folder: Path) -> tuple[int, list[str], str]:
    ended = on_ranks(2, how, folder, script="unlike.py")
    return ended.returncode, re.findall(r"^fedlit: .*$", ended.stderr, re.M), ended.stdout


def test_ranks_of_different_settings_are_refused_with_each_one_s(tmp_path: Path) -> None:
    status, said, _ = said_by("settings", tmp_path)
    assert status != 0 and len(said) == 1
    assert "found trainer.max_epochs: 1 at rank 0, 2 at rank 1; loop.gradient_clip_val: 1.0 at rank 0, 2.0" in said[0]
    assert not list(tmp_path.iterdir())  # nothing was begun


@pytest.mark.full
def test_a_run_is_copied_on_ranks_and_ranks_at_different_points_are_told_apart(tmp_path: Path) -> None:
    status, said, printed = said_by("copies, then topics", tmp_path)
    assert status != 0 and printed.count("fitted again") == 2
    assert len(said) == 1 and "found rank 0 at 'pears', rank 1 at 'apples'" in said[0]


def test_what_is_asked_for_is_compared_by_value_and_objects_by_their_class(tmp_path: Path) -> None:
    def asked(lr: float, command: str = "fit") -> dict[str, object]:
        settings = {"model.optimizer.init_args.lr": lr, "trainer.callbacks": [{"class_path": "A"}], "none": None}
        return asked_of(make_run(tmp_path, settings=settings, callbacks=[torch.nn.Identity()]), command)

    assert differences([asked(0.1), asked(0.1)]) == ""
    assert differences([asked(0.1), asked(0.2, "test")]) == (
        'command: "fit" at rank 0, "test" at rank 1; model.optimizer.init_args.lr: 0.1 at rank 0, 0.2 at rank 1'
    )
    one, two = (
        asked_of(make_run(tmp_path, exchange={"federated": ["core"], "rate": rate}), "fit") for rate in (1, 0.5)
    )
    assert differences([one, one, two]) == "exchange.rate: 1 at ranks 0, 1, 0.5 at rank 2"


@pytest.mark.parametrize("away", [0, 1])
def test_who_is_waited_for_is_said_and_not_for_ever(
    away: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(messages, "_NOTICE", 0.3)
    monkeypatch.setattr(messages, "_MEETING", 2.0)
    monkeypatch.setattr(messages, "_TOLD", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    monkeypatch.setattr(messages, "_flags", [])
    with pytest.raises(SystemExit) as ended:
        messages._meet(Place(1 - away, 2, 1 - away, "127.0.0.1", port))
    assert ended.value.code == 2 and time.monotonic() - began < 20
    said = re.findall(r"^fedlit: .*$", capfd.readouterr().err, re.M)
    assert len(said) == 2 and f"waiting for rank {away} of 2 to come to 127.0.0.1, port {port}" in said[0]
    assert f"found that rank {away} did not come within 2 seconds" in said[1]
