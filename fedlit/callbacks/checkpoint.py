"""Which checkpoints a run keeps."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint

from fedlit.errors import ConfigError

__all__ = ["AtomicCheckpointIO", "Checkpoints"]


@dataclass
class Checkpoints:
    """What is kept in a run's ``checkpoints`` folder: ``last.ckpt`` to resume from, and the best ones.

    A full checkpoint holds the clients' tensors and their optimizers' state (about three times the size under Adam);
    one with weights only can be tested but not resumed.

    Attributes:
        every: epochs between two writings of ``last.ckpt``.
        best: how many of the best are kept besides; 0 for none.
        monitor: the score that says which are best: a mean over clients (``val/auroc``) or a client's
            (``comanche/val/auroc``).
        mode: whether a large score is good.
        best_weights_only: whether the best ones leave out the optimizers' state.
    """

    every: int = 1
    best: int = 1
    monitor: str = "val/auroc"
    mode: Literal["min", "max"] = "max"
    best_weights_only: bool = True

    def __post_init__(self) -> None:
        if self.every < 1 or self.best < 0:
            raise ConfigError(
                f"checkpoint: expected every of at least 1 and best of at least 0, found {self.every} and {self.best}"
            )

    def callbacks(self, folder: Path) -> list[ModelCheckpoint]:
        """The Lightning callbacks that write into ``folder``."""
        last = ModelCheckpoint(
            folder,
            "last",
            monitor=None,
            save_top_k=1,
            every_n_epochs=self.every,
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )
        if not self.best:
            return [last]
        best = ModelCheckpoint(
            folder,
            "best-{epoch:04d}",
            monitor=self.monitor,
            mode=self.mode,
            save_top_k=self.best,
            save_weights_only=self.best_weights_only,
            auto_insert_metric_name=False,
        )
        return [best, last]


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames, so that a process killed while writing leaves the previous checkpoint
    whole.

    (Lightning's own writing goes through the system's temporary folder; across file systems that last move is a copy.)
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """See the class."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        with partial.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
