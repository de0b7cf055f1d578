"""Corrections over time: what clients' private layers do to their columns, written while it grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, Trainer

from fedlit.exchange.transport import Group
from fedlit.explain.judge import CORRECTIONS, corrections_frame, judge, read_records
from fedlit.train.callbacks.records import append, draw, truncate
from fedlit.train.loop import FederatedLoop

__all__ = ["Corrections"]

LOST = "what clients correct"


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
            truncate(self.path, before, LOST)
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
        append(self.path, values, LOST)
        if self.every:
            draw(trainer, f"corrections of epoch {epoch}", lambda: _figures(values, epoch))


def _figures(values: pd.DataFrame, epoch: int) -> dict[str, Any]:
    from fedlit.show.corrections import heatmap_figure

    judged = judge(values)
    return {f"corrections/{side}": heatmap_figure(judged, side, f"epoch {epoch}") for side in judged.sides}
