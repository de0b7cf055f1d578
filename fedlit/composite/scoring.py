"""Rows predicted by a mixture and its parts, scored as a run's are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.composite.folders import MIXED
from fedlit.composite.parts import Part, target_frame
from fedlit.composite.served import mixed_scorers
from fedlit.composite.settings import MixtureSettings
from fedlit.composite.weigh import HeldOut, held_out_of
from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import Rows
from fedlit.data.table import Split
from fedlit.mix.losses import row_loss
from fedlit.mix.weights import mixed_parts
from fedlit.score.mixed import MixedScorer, Recipe
from fedlit.show.shown import Grid
from fedlit.tasks import SCORES, Task
from fedlit.tasks.metrics import Site, SiteMetrics, summarise
from fedlit.train.results import Results

__all__ = ["MixtureResults", "Predicted", "from_held_out", "held_out_of_all", "predicted", "results_of"]


@dataclass(frozen=True)
class Predicted:
    """What a client's mixture, and each part, predicts of rows.

    Attributes:
        task: the mixture's.
        row: (n,) numbers in the source.
        y: as the task encodes the target.
        parts: part → (n, width) float64, also of parts that did not enter.
        mixture: (n, width).
        notes: of the rows.
    """

    task: Task
    row: np.ndarray
    y: Tensor
    parts: dict[str, np.ndarray]
    mixture: Tensor
    notes: tuple[str, ...] = ()


def predicted(
    parts: Mapping[str, Part], folder: Path, settings: MixtureSettings, clients: dict[str, dict[str, Any]]
) -> dict[str, Predicted]:
    """Client → what is predicted of its test rows: the mean of folds' models within a part, then parts mixed.

    Args:
        parts: of the run.
        folder: the run's.
        settings: of the run.
        clients: what ``mixture.json`` says of them.
    """
    scorers = mixed_scorers(folder, settings, clients, every=True)
    made: dict[str, dict[str, list[np.ndarray]]] = {name: {} for name in clients}
    rows: dict[str, list[tuple[MixedScorer | Any, Rows]]] = {name: [] for name in clients}
    for name, part in parts.items():
        tables = {table.name: table for table in part.load(0).data.tables()}
        for client, mixed in scorers.items():
            for scorer in mixed.scorers.get(name, ()):
                encoder = cast(TableEncoder, scorer.encoder)
                own = encoder.encode(tables[client]).sites[client]["test"]
                made[client].setdefault(name, []).append(scorer.of_inputs(own.x.numpy()))
                rows[client].append((scorer, own))
    found = {}
    for client, mixed in scorers.items():
        recipe = Recipe.of(clients[client]["recipe"], f"{folder / MIXED}: client {client!r}")
        only = MixedScorer(client, {name: mixed.scorers[name] for name in recipe.weights}, recipe)
        mixture = torch.from_numpy(only.mix({name: made[client][name] for name in recipe.weights}))
        each = {name: mixed.part(name, own) for name, own in made[client].items()}
        y = _target(only.task, rows[client])
        width = {name: _columns(own, mixed.task, only.task) for name, own in each.items()}
        found[client] = Predicted(only.task, rows[client][0][1].row, y, width, mixture, tuple(only.notes))
    return found


def _columns(predictions: np.ndarray, of: Task, wanted: Task) -> np.ndarray:
    """The columns of the mixture's classes: a part that did not enter may know others."""
    if not wanted.classes or of.classes == wanted.classes:
        return predictions
    return predictions[:, [list(of.classes).index(label) for label in wanted.classes]]


def _target(task: Task, rows: list[tuple[Any, Rows]]) -> Tensor:
    """The target of rows, which each model knows as far as its own training rows had the labels."""
    scorer, own = rows[0]
    if task.name != "classification":
        return own.y
    known = target_frame(scorer, own)["target"]
    for scorer, other in rows[1:]:
        known = known.where(known.notna(), target_frame(scorer, other)["target"])
    place = {label: position for position, label in enumerate(task.classes)}
    return torch.tensor([place.get(label, -1) if label is not None else -1 for label in known])


def held_out_of_all(frames: Mapping[str, pd.DataFrame]) -> dict[str, HeldOut]:
    """Client → its held-out rows, of all parts that it has."""
    names = list(dict.fromkeys(str(name) for frame in frames.values() for name in frame["client"].unique()))
    found = {}
    for client in sorted(names):
        own = {part: frame[frame["client"] == client] for part, frame in frames.items()}
        found[client] = held_out_of(client, {part: frame for part, frame in own.items() if len(frame)})
    return found


def from_held_out(parts: Mapping[str, Part], clients: dict[str, dict[str, Any]]) -> dict[str, Predicted]:
    """Client → what was predicted of its held-out rows by models that had not seen them."""
    found = {}
    for client, held in held_out_of_all({name: part.out_of_fold() for name, part in parts.items()}).items():
        recipe = Recipe.of(clients[client]["recipe"], f"client {client!r}")
        mixture = mixed_parts(held.parts, dict(recipe.weights))
        tensor = torch.from_numpy(np.ascontiguousarray(mixture))
        found[client] = Predicted(
            held.task, held.row, held.y, held.parts, tensor.float() if held.task.classes else tensor
        )
    return found


@dataclass(frozen=True, repr=False)
class MixtureResults(Results):
    """Scores of every client's mixture on one split, and beside them each part's.

    Attributes:
        each: client → part → metric → value.
        clients: what ``mixture.json`` says of the clients.
        more: what a person should know of the rows.
    """

    each: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    more: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data; undefined values are None."""
        own = super().to_dict()
        for client, scores in self.each.items():
            own["clients"][client]["parts"] = {
                part: {
                    "weight": self.clients[client]["recipe"]["weights"].get(part, 0.0),
                    **{key: value if math.isfinite(value) else None for key, value in values.items()},
                }
                for part, values in scores.items()
            }
        return own

    def parts(self) -> list[str | Grid]:
        """The table of scores, then what each part gives and weighs."""
        return [*super().parts(), *(f"Note: {note}" for note in self.more), "", *self._of_parts()]

    def _of_parts(self) -> list[str | Grid]:
        names = list(dict.fromkeys(part for own in self.each.values() for part in own))
        metrics = list(dict.fromkeys(own["metric"] for own in self.clients.values()))
        lines = []
        for client, own in self.clients.items():
            weights = own["recipe"]["weights"]
            cells = []
            for part in names:
                if part not in self.each[client]:
                    cells.append("–")
                    continue
                value = self._cell(own["metric"], self.each[client][part][own["metric"]])
                weight = f"× {weights[part]:.2f}" if part in weights else "out"
                cells.append(f"{value} {weight}")
            mixture = self._cell(own["metric"], self.scores[client][own["metric"]])
            metric = [own["metric"]] if len(metrics) > 1 else []
            lines.append([client, *metric, *cells, mixture])
        what = "test rows" if self.split == "test" else "held-out rows, which also chose the weights"
        header = ["client", *(["score"] if len(metrics) > 1 else []), *names, "mixture"]
        title = f"Each part's {metrics[0] if len(metrics) == 1 else 'score'} on {what}, and its weight:"
        notes = [f"Note: {name}: {note}" for name, own in self.clients.items() for note in own["notes"]]
        return [title, Grid(header, lines), *notes]


def results_of(split: Split, found: Mapping[str, Predicted], clients: dict[str, dict[str, Any]]) -> MixtureResults:
    """Scores of what was predicted."""
    scores, each, sites, unseen = {}, {}, [], {}
    for client, own in found.items():
        site = Site(client, tuple(range(len(own.task.classes))), {})
        sites.append(site)
        metrics = _metrics(site, own, own.mixture)
        scores[client] = {key: float(value) for key, value in metrics.compute().items()}
        if split == "test":
            scores[client] |= metrics.compute_once()
        if unknown := metrics.unseen():
            unseen[client] = unknown
        each[client] = {
            part: {
                key: float(value) for key, value in _metrics(site, own, torch.from_numpy(predictions)).compute().items()
            }
            for part, predictions in own.parts.items()
        }
    notes = tuple(f"{client}: {note}" for client, own in found.items() for note in own.notes)
    main = next(iter(found.values())).task.scores[0]
    rows = {client: len(own.row) for client, own in found.items()}
    return MixtureResults(
        split, 0, scores, rows, summarise(scores, sites, SCORES), unseen, SCORES, main, each, clients, notes
    )


def _metrics(site: Site, own: Predicted, predictions: Tensor) -> SiteMetrics:
    metrics = SiteMetrics(site, own.task)
    predictions = predictions.float() if own.task.classes else predictions.double()
    loss = row_loss(own.task, own.y)
    known = bool(loss.known.any()) and bool(torch.isfinite(predictions).all())
    value = loss.mean(predictions.double().numpy()) if known else math.nan
    metrics.update(predictions, own.y, torch.tensor(value))
    return metrics
