"""The progress bar on a terminal."""

import io
import sys
from pathlib import Path

import pytest
from federations import trained

from fedlit.train.callbacks import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_shows_scores_loss_and_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal := Terminal())
        run = trained(tmp_path, exchange={"federated": ["core"]}, callbacks=[Progress(refresh_rate=1)])
    assert run.trainer is not None
    auroc = float(run.trainer.callback_metrics["val/auroc"])
    last = terminal.getvalue().replace("\r", "\n").strip().splitlines()[-1]
    assert all(part in last for part in (f"val auroc={auroc:.3f}", "loss=", "round=3", "4/4"))
