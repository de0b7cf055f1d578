"""Checkpoints as files: how they are written, and which of them stay."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from fedlit.archives import write_archive
from fedlit.errors import RunError
from fedlit.exchange.transport import Group
from fedlit.files import advice, reason
from fedlit.train import whole
from fedlit.train.manifest import LAST, PREVIOUS
from fedlit.train.parts import load, save

__all__ = ["AtomicCheckpointIO", "BestCheckpoint", "best_of", "make_consistent"]


class BestCheckpoint(ModelCheckpoint):
    """Lightning's, which counts a file among the best only if it could be written: the last checkpoint names none that
    is not there, and what was to be replaced stays the best.
    """

    def _update_best_and_save(self, current: Tensor, trainer: Trainer, monitor_candidates: dict[str, Tensor]) -> None:
        before = {key: value.copy() if isinstance(value, dict) else value for key, value in vars(self).items()}
        super()._update_best_and_save(current, trainer, monitor_candidates)
        if getattr(trainer.strategy.checkpoint_io, "missed", False):
            for key in ("best_k_models", "best_model_path", "best_model_score", "kth_best_model_path", "kth_value"):
                setattr(self, key, before[key])


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames, so that a process killed while writing leaves the previous checkpoint
    whole.

    (Lightning's own writing goes through the system's temporary folder; across file systems that last move is a copy.)

    The best ones and the last one belong together: a best one that the last one names is removed only when a later last
    one stands, which names another. What cannot be written (the disk is full) is said, and training goes on, as long
    as there is a last one to continue from.

    Args:
        group: the processes that write a checkpoint together; one if None.
        clients: whose part is read; all if None.

    Attributes:
        missed: whether the latest checkpoint besides the last one could not be written. What it was to replace stays.
    """

    def __init__(self, group: Group | None = None, clients: Callable[[], Collection[str]] | None = None) -> None:
        super().__init__()
        self.group, self.clients = group or Group(), clients
        self.missed = False
        self._lost: dict[bool, str] = {}  # whether it is the last one → what there is not, and why
        self._named: frozenset[str] = frozenset()
        self._waiting: set[Path] = set()

    @property
    def lost(self) -> str | None:
        """What of the last or the best checkpoint could not be written, and what there is; None where both were."""
        return next((self._lost[last] for last in (True, False) if last in self._lost), None)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """See the class."""
        target = Path(path)
        self.missed = save(checkpoint, self.group, lambda every: self._keep(every, target))

    def _keep(self, checkpoint: Mapping[str, Any], target: Path) -> bool:
        """Write, where clients' parts have come together; see :attr:`missed`."""
        try:
            if not target.parent.is_dir():  # somebody removed it: a new one would not be a run's
                raise FileNotFoundError(errno.ENOENT, "its folder was removed")
            write_archive(checkpoint, target, target.with_name(PREVIOUS) if target.name == LAST else None)
        except OSError as error:
            self._miss(target, error)
            return self.missed or target.name != LAST
        self._lost.pop(target.name == LAST, None)
        if target.name != LAST:
            return False
        self._named = best_of(checkpoint)
        for old in [own for own in self._waiting if own.name not in self._named]:
            self._waiting.discard(old)
            self._remove(old)
        return self.missed

    def _miss(self, target: Path, error: OSError) -> None:
        """Go on where there is something to continue from.

        Raises:
            RunError: nothing can be kept.
        """
        found = f"{target}: expected to write there, found: {reason(error)}"
        if target.name == LAST and not target.is_file():
            raise RunError(
                f"{found}; nothing of this training can be kept; {advice(error)}, or set trainer.default_root_dir"
            )
        if target.name == LAST:
            place, kept = target, "the one before is kept, and a later one will be tried"
            lost = "the scores are those of the end, what is kept is an earlier state"
        else:
            place, kept = target.with_name("best-*.ckpt"), "training goes on, those that were kept before stay"
            lost = "a better state than those that are kept is lost"
        self._lost[target.name == LAST] = f"{found}; {lost}; {advice(error)}"
        with whole.spared(place, "this checkpoint", go_on=kept):
            raise error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """See :func:`fedlit.train.parts.load`."""
        checkpoint = load(Path(path), None if self.clients is None else self.clients())
        self._named = best_of(checkpoint)
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        """Now, or where the last checkpoint names it when there is a later one; not if what replaces it is missed."""
        if self.group.rank == 0 and not self.missed:
            if Path(path).name in self._named:
                self._waiting.add(Path(path))
            else:
                self._remove(Path(path))

    def _remove(self, path: Path) -> None:
        with suppress(OSError):  # a folder that was made read-only
            super().remove_checkpoint(path)


def best_of(checkpoint: Mapping[str, Any]) -> frozenset[str]:
    """The names of the best checkpoints that a checkpoint of the same run knows."""
    states = checkpoint.get("callbacks", {}).values()
    return frozenset(
        Path(path).name for own in states if isinstance(own, Mapping) for path in own.get("best_k_models", ())
    )


def make_consistent(checkpoint: Path, header: Mapping[str, Any]) -> None:
    """Undo, before a run goes on from its last checkpoint, what a process that was killed had done halfway.

    A last checkpoint that is damaged gets another name: it must not take the place of the one before it. A best one of
    an epoch that the checkpoint has behind it, and does not name, was to be removed; one of a later epoch is written
    again.

    Args:
        checkpoint: the run's last one, or the one before it; nothing is done for another.
        header: what it holds.
    """
    last = checkpoint.with_name(LAST)
    if checkpoint.name == PREVIOUS and last.is_file():
        os.replace(last, last.with_name("damaged.ckpt"))
    if checkpoint.name not in (LAST, PREVIOUS):
        return
    named = best_of(header)
    for file in checkpoint.parent.glob("best-*.ckpt"):
        epoch = file.stem.removeprefix("best-")
        if epoch.isdigit() and int(epoch) <= header["epoch"] and named and file.name not in named:
            file.unlink(missing_ok=True)
