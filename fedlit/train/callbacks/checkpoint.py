"""Which checkpoints a run keeps."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint

from fedlit.client.client import HasScores, main_score
from fedlit.errors import ConfigError, RunError, did_you_mean
from fedlit.exchange.transport import Group
from fedlit.tasks import SCORES
from fedlit.tasks.base import LOSS, by_name
from fedlit.train import shards, whole
from fedlit.train.loop import FederatedLoop
from fedlit.train.manifest import LAST, PREVIOUS

__all__ = [
    "AtomicCheckpointIO",
    "Checkpoints",
    "LastCheckpoint",
    "check_monitor",
    "check_monitors",
    "make_consistent",
]

_log = logging.getLogger(__name__)


class LastCheckpoint(Checkpoint):
    """Writes one file again and again, at the end of epochs, and always at the end of training.

    Args:
        path: the file.
        every: epochs between two writings, at least.
        seconds: time between two writings, at least: writing the optimizers' state of all clients can take as long
            as a few aligned steps.
    """

    def __init__(self, path: Path, every: int, seconds: float) -> None:
        self.path, self.every, self.seconds = path, every, seconds
        self._written = -math.inf  # the first epoch's end is always written, so that there is something to resume

    def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write if it is time."""
        epochs = trainer.current_epoch + 1
        last = trainer.should_stop or epochs == trainer.max_epochs or trainer.global_step == trainer.max_steps
        due = last or (epochs % self.every == 0 and time.monotonic() - self._written >= self.seconds)
        # clocks differ: the first client's decides for all, so that all can be resumed from the same epoch
        if next(iter(pl_module.federation.share("checkpoint", dict.fromkeys(pl_module.federation, due)).values())):
            trainer.save_checkpoint(self.path, weights_only=False)
            self._written = time.monotonic()


@dataclass
class Checkpoints:
    """What is kept in a run's ``checkpoints`` folder: ``last.ckpt`` to resume from, and the best ones.

    A full checkpoint holds the clients' tensors and their optimizers' state (about three times the size under Adam);
    one with weights only can be tested but not resumed.

    Attributes:
        every: epochs between two writings of ``last.ckpt``, at least.
        seconds: time between two writings of ``last.ckpt``, at least; it is always written after the first epoch
            and at the end.
        best: how many of the best are kept besides; 0 for none.
        monitor: the score that says which are best: a mean over clients (``val/auroc``) or a client's
            (``comanche/val/auroc``); if None, the main score of the clients' tasks (``val/auroc``, ``val/rmse``), and
            ``val/loss`` where they have several.
        mode: whether a large score is good; if None, what is known of the score.
        best_weights_only: whether the best ones leave out the optimizers' state.
    """

    every: int = 1
    seconds: float = 20.0
    best: int = 1
    monitor: str | None = None
    mode: Literal["min", "max"] | None = None
    best_weights_only: bool = True

    def __post_init__(self) -> None:
        if self.every < 1 or self.best < 0 or self.seconds < 0:
            raise ConfigError(
                "checkpoint: expected every of at least 1, best and seconds of at least 0, found "
                f"{self.every}, {self.best} and {self.seconds}"
            )

    def watched(self, clients: Mapping[str, HasScores], others: bool = False) -> tuple[str, Literal["min", "max"]]:
        """The score that says which are best, and whether a small or a large one is good; see :func:`check_monitor`."""
        main = main_score(clients)
        if self.monitor is None and any(client.scores[0] != main for client in clients.values()):
            _log.warning("clients have different tasks: the best checkpoint is that of least val/loss, their mean loss")
        monitor = self.monitor or f"val/{main.name}"
        check_monitor("checkpoint.monitor", monitor, clients, others)
        scores = by_name(score for client in clients.values() for score in client.scores)
        name = monitor.rpartition("/")[2]
        known = scores.get(name)
        mode: Literal["min", "max"] = "max" if known is None or known.higher_is_better else "min"
        if self.monitor is not None and self.mode is None and known == LOSS:  # no other score of 0.1 is better if less
            _log.warning(
                "checkpoint.mode: min, for less is better of %s (0.1 took max; checkpoint.mode: max restores that)",
                monitor,
            )
        return monitor, self.mode or mode

    def callbacks(self, folder: Path, clients: Mapping[str, HasScores], others: bool = False) -> list[Checkpoint]:
        """The Lightning callbacks that write into ``folder``; see :func:`check_monitor`."""
        last = LastCheckpoint(folder / LAST, self.every, self.seconds)
        if not self.best:
            return [last]
        monitor, mode = self.watched(clients, others)
        best = ModelCheckpoint(
            folder,
            "best-{epoch:04d}",
            monitor=monitor,
            mode=mode,
            save_top_k=self.best,
            save_weights_only=self.best_weights_only,
            auto_insert_metric_name=False,
            enable_version_counter=False,  # an epoch that is trained again after a kill writes the same file
        )
        return [best, last]


def check_monitor(key: str, monitor: str, clients: Mapping[str, HasScores], others: bool = False) -> None:
    """Refuse, before the first step, a score that nobody will log.

    Args:
        key: where it stands, for the message.
        monitor: the score: a mean over clients (``val/auroc``), the worst client's (``val/worst/auroc``) or a client's
            (``wine/val/auroc``); what is logged in training (``train/loss``) is not known before and passes.
        clients: by name.
        others: whether callbacks of a person's own may log more, of any name.

    Raises:
        ConfigError: no client has it.
    """
    scores = [
        name
        for name, score in by_name(own for client in clients.values() for own in client.scores).items()
        if not score.test_only
    ]
    places = ["val", "val/worst", *(f"{client}/val" for client in clients)]
    where, _, name = monitor.rpartition("/")
    first, *inner = where.split("/")
    in_training = first in ("train", "exchange") or name in ("drift", "lr") or (first in clients and "val" not in inner)
    strange = others and name not in SCORES and "val" not in where.split("/") and not did_you_mean(name, scores)
    if (where in places and name in scores) or strange or (in_training and name not in set(scores) - {LOSS.name}):
        return
    known = [f"{place}/{score}" for place in places for score in scores]
    hint = did_you_mean(monitor, [other for other in known if other.endswith(f"/{name}")] or known)
    raise ConfigError(
        f"{key}: expected a score of these clients' tasks ({', '.join(f'val/{score}' for score in scores)}; of the "
        f"worst client val/worst/{scores[0]}, of one {places[-1]}/{scores[0]}), found {monitor}.{hint}"
    )


def check_monitors(callbacks: Iterable[Any], clients: Mapping[str, HasScores]) -> bool:
    """Refuse callbacks that wait for a score that nobody will log; whether one of them may log more itself.

    Raises:
        ConfigError: see :func:`check_monitor`.
    """
    own = list(callbacks)
    others = any(type(callback).__module__.partition(".")[0] not in ("fedlit", "lightning") for callback in own)
    for callback in own:
        monitor = getattr(callback, "monitor", None)
        if isinstance(monitor, str) and getattr(callback, "strict", True):
            check_monitor(f"trainer.callbacks: {type(callback).__name__}", monitor, clients, others)
    return others


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames, so that a process killed while writing leaves the previous checkpoint
    whole.

    (Lightning's own writing goes through the system's temporary folder; across file systems that last move is a copy.)

    The best ones and the last one belong together: a best one that the last one names is removed only when a later last
    one stands, which names another. What cannot be written (the disk is full) is said, and training goes on, as long
    as there is a last one to continue from.

    Args:
        group: the processes that write a checkpoint together; one if None.
        clients: whose parts are read; all if None.
        prepare: called before the last one is written, say to see that its folder is still there.

    Attributes:
        lost: the last checkpoint that could not be written, and why; None where it was, or none is due yet.
    """

    def __init__(
        self,
        group: Group | None = None,
        clients: Callable[[], Collection[str]] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.group, self.clients, self.prepare = group or Group(), clients, prepare
        self.lost: str | None = None
        self._named: frozenset[str] = frozenset()
        self._waiting: set[Path] = set()

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """See the class."""
        target = Path(path)
        try:
            if self.prepare is not None:
                self.prepare()
            self._save(checkpoint, target)
        except OSError as error:
            self._miss(target, error)
            return
        if target.name == LAST:
            self.lost = None
            self.group.kept()
            self._named = best_of(checkpoint)
            for old in [own for own in self._waiting if own.name not in self._named]:
                self._waiting.discard(old)
                self._remove(old)

    def _save(self, checkpoint: dict[str, Any], target: Path) -> None:
        try:
            shards.save(checkpoint, target, self.group)
        except OSError:
            before = target.with_name(PREVIOUS)
            if self.group.size > 1 or target.name != LAST or not (target.is_file() and before.is_file()):
                raise
            before.unlink()  # what makes room best
            shards.save(checkpoint, target, self.group)

    def _miss(self, target: Path, error: OSError) -> None:
        """Go on where there is something to continue from.

        Raises:
            RunError: nothing can be kept.
        """
        found = f"{target}: expected to write there, found: {whole.reason(error)}"
        if self.group.size > 1 or (target.name == LAST and not target.is_file()):
            raise RunError(f"{found}; nothing of this training can be kept. Make room, or set trainer.default_root_dir")
        if target.name == LAST:
            self.lost = found
            place, kept = target, "the one before is kept, and a later one will be tried"
        else:
            place, kept = target.with_name("best-*.ckpt"), "training goes on"
        with whole.spared(place, "this checkpoint", go_on=kept):
            raise error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """See :func:`fedlit.train.shards.load`."""
        checkpoint = shards.load(Path(path), None if self.clients is None else self.clients())
        self._named = best_of(checkpoint)
        return checkpoint

    def remove_checkpoint(self, path: Any) -> None:
        """Now, or where the last checkpoint names it when there is a later one."""
        if self.group.rank == 0:
            if Path(path).name in self._named:
                self._waiting.add(Path(path))
            else:
                self._remove(Path(path))

    def _remove(self, path: Path) -> None:
        """The head first: without it parts are nobody's."""
        with suppress(OSError):  # a folder that was made read-only
            super().remove_checkpoint(path)
            shards.discard_parts(path)


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
            shards.discard_parts(file)
