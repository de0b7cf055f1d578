"""The checkpoints that a run keeps, and how they are written."""

import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint

from fedlit.client.client import main_score
from fedlit.errors import RunError, expect
from fedlit.exchange.transport import Transport
from fedlit.files import advice, reason, write_archive
from fedlit.train.checkpoint_file import content_of, load, save
from fedlit.train.loop import FederatedLoop
from fedlit.train.monitor import ScoresOf, check_monitor, score_of
from fedlit.train.whole import CHECKPOINTS, LAST, PREVIOUS

_log = logging.getLogger(__name__)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes next to the target and then renames the file, so that a process that is killed while
    it writes leaves the previous checkpoint whole.

    (Lightning's own writing goes through the system's temporary folder; across file systems that
    last move is a copy.)

    Args:
        group: the processes that write a checkpoint together; one process if None.
        clients: returns the clients whose part is read; all if None.
    """

    def __init__(
        self, group: Transport | None = None, clients: Callable[[], Collection[str]] | None = None
    ) -> None:
        super().__init__()
        self.group = group or Transport()
        self.clients = clients

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint as the class describes it.

        Raises:
            RunError: the checkpoint cannot be written; the message names what is left to continue
                from.
        """
        target = Path(path)
        before = target.with_name(PREVIOUS) if target.name == LAST else None
        try:
            # The folder is created, unless it is that of a run which somebody has removed.
            target.parent.mkdir(parents=target.parent.name != CHECKPOINTS, exist_ok=True)
            save(
                content_of(checkpoint),
                self.group,
                lambda every: write_archive(every, target, before),
            )
        except OSError as error:
            then = "start again, for nothing of this training was kept"
            if target.with_name(LAST).is_file():
                then = "continue with --ckpt_path last"
            raise RunError(
                f"{target}: expected to write there, found: {reason(error)}; {advice(error)}, then "
                f"{then}"
            ) from error

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """See :func:`fedlit.train.checkpoint_file.load`."""
        names = self.clients() if self.clients is not None else None
        return {**load(Path(path), names)}

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a checkpoint; only the first of several processes does."""
        if self.group.rank == 0:
            Path(path).unlink(missing_ok=True)


class LastCheckpoint(Checkpoint):
    """Writes one file again and again, at the end of epochs and always at the end of training.

    Args:
        path: the file.
        every: the least number of epochs between two writings.
        seconds: the least time between two writings, in seconds: writing the optimizers' state of
            all clients can take as long as a few aligned steps.
    """

    def __init__(self, path: Path, every: int, seconds: float) -> None:
        self.path = path
        self.every = every
        self.seconds = seconds
        # The first epoch's end is always written, so that there is something to resume.
        self._written = -math.inf

    def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write the checkpoint if it is due."""
        epochs = trainer.current_epoch + 1
        last = (
            trainer.should_stop
            or epochs == trainer.max_epochs
            or trainer.global_step == trainer.max_steps
        )
        due = last or (
            epochs % self.every == 0 and time.monotonic() - self._written >= self.seconds
        )
        # Clocks differ: that of the first client decides for all, so that all can be resumed from
        # the same epoch.
        federation = pl_module.federation
        decisions = federation.share("checkpoint", dict.fromkeys(federation, due))
        if next(iter(decisions.values())):
            trainer.save_checkpoint(self.path, weights_only=False)
            self._written = time.monotonic()


@dataclass
class Checkpoints:
    """The checkpoints in a run's ``checkpoints`` folder: ``last.ckpt``, which can be resumed, and
    the best ones.

    A full checkpoint holds the clients' tensors and their optimizers' state (about three times the
    size under Adam); one with weights only can be tested but not resumed.

    Attributes:
        every: the least number of epochs between two writings of ``last.ckpt``.
        seconds: the least time between two writings of ``last.ckpt``; it is always written after
            the first epoch and at the end.
        best: the number of best checkpoints that are also kept; 0 for none.
        monitor: the score that decides which are best: a mean over clients (``val/auroc``) or the
            score of one client (``comanche/val/auroc``); if None, the main score of the clients'
            tasks (``val/auroc``, ``val/rmse``), or ``val/loss`` if the clients have different
            tasks.
        mode: whether larger or smaller is better; if None, it follows from the score.
        best_weights_only: whether best checkpoints leave out the optimizers' state.
    """

    every: int = 1
    seconds: float = 20.0
    best: int = 1
    monitor: str | None = None
    mode: Literal["min", "max"] | None = None
    best_weights_only: bool = True

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("best", 0), ("seconds", 0)):
            value = getattr(self, name)
            expect(value >= least, f"checkpoint.{name}", f"at least {least}", value)

    def watched(
        self, scores_of: ScoresOf, others: bool = False
    ) -> tuple[str, Literal["min", "max"]]:
        """Return the score that decides which checkpoints are best, and whether a small or a large
        one is good; see :func:`check_monitor`.
        """
        main = main_score(scores_of)
        if self.monitor is None and any(scores[0] != main for scores in scores_of.values()):
            _log.warning(
                "clients have different tasks: the best checkpoint is that of least val/loss, "
                "their mean loss"
            )
        monitor = self.monitor or f"val/{main.name}"
        check_monitor("checkpoint.monitor", monitor, scores_of, others)
        score = score_of(monitor, scores_of)
        if self.mode:
            return monitor, self.mode
        return monitor, "max" if score is None or score.higher_is_better else "min"

    def callbacks(
        self, folder: Path, scores_of: ScoresOf, others: bool = False
    ) -> list[Checkpoint]:
        """Return the Lightning callbacks that write into ``folder``; see :func:`check_monitor`."""
        last = LastCheckpoint(folder / LAST, self.every, self.seconds)
        if not self.best:
            return [last]
        monitor, mode = self.watched(scores_of, others)
        best = ModelCheckpoint(
            folder,
            "best-{epoch:04d}",
            monitor=monitor,
            mode=mode,
            save_top_k=self.best,
            save_weights_only=self.best_weights_only,
            auto_insert_metric_name=False,
            # An epoch that is trained again after a kill writes the same file.
            enable_version_counter=False,
        )
        return [best, last]
