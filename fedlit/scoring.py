"""Scores of one split, collected batch by batch over all clients and sites."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.table import Split
from fedlit.metrics import ClientMetrics, summarise
from fedlit.results import Results

__all__ = ["Scoring"]


class Scoring:
    """Collects what clients make of a split's batches and scores each site.

    Args:
        clients: by name.
        split: the rows that will be scored.
    """

    def __init__(self, clients: Mapping[str, FederatedClient], split: Split) -> None:
        self.split: Split = split
        self.sites = {site.name: site for client in clients.values() for site in client.spec.sites}
        self.labels = {
            site.name: [str(client.spec.classes[position]) for position in site.classes]
            for client in clients.values()
            for site in client.spec.sites
        }
        self.metrics = {
            site.name: client.configure_metrics(site) for client in clients.values() for site in client.spec.sites
        }
        self.batches = 0
        self._pending: list[tuple[list[ClientMetrics], Batch, Future[tuple[Tensor, Tensor]]]] = []

    def add(self, client: FederatedClient, site: str, batch: Batch, outcome: Future[tuple[Tensor, Tensor]]) -> None:
        """Add a batch of a client's site, whose (probabilities, loss) may still be on their way."""
        scored = [self.metrics[own.name] for own in client.spec.sites if own.name == site or own.union]
        self._pending.append((scored, batch, outcome))
        self.batches += 1

    def results(self, step: int) -> Results:
        """Score everything that was added.

        Args:
            step: aligned steps that the clients have behind them.
        """
        for scored, batch, outcome in self._pending:
            probabilities, loss = outcome.result()
            for metrics in scored:
                metrics.update(probabilities, batch.y, loss)
        self._pending.clear()
        scores = {
            name: {key: float(value) for key, value in own.compute().items()} for name, own in self.metrics.items()
        }
        unseen = {name: int(matrix[-1].sum()) for name, (_, matrix) in self.confusion().items()}
        return Results(
            self.split,
            step,
            scores,
            {name: site.rows[self.split] for name, site in self.sites.items()},
            summarise(scores, self.sites.values()),
            {name: count for name, count in unseen.items() if count},
        )

    def confusion(self) -> dict[str, tuple[list[str], Tensor]]:
        """Site → (labels, confusion matrix); true classes are rows, the last row holds labels unknown to the client.

        Sites whose client brought a metric of its own are left out: it may count something else.
        """
        return {
            site: (self.labels[site], metrics.confusion())
            for site, metrics in self.metrics.items()
            if isinstance(metrics, ClientMetrics)
        }
