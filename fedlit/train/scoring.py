"""Scores of one split, collected batch by batch over all clients and sites."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache, partial

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient, main_score
from fedlit.client.hooks import hook_of
from fedlit.data.loader import Batch
from fedlit.data.table import Split
from fedlit.engine.base import Evaluation
from fedlit.exchange.members import Members
from fedlit.names import Share
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.tasks import SCORES
from fedlit.tasks.base import Score, by_name
from fedlit.tasks.metrics import Site, SiteMetrics, summarise
from fedlit.train.results import Results

_log = logging.getLogger(__name__)


class Scoring:
    """Collects clients' predictions for a split's batches and scores each site.

    Args:
        clients: the clients by name.
        split: the rows that will be scored.
        scores_of: maps each client to its scores, for all clients that are judged together; those of ``clients`` if
            None.

    Attributes:
        predictions: maps each site to its client's predictions for each batch, in the order of the site's rows; (n,
            width) float, empty for a union of other sites.
    """

    def __init__(
        self,
        clients: Mapping[str, FederatedClient],
        split: Split,
        scores_of: Mapping[str, tuple[Score, ...]] | None = None,
    ) -> None:
        self.split: Split = split
        scores_of = scores_of or {name: client.scores for name, client in clients.items()}
        self.sites = {site.name: site for client in clients.values() for site in client.spec.sites}
        self._sites_of = {name: [site.name for site in client.spec.sites] for name, client in clients.items()}
        own = by_name(score for scores in scores_of.values() for score in scores)
        self.scores = {**SCORES, **own}  # those of clients elsewhere, too
        self.main = main_score(scores_of)
        self.metrics = {
            site.name: client.configure_metrics(site) for client in clients.values() for site in client.spec.sites
        }
        self.batches = dict.fromkeys(self.sites, 0)
        self.predictions: dict[str, list[Tensor]] = {name: [] for name in self.sites}
        self._pending: list[tuple[str, list[SiteMetrics], Batch, Future[tuple[Tensor, Tensor]]]] = []

    def add(self, client: FederatedClient, site: str, batch: Batch, outcome: Future[tuple[Tensor, Tensor]]) -> None:
        """Add a batch of a client's site. Its (predictions, loss) may not have been computed yet."""
        scored = [self.metrics[own.name] for own in client.spec.sites if own.name == site or own.union]
        self._pending.append((site, scored, batch, outcome))
        self.batches[site] += 1

    def results(self, step: int, share: Share) -> Results:
        """Score everything that was added.

        Args:
            step: the number of aligned steps that the clients have taken.
            share: sends the scores to other processes, so that all know mean and worst.
        """
        for site, scored, batch, outcome in self._pending:
            predictions, loss = outcome.result()
            self.predictions[site].append(predictions)
            for metrics in scored:
                metrics.update(predictions, batch.y, loss)
        self._pending.clear()
        scores = {
            name: {key: float(value) for key, value in own.compute().items()} for name, own in self.metrics.items()
        }
        own = {name: metrics for name, metrics in self.metrics.items() if isinstance(metrics, SiteMetrics)}
        if self.split == "test":
            for name, metrics in own.items():
                scores[name] |= metrics.compute_once()
        for metric in {metric for values in scores.values() for metric in values} - self.scores.keys():
            _say_unlisted(metric)
        unseen = {name: metrics.unseen() for name, metrics in own.items()}
        return Results(
            self.split,
            step,
            scores,
            {name: site.rows[self.split] for name, site in self.sites.items()},
            summarise(*self._of_all(scores, share), self.scores),
            {name: count for name, count in unseen.items() if count},
            self.scores,
            self.main,
        )

    def _of_all(
        self, scores: Mapping[str, Mapping[str, float]], share: Share
    ) -> tuple[dict[str, Mapping[str, float]], list[Site]]:
        """Return the scores and sites of all clients, including those of other processes."""
        told = share(
            f"scores/{self.split}",
            {name: {own: scores[own] for own in sites} for name, sites in self._sites_of.items()},
        )
        everybody = {site: scored for sites in told.values() for site, scored in sites.items()}
        return everybody, [self.sites.get(site, Site(site, (), {})) for site in everybody]

    def confusion(self) -> dict[str, tuple[list[str], Tensor]]:
        """Map each site to (labels, confusion matrix). Rows are true classes; labels unknown to the client are last.

        Sites without classes are left out, and so are sites whose client has a metric of its own, which may count
        something else.
        """
        found = {}
        for site, metrics in self.metrics.items():
            if isinstance(metrics, SiteMetrics) and (matrix := metrics.confusion()) is not None:
                found[site] = list(map(str, metrics.task.classes)), matrix
        return found


@cache
def _say_unlisted(metric: str) -> None:
    _log.warning(
        "score %r: it is not known whether more is better, so there is no worst client; list it in the client's "
        "class: scores = (*Classification.scores, Score(%r, ...))",
        metric,
        metric,
    )


class Evaluations:
    """The evaluations of a federation: the splits that are being scored, and the batches that wait to be evaluated.

    A client's first batch is evaluated at once, which shows whether the client draws random numbers (dropout at test
    time). If it draws none, its later batches wait, so that an engine can execute them side by side.

    Args:
        federation: the federation whose clients are evaluated.
    """

    def __init__(self, federation: Members) -> None:
        self.federation = federation
        self.scoring: dict[Split, Scoring] = {}
        self._waiting: list[Evaluation] = []
        self._draws: dict[str, bool] = {}

    def begin(self, split: Split) -> None:
        """Begin to score a split."""
        self.scoring[split] = Scoring(self.federation.clients, split, self.federation.scores_of)

    def add(self, split: Split, batch: Batch, dataloader_idx: int) -> None:
        """Score a batch of a site, at the latest when the split ends."""
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
        """Return the waiting evaluations, and no longer keep them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def _evaluate(self, client: FederatedClient, batch: Batch) -> tuple[Tensor, Tensor]:
        # Both belong to a thread.
        with hook_of(client, "evaluate"), self.federation.scope_of_scoring(), torch.no_grad():
            return client.evaluate(batch)
