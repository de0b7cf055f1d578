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


@pytest.mark.parametrize("columns", [140, 0])
def test_shows_round_loss_and_mean_auroc(columns: int, tmp_path: Path) -> None:
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
    last = drawn.replace("\r", "\n").strip().splitlines()[-1]
    assert "12/12" in last
    assert f"epoch 3/3, round 3, loss {loss:.3f}" in last
    assert columns == 0 or f"val auroc {auroc:.3f}" in last


def test_silent_when_not_on_a_terminal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as stream:
        make_run(tmp_path, epochs=1, callbacks=[Progress(stream=stream)]).fit(quiet=True)
        stream.seek(0)
        assert stream.read() == ""
