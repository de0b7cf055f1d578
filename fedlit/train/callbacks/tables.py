"""Tables of corrections and clusters that a run appends to while it trains, and pictures of
them.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Callback, Trainer

from fedlit.exchange.exchange import Exchange
from fedlit.explain import CORRECTIONS, EFFECTS, PATHS
from fedlit.explain.clusters import CLUSTERS, PAIRS
from fedlit.explain.effects import effects_frame
from fedlit.explain.judge import corrections_frame, judge
from fedlit.files import csv_of, read_named, write_text
from fedlit.show.clusters import membership_figure
from fedlit.show.heatmap import heatmap_figure
from fedlit.train.logger import boards
from fedlit.train.loop import FederatedLoop
from fedlit.train.whole import spared

_log = logging.getLogger(__name__)


class Tables(Callback):
    """Writes CSV files into a run's folder, and pictures of them to TensorBoard.

    - ``corrections.csv`` (epoch, client, part, feature, value), of methods whose clients have
      corrections, at the end of training;
    - ``clusters.csv`` (round, epoch, client, cluster, concept) and ``pairs.csv`` (round, first,
      second, measure, value), of rules with clusters;
    - ``effects.csv`` (client, output, part, column, value, error), of mixed models, at the end of
      training;
    - ``paths.csv`` (round, first, second, path, u, loss), of the last exchange of such a rule.

    Args:
        folder: of the run.
        exchange: of the run; the first of its processes writes.
        pictures: whether there are pictures.
    """

    def __init__(self, folder: Path, exchange: Exchange, pictures: bool) -> None:
        self.folder = folder
        self.exchange = exchange
        self.pictures = pictures
        self._recorded_round = 0

    def on_train_start(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Remove the rows that a resumed run writes again."""
        self._recorded_round = self.exchange.rounds
        if self.exchange.transport.rank:
            return
        for name in (CLUSTERS, PAIRS):
            if (self.folder / name).is_file():
                # and keep its apostrophes
                rows = pd.read_csv(self.folder / name, dtype=str, keep_default_na=False)
                rows = rows[rows["round"].astype(int) <= self.exchange.rounds]
                self._write(name, csv_of(rows, raw=True))

    def on_train_batch_end(self, trainer: Trainer, pl_module: FederatedLoop, *_: Any) -> None:  # type: ignore[override]
        """Record the clusters of an exchange, before the next checkpoint."""
        clustering = self.exchange.clustering
        number = self.exchange.rounds
        epoch = trainer.current_epoch + 1
        if clustering is None or number == self._recorded_round:
            return
        self._recorded_round = number
        concept = pl_module.federation.data.concepts
        clusters = []
        for cluster, names in enumerate(clustering.clusters, 1):
            clusters += [(number, epoch, name, cluster, concept[name]) for name in names]
        pairs = [
            (number, *pair, clustering.measure, value) for pair, value in clustering.pairs.items()
        ]
        paths = []
        for pair, curves in clustering.paths.items():
            for path, losses in curves.items():
                for point, loss in enumerate(losses):
                    paths.append((number, *pair, path, (point + 0.5) / len(losses), loss))
        self._append(
            CLUSTERS,
            pd.DataFrame(clusters, columns=["round", "epoch", "client", "cluster", "concept"]),
        )
        self._append(
            PAIRS, pd.DataFrame(pairs, columns=["round", "first", "second", "measure", "value"])
        )
        if paths:
            columns = ["round", "first", "second", "path", "u", "loss"]
            self._write(PATHS, csv_of(pd.DataFrame(paths, columns=columns)))

    def on_train_end(self, trainer: Trainer, pl_module: FederatedLoop) -> None:  # type: ignore[override]
        """Write corrections and effects, and draw."""
        clients = pl_module.federation
        corrections = self._gathered(
            CORRECTIONS,
            corrections_frame({key: client.corrections for key, client in clients.items()}),
        )
        effects = self._gathered(
            EFFECTS,
            effects_frame(
                {key: getattr(client, "effect_rows", ()) for key, client in clients.items()}
            ),
        )
        if self.exchange.transport.rank:
            return
        if len(corrections):
            corrections.insert(0, "epoch", trainer.current_epoch)
        for name, rows in ((CORRECTIONS, corrections), (EFFECTS, effects)):
            if len(rows):
                self._write(name, csv_of(rows))
        if self.pictures and len(corrections):
            epoch = trainer.current_epoch
            _draw(
                trainer,
                f"corrections of epoch {epoch}",
                lambda: _correction_figures(corrections, epoch),
            )
        if self.pictures and (self.folder / CLUSTERS).is_file():
            memberships = read_named(self.folder / CLUSTERS)
            _draw(
                trainer, "clusters", lambda: {"clusters/membership": membership_figure(memberships)}
            )

    def _gathered(self, topic: str, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of all processes."""
        group = self.exchange.transport
        if group.size > 1:
            frames = [
                pd.DataFrame(table, columns=rows.columns)
                for table in group.gather(topic, rows.to_dict("list"))
            ]
            rows = pd.concat([frame for frame in frames if len(frame)] or [rows], ignore_index=True)
        return rows

    def _append(self, name: str, rows: pd.DataFrame) -> None:
        path = self.folder / name
        if len(rows):
            with spared(path, name):
                text = csv_of(rows, header=not path.is_file())
                with path.open("a", encoding="utf-8", newline="") as file:
                    file.write(text)

    def _write(self, name: str, text: str) -> None:
        with spared(self.folder / name, name):
            write_text(text, self.folder / name)


def _correction_figures(rows: pd.DataFrame, epoch: int) -> dict[str, Any]:
    judgement = judge(rows)
    return {
        f"corrections/{side}": heatmap_figure(judgement, side, f"epoch {epoch}")
        for side in judgement.sides
    }


def _draw(trainer: Trainer, label: str, figures: Callable[[], Mapping[str, Any]]) -> None:
    try:
        for logger in boards(trainer):
            for tag, figure in figures().items():
                logger.draw(tag, figure, trainer.global_step)
    except Exception as error:  # a picture must not end training
        _log.warning("%s: no picture: %s: %s", label, type(error).__name__, error)
