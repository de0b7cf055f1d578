"""Scores a split: collects the predictions of all clients and sites batch by batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient, has_hook, main_score
from fedlit.client.hooks import hook_of
from fedlit.data.loader import Batch
from fedlit.data.table import Split
from fedlit.engine.base import Evaluation
from fedlit.exchange.members import Members
from fedlit.names import Share, joined
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.tasks import SCORES
from fedlit.tasks.many import score_sites
from fedlit.tasks.metrics import Site, SiteBatch, SiteMetrics, summarise
from fedlit.tasks.scores import Score, by_name
from fedlit.train.monitor import all_scores
from fedlit.train.results import Results

_log = logging.getLogger(__name__)

_Value = TypeVar("_Value")


class Scoring:
    """Collects clients' predictions for a split's batches and scores each site.

    Args:
        clients: the clients by name.
        split: the rows that will be scored.
        scores_of: maps each client to its scores, for all clients that are judged together; those
            of ``clients`` if None.
        metrics: maps each site to its metrics, which are reset; they are made if it is None.

    Attributes:
        metrics: maps each site to its metrics.
        predictions: maps each site to its client's predictions for each batch, in the order of the
            site's rows; (n, width) float, empty for a union of other sites.
    """

    def __init__(
        self,
        clients: Mapping[str, FederatedClient],
        split: Split,
        scores_of: Mapping[str, tuple[Score, ...]] | None = None,
        metrics: dict[str, SiteMetrics] | None = None,
    ) -> None:
        self.split: Split = split
        scores_of = scores_of or {name: client.scores for name, client in clients.items()}
        self.sites: dict[str, Site] = {}
        self.clients: dict[str, FederatedClient] = {}
        self._sites_of: dict[str, list[str]] = {}
        for name, client in clients.items():
            self._sites_of[name] = [site.name for site in client.spec.sites]
            for site in client.spec.sites:
                self.sites[site.name] = site
                self.clients[site.name] = client
        if metrics is None:
            metrics = metrics_of(clients)
        self.metrics = metrics
        for of_site in metrics.values():
            _reset(of_site)
        # The clients of other processes may have scores that no client has here.
        self.scores = {**SCORES, **by_name(all_scores(scores_of))}
        self.main = main_score(scores_of)
        self.predictions: dict[str, list[Tensor]] = {name: [] for name in self.sites}
        self._jobs: dict[str, list[Evaluation]] = {}  # in the order of the loader's sites

    def add(self, site: str, job: Evaluation) -> None:
        """Add the next batch of a site. It may not have been executed yet."""
        self._jobs.setdefault(site, []).append(job)

    def count(self, site: str) -> int:
        """Return the number of batches of a site that were added."""
        return len(self._jobs.get(site, ()))

    def results(self, step: int, share: Share) -> Results:
        """Score everything that was added.

        Args:
            step: the number of aligned steps that the clients have taken.
            share: sends the scores to other processes, so that all know mean and worst.
        """
        self._update_metrics()
        # A client may return metrics of another class, which know nothing of what follows.
        site_metrics = {
            name: metrics
            for name, metrics in self.metrics.items()
            if isinstance(metrics, SiteMetrics)
        }
        of_sites = score_sites(site_metrics)
        scores = {}
        for name, metrics in self.metrics.items():
            if name in of_sites:
                scores[name] = of_sites[name].values
            else:
                scores[name] = {key: float(value) for key, value in metrics.compute().items()}
        if self.split == "test":
            for name, metrics in site_metrics.items():
                scores[name] |= metrics.compute_once()
        unlisted = set[str]().union(*scores.values()) - self.scores.keys()
        for metric in sorted(unlisted):
            _say_unlisted(metric)
        return Results(
            split=self.split,
            step=step,
            scores=scores,
            rows={name: site.rows[self.split] for name, site in self.sites.items()},
            summary=summarise(*self._of_all(scores, share), self.scores),
            unseen={name: of_site.unseen for name, of_site in of_sites.items() if of_site.unseen},
            absent={name: of_site.absent for name, of_site in of_sites.items() if of_site.absent},
            listed_scores=self.scores,
            main=self.main,
        )

    def _update_metrics(self) -> None:
        """Give the batches that were added to the metrics of their sites."""
        for site, jobs in self._jobs.items():
            scored = [
                self.metrics[member.name]
                for member in self.clients[site].spec.sites
                if member.name == site or member.union
            ]
            for job in jobs:
                predictions, loss = job.outcome()
                self.predictions[site].append(predictions)
                batch = SiteBatch(predictions, job.batch.y, loss, job.batch.weight)
                for metrics in scored:
                    _update(metrics, batch)
        self._jobs.clear()

    def _of_all(
        self, scores: Mapping[str, Mapping[str, float]], share: Share
    ) -> tuple[dict[str, Mapping[str, float]], list[Site]]:
        """Return the scores and sites of all clients, including those of other processes."""
        local = {name: _part(scores, sites) for name, sites in self._sites_of.items()}
        scores_of_all = joined(share(f"scores/{self.split}", local).values())
        return scores_of_all, [self.sites.get(site, Site(site, (), {})) for site in scores_of_all]

    def confusion(self) -> dict[str, tuple[list[str], Tensor]]:
        """Map each site to (labels, confusion matrix). Rows are true classes; labels unknown to the
        client are last.

        Sites without classes are left out, and so are sites whose client has a metric of its own,
        which may count something else.
        """
        matrices = {}
        for site, metrics in self.metrics.items():
            if not isinstance(metrics, SiteMetrics):
                continue
            matrix = metrics.confusion()
            if matrix is not None:
                matrices[site] = list(map(str, metrics.task.classes)), matrix
        return matrices


def _reset(metrics: SiteMetrics) -> None:
    """Let metrics forget all batches."""
    if type(metrics) is SiteMetrics:
        metrics.collected.clear()
    else:
        metrics.reset()


def _update(metrics: SiteMetrics, batch: SiteBatch) -> None:
    """Add a batch to metrics. Those of fedlit's class take it without torchmetrics' bookkeeping,
    which takes longer than the rest of the scores of a small site.
    """
    if type(metrics) is SiteMetrics:
        metrics.collected.add(batch)
        return
    # A client's own metrics need to know weights only if rows have some.
    weight = [] if batch.weight is None else [batch.weight]
    metrics.update(batch.predictions, batch.target, batch.loss, *weight)


def metrics_of(clients: Mapping[str, FederatedClient]) -> dict[str, SiteMetrics]:
    """Return the metrics of each site of the clients."""
    metrics = {}
    for client in clients.values():
        for site in client.spec.sites:
            metrics[site.name] = client.configure_metrics(site)
    return metrics


def _part(values: Mapping[str, _Value], names: Iterable[str]) -> dict[str, _Value]:
    return {name: values[name] for name in names}


@cache
def _say_unlisted(metric: str) -> None:
    _log.warning(
        "score %r: it is not known whether more is better, so there is no worst client; list it in "
        "the client's class: scores = (*Classification.scores, Score(%r, ...))",
        metric,
        metric,
    )


class Evaluations:
    """The evaluations of a federation: the splits that are being scored, and the batches that wait
    to be evaluated.

    Batches wait until a split ends, so that an engine can execute them side by side. A client that
    draws random numbers (dropout at test time) is evaluated alone instead, each batch with a seed
    of its own. Whether clients draw is seen the first time: if none has drawn while all were
    evaluated, none does; otherwise each is evaluated again, alone. A client with an ``evaluate`` of
    its own, which may remember that it was called, is evaluated alone the first time.

    Args:
        federation: the federation whose clients are evaluated.
    """

    def __init__(self, federation: Members) -> None:
        self.federation = federation
        self.scoring: dict[Split, Scoring] = {}
        self._metrics: dict[Split, dict[str, SiteMetrics]] = {}
        self._waiting: list[Evaluation] = []
        self._untried: list[tuple[Evaluation, int]] = []  # of clients that may draw; with seeds
        self._draws: dict[str, bool] = {}

    def begin(self, split: Split) -> None:
        """Begin to score a split."""
        federation = self.federation
        if split not in self._metrics:
            self._metrics[split] = metrics_of(federation.clients)
        metrics = self._metrics[split]
        self.scoring[split] = Scoring(federation.clients, split, federation.scores_of, metrics)

    def add(self, split: Split, batches: Mapping[str, Batch]) -> None:
        """Score the next batch of each of several sites, at the latest when the split ends."""
        scoring = self.scoring[split]
        for site, batch in batches.items():
            client = scoring.clients[site]
            job = Evaluation(client, batch, partial(self._evaluate, client, batch))
            draws = self._draws.get(client.spec.name)
            if draws is None and has_hook(client, "evaluate"):
                draws = True  # until it is seen that it does not
            if draws is False:
                self._waiting.append(job)
            else:
                step = self.federation.step
                seed = derive_seed(self.federation.seed, split, site, step, scoring.count(site))
                if draws is None:
                    self._waiting.append(job)
                    self._untried.append((job, seed))
                else:
                    self._execute_alone(job, seed)
            scoring.add(site, job)

    def _execute_alone(self, job: Evaluation, seed: int) -> None:
        """Execute an evaluation that may draw random numbers."""
        with isolated_rng(seed, self.federation.device) as drawn:
            job.settle(job.run())
            self._draws[job.client.spec.name] = drawn()

    def execute(self, evaluate: Callable[[Sequence[Evaluation]], None]) -> None:
        """Let an engine execute the waiting evaluations (:meth:`Engine.evaluate
        <fedlit.engine.base.Engine.evaluate>`).
        """
        waiting = self._waiting
        untried = self._untried
        self._waiting = []
        self._untried = []
        if not untried:
            evaluate(waiting)
            return
        with isolated_rng(self.federation.seed, self.federation.device) as drawn:
            evaluate(waiting)
            some_draw = drawn()
        for job, seed in untried:
            name = job.client.spec.name
            if not some_draw:
                self._draws[name] = False
            elif self._draws.get(name) is not False:
                self._execute_alone(job, seed)

    def _evaluate(self, client: FederatedClient, batch: Batch) -> tuple[Tensor, Tensor]:
        # Both belong to a thread.
        with hook_of(client, "evaluate"), self.federation.scope_of_scoring(), torch.no_grad():
            return client.evaluate(batch)
