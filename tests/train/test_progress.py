"""The progress bar on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from pathlib import Path

import pytest
from federations import make_run

from fedlit.train.callbacks import Progress


@pytest.mark.parametrize("columns", [140, 80, 40, 0])
def test_shows_what_matters_most_and_keeps_to_the_width(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40 if columns else 0, columns, 0, 0))
    with os.fdopen(terminal, "w") as stream:
        bar = Progress(interval=0, stream=stream)
        run = make_run(tmp_path, epochs=3, exchange={"federated": ["core"]}, callbacks=[bar])
        run.fit(quiet=True)
        stream.flush()
        drawn = os.read(controller, 1_000_000).decode()
    os.close(controller)
    assert run.trainer is not None
    auroc = float(run.trainer.callback_metrics["val/auroc"])
    loss = float(run.trainer.callback_metrics["train/loss"])
    lines = [line.strip() for line in drawn.replace("\r", "\n").strip().splitlines()]
    assert max(map(len, lines)) < (columns or 101)
    parts = [f"epoch 3/3, val auroc {auroc:.3f}", f", loss {loss:.3f}", ", round 3, 00:00 left", ", 12/12 steps"]
    shown = {140: 4, 80: 4, 40: 2, 0: 4}[columns]
    assert lines[-1].startswith("".join(parts[:shown])) and (shown == 4 or parts[shown] not in lines[-1])
    assert columns != 140 or lines[-1].endswith("█|")


def test_silent_when_not_on_a_terminal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as stream:
        make_run(tmp_path, epochs=1, callbacks=[Progress(stream=stream)]).fit(quiet=True)
        stream.seek(0)
        assert stream.read() == ""
