"""Scores of one split, collected batch by batch over all clients and sites."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.data.table import Split
from fedlit.engine import Evaluation
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Share
from fedlit.spec import Site
from fedlit.tasks.metrics import ClientMetrics, summarise
from fedlit.train.results import Results

if TYPE_CHECKING:
    from fedlit.train.federation import Federation

__all__ = ["Evaluations", "Scoring"]


class Scoring:
    """Collects what clients make of a split's batches and scores each site.

    Args:
        clients: by name.
        split: the rows that will be scored.

    Attributes:
        probabilities: site → what its client made of each batch, in the order of its rows; (n, classes) float, empty
            for a union of other sites.
    """

    def __init__(self, clients: Mapping[str, FederatedClient], split: Split) -> None:
        self.split: Split = split
        self.sites = {site.name: site for client in clients.values() for site in client.spec.sites}
        self._sites_of = {name: [site.name for site in client.spec.sites] for name, client in clients.items()}
        self.labels = {
            site.name: [str(client.spec.classes[position]) for position in site.classes]
            for client in clients.values()
            for site in client.spec.sites
        }
        self.metrics = {
            site.name: client.configure_metrics(site) for client in clients.values() for site in client.spec.sites
        }
        self.batches = dict.fromkeys(self.sites, 0)
        self.probabilities: dict[str, list[Tensor]] = {name: [] for name in self.sites}
        self._pending: list[tuple[str, list[ClientMetrics], Batch, Future[tuple[Tensor, Tensor]]]] = []

    def add(self, client: FederatedClient, site: str, batch: Batch, outcome: Future[tuple[Tensor, Tensor]]) -> None:
        """Add a batch of a client's site, whose (probabilities, loss) may still be on their way."""
        scored = [self.metrics[own.name] for own in client.spec.sites if own.name == site or own.union]
        self._pending.append((site, scored, batch, outcome))
        self.batches[site] += 1

    def results(self, step: int, share: Share) -> Results:
        """Score everything that was added.

        Args:
            step: aligned steps that the clients have behind them.
            share: tells clients elsewhere the scores, so that all know mean and worst.
        """
        for site, scored, batch, outcome in self._pending:
            probabilities, loss = outcome.result()
            self.probabilities[site].append(probabilities)
            for metrics in scored:
                metrics.update(probabilities, batch.y, loss)
        self._pending.clear()
        scores = {
            name: {key: float(value) for key, value in own.compute().items()} for name, own in self.metrics.items()
        }
        if self.split == "test":
            for name, metrics in self.metrics.items():
                scores[name] |= metrics.compute_once() if isinstance(metrics, ClientMetrics) else {}
        unseen = {name: int(matrix[-1].sum()) for name, (_, matrix) in self.confusion().items()}
        return Results(
            self.split,
            step,
            scores,
            {name: site.rows[self.split] for name, site in self.sites.items()},
            summarise(*self._of_all(scores, share)),
            {name: count for name, count in unseen.items() if count},
        )

    def _of_all(
        self, scores: Mapping[str, Mapping[str, float]], share: Share
    ) -> tuple[dict[str, Mapping[str, float]], list[Site]]:
        """Scores and sites of all clients, also of those elsewhere."""
        told = share(
            f"scores/{self.split}",
            {name: {own: scores[own] for own in sites} for name, sites in self._sites_of.items()},
        )
        everybody = {site: scored for sites in told.values() for site, scored in sites.items()}
        return everybody, [self.sites.get(site, Site(site, (), {})) for site in everybody]

    def confusion(self) -> dict[str, tuple[list[str], Tensor]]:
        """Site → (labels, confusion matrix); true classes are rows, the last row holds labels unknown to the client.

        Sites whose client brought a metric of its own are left out: it may count something else.
        """
        return {
            site: (self.labels[site], metrics.confusion())
            for site, metrics in self.metrics.items()
            if isinstance(metrics, ClientMetrics)
        }


class Evaluations:
    """The evaluations of a federation: which splits are being scored, and what waits to be executed for it.

    A client's first batch is evaluated at once and tells whether the client draws random numbers (dropout at test
    time). Later ones of a client that draws none wait, so that an engine can execute them side by side.

    Args:
        federation: whose clients.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.scoring: dict[Split, Scoring] = {}
        self._waiting: list[Evaluation] = []
        self._draws: dict[str, bool] = {}

    def begin(self, split: Split) -> None:
        """Begin to score a split."""
        self.scoring[split] = Scoring(self.federation, split)

    def add(self, split: Split, batch: Batch, dataloader_idx: int) -> None:
        """Have a batch of a site scored, at the latest when the split ends."""
        own = self.federation
        owner, site, _ = own.data.sites(split)[dataloader_idx]
        client = own.clients[owner]
        job = Evaluation(client, batch, partial(self._evaluate, client, batch))
        if self._draws.get(owner) is False:
            self._waiting.append(job)
        else:
            position = self.scoring[split].batches[site]
            with isolated_rng(derive_seed(own.seed, split, site, own.step, position), own.device) as drawn:
                job.outcome.set_result(job.run())
                self._draws[owner] = drawn()
        self.scoring[split].add(client, site, batch, job.outcome)

    def take(self) -> list[Evaluation]:
        """What waits; to execute it is up to the caller from then on."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _evaluate(self, client: FederatedClient, batch: Batch) -> tuple[Tensor, Tensor]:
        # Both belong to a thread.
        with self.federation.scope_of_scoring(), torch.no_grad():
            return client.evaluate(batch)
