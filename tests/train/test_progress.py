"""The progress bar on a real pseudo-terminal."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from federations import trained

from fedlit.train.callbacks import Progress


def test_shows_scores_loss_and_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    drawn = bytearray()

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while piece := os.read(controller, 65536):
                drawn.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(terminal, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        bar = Progress(refresh_rate=1)
        run = trained(tmp_path, epochs=3, exchange={"federated": ["core"]}, callbacks=[bar])
    reader.join()
    os.close(controller)
    assert run.trainer is not None
    auroc = float(run.trainer.callback_metrics["val/auroc"])
    last = drawn.decode().replace("\r", "\n").strip().splitlines()[-1]
    assert all(part in last for part in (f"val auroc={auroc:.3f}", "loss=", "round=3", "4/4"))
