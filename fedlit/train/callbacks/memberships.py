"""Who belongs together, over time: what a rule with clusters finds, written while training goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, Trainer

from fedlit.exchange.exchange import Exchange
from fedlit.exchange.transport import group_of
from fedlit.explain import PATHS
from fedlit.explain.clusters import CLUSTERS, PAIRS, judged, read_clusters, read_pairs
from fedlit.files import write_text
from fedlit.show.clusters import membership_figure, pairs_figure
from fedlit.train.logger import FederatedTensorBoardLogger
from fedlit.train.loop import FederatedLoop
from fedlit.train.whole import spared

__all__ = ["Memberships"]

_log = logging.getLogger(__name__)


class Memberships(Callback):
    """Writes ``clusters.csv`` (round, epoch, client, cluster, concept), ``pairs.csv`` (round, first, second, measure,
    value) and, of the last exchange, ``paths.csv`` (round, first, second, path, u, loss) into a run's folder, and at
    the end of training pictures of the first two to TensorBoard; nothing where the exchange's rule has no clusters.

    Args:
        folder: of the run.
        exchange: whose rule it is.
    """

    def __init__(self, folder: Path, exchange: Exchange) -> None:
        self.folder, self.exchange = folder, exchange
        self._round = 0

    def on_train_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Go on behind what a resumed run has written."""
        self._round = self.exchange.rounds
        for name, read in ((CLUSTERS, read_clusters), (PAIRS, read_pairs)):
            path = self.folder / name
            if path.is_file() and group_of(self.exchange.transport).rank == 0:
                before = read(path)
                with spared(path, "who belongs together"):
                    write_text(before[before["round"] <= self._round].to_csv(index=False), path)

    def on_train_batch_end(self, trainer: Trainer, pl_module: FederatedLoop, *_: Any) -> None:  # type: ignore[override]
        """Write what an exchange has found, before the next checkpoint."""
        found, number, epoch = self.exchange.clustering, self.exchange.rounds, trainer.current_epoch + 1
        if found is None or number == self._round:
            return
        self._round = number
        concept = pl_module.federation.data.concepts
        self._append(
            CLUSTERS,
            ("round", "epoch", "client", "cluster", "concept"),
            [
                (number, epoch, name, cluster, concept[name])
                for cluster, names in enumerate(found.clusters, 1)
                for name in names
            ],
        )
        self._append(
            PAIRS,
            ("round", "first", "second", "measure", "value"),
            [(number, *pair, found.measure, value) for pair, value in found.pairs.items()],
        )

        rows = [
            (number, *pair, path, (place + 0.5) / len(losses), loss)
            for pair, paths in found.paths.items()
            for path, losses in paths.items()
            for place, loss in enumerate(losses)
        ]
        if rows:
            with spared(self.folder / PATHS, "who belongs together"):
                frame = pd.DataFrame(rows, columns=["round", "first", "second", "path", "u", "loss"])
                write_text(frame.to_csv(index=False), self.folder / PATHS)

    def _append(self, name: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        path = self.folder / name
        if rows:
            with spared(path, "who belongs together"):
                pd.DataFrame(list(rows), columns=list(columns)).to_csv(
                    path, mode="a", header=not path.is_file(), index=False
                )

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw."""
        if not (self.folder / CLUSTERS).is_file() or not trainer.loggers:
            return
        try:
            found = read_clusters(self.folder / CLUSTERS)
            figures = {"clusters/membership": membership_figure(found)}
            if (self.folder / PAIRS).is_file():
                figures["clusters/pairs"] = pairs_figure(read_pairs(self.folder / PAIRS), judged(found))
            for logger in trainer.loggers:
                if isinstance(logger, FederatedTensorBoardLogger):
                    for tag, figure in figures.items():
                        logger.writer().add_figure(tag, figure, trainer.global_step)
        except Exception as error:  # no picture is worth a training
            _log.warning("clusters: no picture: %s: %s", type(error).__name__, error)
