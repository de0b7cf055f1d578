"""The scores of mixtures and of their parts, displayed like those of a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fedlit.data.table import Split
from fedlit.precision import double_on_cpu
from fedlit.run.caveats import mixed_units
from fedlit.score.plain import defined
from fedlit.show.shown import Grid, Part
from fedlit.tasks import SCORES
from fedlit.tasks.many import score_sites
from fedlit.tasks.metrics import Site, SiteMetrics, summarise
from fedlit.tasks.predictions import Predictions
from fedlit.train.results import Results


@dataclass(frozen=True, repr=False)
class MixtureResults(Results):
    """The scores of every client's mixture on one split, and those of each part.

    Attributes:
        of_parts: maps each client → part → metric to its value.
        clients: the clients' entries in ``mixture.json``.
    """

    of_parts: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain data, in which undefined values are None."""
        content = super().to_dict()
        for client, scores in self.of_parts.items():
            weights = self.clients[client]["weights"]
            parts = {
                part: {"weight": weights.get(part, 0.0), **values}
                for part, values in scores.items()
            }
            content["clients"][client]["parts"] = defined(parts)
        return content

    def parts(self) -> list[Part]:
        """Return the table of scores, then each part's score and weight."""
        names = list(dict.fromkeys(itertools.chain.from_iterable(self.of_parts.values())))
        lines = []
        notes = list[str]()
        for client, entry in self.clients.items():
            metric = entry["metric"]
            cells = [self._part_cell(client, part) for part in names]
            lines.append([client, metric, *cells, self._cell(metric, self.scores[client][metric])])
            notes += [f"Note: {client}: {note}" for note in entry["notes"]]
        rows = "held-out rows, which also chose the weights"
        if self.split == "test":
            rows = "test rows"
        title = f"Each part's score on {rows}, and its weight:"
        return [
            *super().parts(),
            "",
            title,
            Grid(["client", "score", *names, "mixture"], lines),
            *notes,
        ]

    def _part_cell(self, client: str, part: str) -> str:
        """Return a part's score and weight for a client."""
        if part not in self.of_parts[client]:
            return "–"
        entry = self.clients[client]
        metric = entry["metric"]
        weights = entry["weights"]
        weight = f"× {weights[part]:.2f}" if part in weights else "out"
        return f"{self._cell(metric, self.of_parts[client][part][metric])} {weight}"


def results_of(
    split: Split, predictions: Mapping[str, Predictions], clients: dict[str, dict[str, Any]]
) -> MixtureResults:
    """Compute the scores of predictions.

    Args:
        split: the split of the rows.
        predictions: maps each client to its parts' predictions.
        clients: the clients' entries in ``mixture.json``.
    """
    sites = {}
    for client, client_rows in predictions.items():
        sites[client] = Site(client, tuple(range(len(client_rows.task.classes))), {})
    metrics = {}
    for client, of_mixture in mixtures_of(predictions, clients).items():
        metrics[client] = _metrics(sites[client], of_mixture)
    scores = {}
    unseen = {}
    for client, of_client in score_sites(metrics).items():
        scores[client] = of_client.values
        if split == "test":
            scores[client] |= metrics[client].compute_once()
        if of_client.unseen:
            unseen[client] = of_client.unseen
    of_parts = _scores_of_parts(sites, predictions)
    tasks = [client_rows.task for client_rows in predictions.values()]
    rows = {client: len(client_rows.row) for client, client_rows in predictions.items()}
    summary = summarise(scores, sites.values(), SCORES)
    details: dict[str, Any] = {
        "incomparable": mixed_units(tasks),
        "of_parts": of_parts,
        "clients": clients,
    }
    return MixtureResults(
        split, 0, scores, rows, summary, unseen, SCORES, tasks[0].scores[0], **details
    )


def _scores_of_parts(
    sites: Mapping[str, Site], predictions: Mapping[str, Predictions]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return each client's scores of each part, all clients of a part in one pass."""
    metrics: dict[str, dict[str, SiteMetrics]] = {}
    for client, rows in predictions.items():
        for part, of_part in zip(rows.parts, rows.each_part(), strict=True):
            metrics.setdefault(part, {})[client] = _metrics(sites[client], of_part)
    scores = {part: score_sites(of_clients) for part, of_clients in metrics.items()}
    of_parts = {}
    for client, rows in predictions.items():
        of_parts[client] = {part: scores[part][client].values for part in rows.parts}
    return of_parts


def mixtures_of(
    by_client: Mapping[str, Predictions], clients: Mapping[str, Mapping[str, Any]]
) -> dict[str, Predictions]:
    """Return what each client's mixture predicts for its rows.

    Args:
        by_client: maps each client to its parts' predictions.
        clients: the clients' entries in ``mixture.json``.
    """
    return {
        client: rows.mixture(clients[client]["weights"], clients[client]["stack"])
        for client, rows in by_client.items()
    }


def _metrics(site: Site, rows: Predictions) -> SiteMetrics:
    """Return the metrics of a single model's predictions."""
    metrics = SiteMetrics(site, rows.task)
    predictions = rows.predictions
    loss = math.nan
    if torch.isfinite(predictions).all():
        loss = rows.loss.mean(double_on_cpu(predictions).numpy())
    metrics.update(predictions, rows.y, torch.tensor(loss), rows.weight)
    return metrics
