"""A process killed by SIGKILL in the middle of an epoch, resumed by the command line, ends with the bits of one
that was not killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from fedlit.__main__ import main
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO

EPOCHS = 4
ARGS = ["--config", "quickstart.yaml", f"--trainer.max_epochs={EPOCHS}", "--model.threads=1"]
ARGS += ["--model.client=slow.Slow", "--model.client.network=fedlit.MLP", "--model.client.network.dropout=0.2"]
ARGS += ["--board.confusion_matrices=0", "--checkpoint.seconds=0"]

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
    command = [sys.executable, "-m", "fedlit", "fit", *ARGS]
    with subprocess.Popen(
        command, cwd=part, env={**os.environ, "SLOW": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as killed:
        assert killed.stdout is not None
        for line in killed.stdout:
            if line.startswith("at 2 5"):
                os.kill(killed.pid, signal.SIGKILL)
                break
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


@pytest.mark.full  # a disk without room cuts it short, too: test_files.py
def test_a_checkpoint_cut_short_never_takes_the_name_of_a_whole_one(tmp_path: Path) -> None:
    """A process killed while it writes leaves the previous checkpoint, whole."""
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"epoch": 1}, path)
    code = (
        "import torch\nfrom fedlit.train.callbacks.checkpoint import AtomicCheckpointIO\n"
        f"while True: AtomicCheckpointIO().save_checkpoint({{'epoch': 2, 'x': torch.zeros(3_000_000)}}, {str(path)!r})"
    )
    writer = subprocess.Popen([sys.executable, "-c", code])
    for _ in range(6000):
        if list(tmp_path.glob(".*partial")):
            break
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait(timeout=30)
    assert torch.load(path, weights_only=True)["epoch"] in (1, 2)
