"""The scores of mixtures and of their parts, displayed like those of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedlit.data.table import Split
from fedlit.mixture.weigh import Predicted
from fedlit.run.caveats import mixed_units
from fedlit.run.predictions import ScoredRows
from fedlit.score.plain import defined
from fedlit.show.shown import Grid, Part
from fedlit.tasks import SCORES
from fedlit.tasks.metrics import Site, SiteMetrics, summarise
from fedlit.train.results import Results


@dataclass(frozen=True, repr=False)
class MixtureResults(Results):
    """The scores of every client's mixture on one split, and those of each part.

    Attributes:
        each: maps each client → part → metric to its value.
        clients: the clients' entries in ``mixture.json``.
    """

    each: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain data, in which undefined values are None."""
        own = super().to_dict()
        for client, scores in self.each.items():
            weights = self.clients[client]["weights"]
            parts = {
                part: {"weight": weights.get(part, 0.0), **values}
                for part, values in scores.items()
            }
            own["clients"][client]["parts"] = defined(parts)
        return own

    def parts(self) -> list[Part]:
        """Return the table of scores, then each part's score and weight."""
        names = list(dict.fromkeys(part for own in self.each.values() for part in own))
        lines = []
        for client, own in self.clients.items():
            metric = own["metric"]
            weights = own["weights"]
            cells = [
                f"{self._cell(metric, self.each[client][part][metric])} "
                + (f"× {weights[part]:.2f}" if part in weights else "out")
                if part in self.each[client]
                else "–"
                for part in names
            ]
            lines.append([client, metric, *cells, self._cell(metric, self.scores[client][metric])])
        what = (
            "test rows" if self.split == "test" else "held-out rows, which also chose the weights"
        )
        notes = [
            f"Note: {name}: {note}" for name, own in self.clients.items() for note in own["notes"]
        ]
        title = f"Each part's score on {what}, and its weight:"
        return [
            *super().parts(),
            "",
            title,
            Grid(["client", "score", *names, "mixture"], lines),
            *notes,
        ]


def results_of(
    split: Split, found: Mapping[str, Predicted], clients: dict[str, dict[str, Any]]
) -> MixtureResults:
    """Compute the scores of predictions.

    Args:
        split: the split of the rows.
        found: maps each client to its parts' predictions.
        clients: the clients' entries in ``mixture.json``.
    """
    scores = {}
    each = {}
    sites = []
    unseen = {}
    for client, own in found.items():
        site = Site(client, tuple(range(len(own.task.classes))), {})
        sites.append(site)
        metrics = _metrics(
            site, own, own.mixed(clients[client]["weights"], clients[client]["stack"])
        )
        scores[client] = _floats(metrics.compute()) | (
            metrics.compute_once() if split == "test" else {}
        )
        if unknown := metrics.unseen():
            unseen[client] = unknown
        each[client] = {
            part: _floats(_metrics(site, own, own.mixed({part: 1.0})).compute())
            for part in own.parts
        }
    tasks = [own.task for own in found.values()]
    rows = {client: len(own.row) for client, own in found.items()}
    summary = summarise(scores, sites, SCORES)
    more: dict[str, Any] = {"incomparable": mixed_units(tasks), "each": each, "clients": clients}
    return MixtureResults(
        split, 0, scores, rows, summary, unseen, SCORES, tasks[0].scores[0], **more
    )


def scored_rows(
    found: Mapping[str, Predicted], clients: Mapping[str, Mapping[str, Any]]
) -> dict[str, ScoredRows]:
    """Return the rows of each client with the predictions of its mixture.

    Args:
        found: maps each client to its parts' predictions.
        clients: the clients' entries in ``mixture.json``.
    """
    scored = {}
    for client, own in found.items():
        predictions = own.mixed(clients[client]["weights"], clients[client]["stack"])
        scored[client] = ScoredRows(own.task, own.row, own.y, predictions, own.weight)
    return scored


def _metrics(site: Site, own: Predicted, predictions: Tensor) -> SiteMetrics:
    metrics = SiteMetrics(site, own.task)
    loss = own.loss
    value = (
        loss.mean(predictions.double().numpy()) if torch.isfinite(predictions).all() else math.nan
    )
    metrics.update(predictions, own.y, torch.tensor(value), own.weight)
    return metrics


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items()}
