"""Corrections over time: what clients' private layers do to their columns, written while it grows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, Trainer

from fedlit.exchange.transport import Group
from fedlit.explain.judge import CORRECTIONS, corrections_frame, judge, read_records
from fedlit.files import write_text
from fedlit.train.logger import FederatedTensorBoardLogger
from fedlit.train.loop import FederatedLoop
from fedlit.train.whole import spared

__all__ = ["Corrections"]

_log = logging.getLogger(__name__)


class Corrections(Callback):
    """Writes ``corrections.csv`` (epoch, client, part, feature, value) into a run's folder, and heatmaps to
    TensorBoard; nothing where no client corrects anything.

    Args:
        folder: of the run.
        every: epochs between two records, each with a picture; 0 for no pictures and one record, at the end of training
            (where there is always one).
        group: the processes that the clients are dealt to; the first of them writes.
    """

    def __init__(self, folder: Path, every: int, group: Group | None = None) -> None:
        self.path, self.every, self.group = folder / CORRECTIONS, every, group or Group()
        self._last = -1

    def on_train_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Go on behind what a resumed run has written."""
        if self.path.is_file() and self.group.rank == 0:
            before = read_records(self.path)
            before = before[before["epoch"] <= trainer.current_epoch]
            with spared(self.path, "what clients correct"):
                write_text(before.to_csv(index=False), self.path)
            self._last = int(before["epoch"].max()) if len(before) else -1

    def on_train_epoch_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Record if it is time."""
        if self.every and (trainer.current_epoch + 1) % self.every == 0:
            self._record(trainer, pl_module, trainer.current_epoch + 1)

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Record the end."""
        self._record(trainer, pl_module, trainer.current_epoch)

    def _record(self, trainer: Trainer, loop: FederatedLoop, epoch: int) -> None:
        values = corrections_frame({name: client.corrections for name, client in loop.federation.items()})
        if self.group.size > 1:
            every = self.group.gather("corrections", values.to_dict("list"))
            told = [pd.DataFrame(own, columns=values.columns) for own in every]
            values = pd.concat([own for own in told if len(own)] or [values], ignore_index=True)
        if self.group.rank or not len(values) or self._last == epoch:
            return
        self._last = epoch
        values.insert(0, "epoch", epoch)
        with spared(self.path, "what clients correct"):
            values.to_csv(self.path, mode="a", header=not self.path.is_file(), index=False)
        for logger in trainer.loggers if self.every else ():
            if isinstance(logger, FederatedTensorBoardLogger):
                try:
                    self._draw(logger, values, epoch, trainer.global_step)
                except Exception as error:  # no picture is worth a training
                    _log.warning("corrections of epoch %d: no picture: %s: %s", epoch, type(error).__name__, error)

    @staticmethod
    def _draw(logger: FederatedTensorBoardLogger, values: Any, epoch: int, step: int) -> None:
        from fedlit.show.corrections import heatmap_figure

        judged = judge(values)
        for side in judged.sides:
            figure: Any = heatmap_figure(judged, side, f"epoch {epoch}")
            logger.writer().add_figure(f"corrections/{side}", figure, step)
