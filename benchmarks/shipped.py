"""fedlit as it ships, measured through its public interface; what ``speed.py`` compares with
``plain.py``.
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from measure import memory

import fedlit


class Epochs(Callback):
    """Notes when epochs begin, and ends the run soon after the last one that counts.

    The run keeps the configuration's number of epochs, by which fedlit chooses its kernels; and
    what is done only at the end of training (a checkpoint) is no part of the last epoch that
    counts.

    Args:
        count: epochs to time.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.marks = list[float]()
        self.before = 0.0
        self.auroc = None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the time."""
        self.before = self.before or memory("VmRSS")
        self.marks.append(time.perf_counter())
        if len(self.marks) > self.count:
            trainer.should_stop = True
            self.auroc = trainer.callback_metrics.get("val/auroc")


def fit(config: str, epochs: int, keys: list[str], folder: str | None = None) -> dict[str, Any]:
    """Seconds of each epoch of a run, with its logs and checkpoints in ``folder`` or a temporary
    one.
    """
    with tempfile.TemporaryDirectory() as scratch:
        run = fedlit.load(config, f"--trainer.default_root_dir={folder or scratch}", *keys)
        noted = Epochs(epochs)
        run.trainer_options["callbacks"] = [noted]
        run.fit(quiet=True)
    return {
        "epochs": [end - start for start, end in pairwise(noted.marks)],
        "before_mib": noted.before,
        "auroc": noted.auroc if noted.auroc is None else float(noted.auroc),
        "kernels": run.loop.kernels,
    }
