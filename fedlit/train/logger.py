"""TensorBoard with one run per client and equal tags, so that clients overlay in one chart; and
functions that work with any logger of a run.
"""

import fnmatch
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter

from fedlit.errors import RunError, expect, told_as
from fedlit.train.whole import spared

FEDERATION = "federation"
HPARAMS = f"{FEDERATION}/hparams"
"""The run that TensorBoard's HParams tab compares; the tab shows every scalar in the folder of the
hyperparameters."""

BOARD = "http://localhost:6006"
"""Where ``tensorboard`` serves its pages, unless another program uses the port."""

LIGHTNING_EPOCH = "epoch"
"""The tag that Lightning adds to whatever is logged without a step; as a chart it is a straight
line."""

FLUSH = 20
"""The longest time between two writings of curves to disk, in seconds."""


@dataclass
class BoardSettings:
    """Which clients have their own runs in TensorBoard, and which pictures are drawn.

    With up to ``clients`` clients, all have a run. With more, the clients that ``chosen`` names
    have one, and each client that was the worst by some score gets one from then on, as long as
    there are no more than ``clients`` in all; the federation's run then also has the 10th, 50th and
    90th percentile of each tag over all clients.

    Attributes:
        clients: the largest number of clients that have their own run in TensorBoard.
        chosen: names or patterns of clients that have their own run in any case.
        pictures: the number of clients whose confusion matrix is drawn at the end of training and
            of a test; 0 for no pictures at all, which saves 0.1 to 0.5 seconds each. Studies draw
            none.
    """

    clients: int = 64
    chosen: list[str] = field(default_factory=list)
    pictures: int = 32

    def __post_init__(self) -> None:
        for name in ("clients", "pictures"):
            expect(getattr(self, name) >= 0, f"board.{name}", "at least 0", getattr(self, name))


class FederatedTensorBoardLogger(TensorBoardLogger):
    """Writes ``<client>/<tag>`` as ``<tag>`` into the run ``version_<n>/<client>``, and any other
    tag into ``version_<n>/federation``.

    Args:
        save_dir: the folder of all runs.
        name: the folder of this configuration's runs.
        version: the number of the run; the next free one if None.
        purge_step: when a run is resumed, the step after which events are dropped, because the
            interrupted run may have written some.
        shown: which clients have runs of their own.

    Attributes:
        clients: the names that count as clients; set by the loop.
    """

    def __init__(
        self,
        save_dir: str | Path,
        name: str = "fedlit",
        version: int | str | None = None,
        purge_step: int | None = None,
        shown: BoardSettings | None = None,
    ) -> None:
        super().__init__(save_dir, name, version, default_hp_metric=False)
        self.clients: frozenset[str] = frozenset()
        self.shown = shown or BoardSettings()
        self._worst: dict[str, None] = {}
        self.purge_step = purge_step
        self._writers: dict[str, SummaryWriter] = {}

    def writer(self, run: str = FEDERATION) -> SummaryWriter:
        """Return the writer of a client's run, or of the federation's."""
        if run not in self._writers:
            self._writers[run] = SummaryWriter(
                str(Path(self.log_dir) / run), purge_step=self.purge_step, flush_secs=FLUSH
            )
        return self._writers[run]

    @property
    def experiment(self) -> SummaryWriter:
        """The federation's writer. (Lightning's own would open one more file at the top.)"""
        return self.writer()

    @property
    def few(self) -> bool:
        """Whether all clients have a run of their own."""
        return len(self.clients) <= self.shown.clients

    def shows(self, client: str) -> bool:
        """Return whether a client has a run of its own."""
        chosen = any(fnmatch.fnmatchcase(client, pattern) for pattern in self.shown.chosen)
        return self.few or chosen or client in self._worst

    def show(self, clients: Iterable[str | None]) -> None:
        """Give these clients (the worst by some score) a run, as long as there is room."""
        for client in clients:
            if client is not None and not self.few and len(self._worst) < self.shown.clients:
                self._worst[client] = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write scalars as the class describes it; Lightning's own ``epoch`` is left out."""
        over: dict[str, list[float]] = {}
        has_run: dict[str, bool] = {}
        few = self.few
        for key, value in metrics.items():
            run, _, tag = key.partition("/")
            if key == LIGHTNING_EPOCH:
                continue
            if run not in self.clients:
                self.writer().add_scalar(key, value, step)
                continue
            if run not in has_run:
                has_run[run] = self.shows(run)
            if has_run[run]:
                self.writer(run).add_scalar(tag, value, step)
            if not few and math.isfinite(value):
                over.setdefault(tag, []).append(value)
        for tag, values in over.items():
            for percent, value in zip(
                (10, 50, 90), np.percentile(values, (10, 50, 90)), strict=True
            ):
                self.writer().add_scalar(f"{tag}/p{percent}", value, step)

    def log_hyperparams(
        self, params: Any, metrics: dict[str, Any] | None = None, step: int | None = None
    ) -> None:
        """Write hyperparameters, and the scalars that compare runs, where TensorBoard's HParams tab
        finds them.

        The first of torch's summaries, of an experiment, is left out, because TensorBoard would
        take that of one run for all. Without it, the tab first shows the keys in which runs differ.

        Args:
            params: the keys and values.
            metrics: scalars by tag; the tab shows the last value of each.
            step: the number of aligned steps.
        """
        from torch.utils.tensorboard.summary import hparams

        flat = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in dict(params).items()
        }
        writer = self.writer(HPARAMS).file_writer
        assert writer is not None
        for summary in hparams(flat, {})[1:]:
            writer.add_summary(summary)
        self.log_outcome(metrics or {}, step)

    def log_outcome(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write the scalars by which the HParams tab compares runs; see :meth:`log_hyperparams`."""
        for tag, value in metrics.items():
            self.writer(HPARAMS).add_scalar(tag, value, step)

    def draw(self, tag: str, figure: Any, step: int, run: str = FEDERATION) -> None:
        """Write a picture. A full disk does not end training."""
        with spared_logger(self):
            self.writer(run).add_figure(tag, figure, step)

    def save(self) -> None:
        """Flush all runs."""
        for writer in self._writers.values():
            with spared_logger(self):
                writer.flush()

    def finalize(self, status: str) -> None:
        """Close all runs; a later write opens its run again."""
        for writer in self._writers.values():
            with spared_logger(self):
                writer.close()
        self._writers.clear()


def board_address(score: str) -> str:
    """Return the address at which TensorBoard shows the losses and one score, unsmoothed, and no
    other chart.

    Args:
        score: the name of the score.

    Example:
        >>> board_address("auroc")
        'http://localhost:6006/?tagFilter=train/loss$|val/loss$|val/auroc$&runFilter=%5E(?!.*hparams)&smoothing=0'
    """
    tags = dict.fromkeys(["train/loss$", "val/loss$", f"val/{score}$"])
    filters = {"tagFilter": "|".join(tags), "runFilter": "^(?!.*hparams)", "smoothing": "0"}
    return f"{BOARD}/?{urlencode(filters, safe='/$|()?!*')}"


def boards(trainer: Trainer) -> list[FederatedTensorBoardLogger]:
    """Return the loggers of a Trainer that have a run per client."""
    return [logger for logger in trainer.loggers if isinstance(logger, FederatedTensorBoardLogger)]


def log_scalars(trainer: Trainer, values: Mapping[str, float], step: int) -> None:
    """Write scalars to all loggers under the same keys: ``<client>/<tag>``, or ``<tag>`` for the
    federation.

    Raises:
        RunError: a logger cannot write; the message names it.
    """
    for logger in trainer.loggers:
        with _named(logger), spared_logger(logger):
            logger.log_metrics(dict(values), step)
            if not isinstance(logger, FederatedTensorBoardLogger):
                # as Lightning does behind each call: what is not written yet is lost with a killed
                # run
                logger.save()


def log_hyperparams(trainer: Trainer, values: Mapping[str, Any]) -> None:
    """Write a configuration's keys and values to all loggers; see :func:`log_scalars`."""
    for logger in trainer.loggers:
        with _named(logger), spared_logger(logger):
            logger.log_hyperparams(dict(values))


def spared_logger(logger: Logger) -> AbstractContextManager[None]:
    """Return a context in which a full disk does not end training."""
    return spared(f"trainer.logger: {type(logger).__name__}", "what it writes")


def _named(logger: Logger) -> AbstractContextManager[None]:
    """Name the logger in an error that another library's logger raises."""
    return told_as(
        lambda error: RunError(
            f"trainer.logger: {type(logger).__name__} could not write ({type(error).__name__}: "
            f"{error}); give it other settings, or leave it out: training does not need it"
        )
    )
