"""A process killed by SIGKILL in the middle of an epoch, resumed by the command line, ends with the bits of one
that was not killed. It is the console script, which finds a class in the working directory, and is quiet where no
terminal is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedlit.__main__ import main

EPOCHS = 4
ARGS = ["--config", "quickstart.yaml", f"--trainer.max_epochs={EPOCHS}", "--model.threads=1"]
ARGS += ["--model.client=slow.Slow", "--model.client.network=fedlit.MLP", "--model.client.network.dropout=0.2"]
ARGS += ["--board.pictures=0", "--checkpoint.seconds=0"]

SLOW = """
import os, time
from fedlit import FederatedClient

class Slow(FederatedClient):
    '''Takes its time, so that the kill falls into the middle of an epoch, and says where it is.'''

    def training_step(self, batch, batch_idx):
        if os.environ.get("SLOW"):
            time.sleep(0.01)
            print("at", self.current_epoch, batch_idx, flush=True)
        return super().training_step(batch, batch_idx)
"""


def checkpoint(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / "lightning_logs/quickstart/version_0/checkpoints/last.ckpt"
    loaded = torch.load(path, weights_only=True)
    assert loaded["epoch"] == EPOCHS - 1
    tensors = dict(loaded["state_dict"])
    for index, optimizer in enumerate(loaded["optimizer_states"]):
        for parameter, state in optimizer["state"].items():
            tensors |= {f"{index}/{parameter}/{key}": value for key, value in state.items()}
    return tensors


def test_killed_in_the_middle_of_an_epoch_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    for folder in (whole, part):
        folder.mkdir()
        (folder / "slow.py").write_text(SLOW)
    command = [Path(sys.executable).parent / "fedlit", "fit", *ARGS]
    with subprocess.Popen(
        command, cwd=part, env={**os.environ, "SLOW": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None and killed.stderr is not None
        for line in killed.stdout:
            if line.startswith("at 2 5"):
                os.kill(killed.pid, signal.SIGKILL)
                break
        assert killed.stderr.read() == ""
    assert killed.returncode == -signal.SIGKILL
    for folder, more in ((whole, []), (part, ["--ckpt_path", "last"])):
        monkeypatch.chdir(folder)
        monkeypatch.delitem(sys.modules, "slow", raising=False)
        assert main(["fit", *ARGS, *more]) == 0
    assert "continued from last.ckpt" in capsys.readouterr().out
    assert [path.name for path in (part / "lightning_logs/quickstart").iterdir()] == ["version_0"]
    expected, found = checkpoint(whole), checkpoint(part)
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
