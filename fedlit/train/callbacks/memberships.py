"""Who belongs together, over time: what a rule with clusters finds, written while training goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, Trainer

from fedlit.exchange.exchange import Exchange
from fedlit.exchange.transport import group_of
from fedlit.explain import PATHS
from fedlit.explain.clusters import CLUSTERS, PAIRS, judged, read_clusters, read_pairs
from fedlit.show.clusters import membership_figure, pairs_figure
from fedlit.train.callbacks.records import append, draw, truncate
from fedlit.train.loop import FederatedLoop

__all__ = ["Memberships"]

LOST = "who belongs together"


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
                truncate(path, before[before["round"] <= self._round], LOST)

    def on_train_batch_end(self, trainer: Trainer, pl_module: FederatedLoop, *_: Any) -> None:  # type: ignore[override]
        """Write what an exchange has found, before the next checkpoint."""
        found, number, epoch = self.exchange.clustering, self.exchange.rounds, trainer.current_epoch + 1
        if found is None or number == self._round:
            return
        self._round = number
        concept = pl_module.federation.data.concepts
        clusters = [
            (number, epoch, name, cluster, concept[name])
            for cluster, names in enumerate(found.clusters, 1)
            for name in names
        ]
        pairs = [(number, *pair, found.measure, value) for pair, value in found.pairs.items()]
        paths = [
            (number, *pair, path, (place + 0.5) / len(losses), loss)
            for pair, own in found.paths.items()
            for path, losses in own.items()
            for place, loss in enumerate(losses)
        ]
        for name, columns, rows in (
            (CLUSTERS, "round epoch client cluster concept", clusters),
            (PAIRS, "round first second measure value", pairs),
            (PATHS, "round first second path u loss", paths),
        ):
            frame = pd.DataFrame(rows, columns=columns.split())
            append(self.folder / name, frame, LOST, anew=name == PATHS)

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Draw."""
        if not (self.folder / CLUSTERS).is_file() or not trainer.loggers:
            return
        draw(trainer, "clusters", self._figures)

    def _figures(self) -> dict[str, Any]:
        found = read_clusters(self.folder / CLUSTERS)
        figures = {"clusters/membership": membership_figure(found)}
        if (self.folder / PAIRS).is_file():
            figures["clusters/pairs"] = pairs_figure(read_pairs(self.folder / PAIRS), judged(found))
        return figures
