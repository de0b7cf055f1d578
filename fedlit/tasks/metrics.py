"""Computes a site's scores from its batches, and the mean and the worst score over sites, for any
task.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor
from torchmetrics import Metric

from fedlit.names import joined
from fedlit.precision import double_on_cpu
from fedlit.tasks import SCORES
from fedlit.tasks.base import Task
from fedlit.tasks.classification import Classification
from fedlit.tasks.scores import Score


@dataclass(frozen=True)
class Site:
    """A set of rows on which a client is scored.

    A client usually has one site, itself. It has more only if the rows of several parties were
    pooled into one client (the centralized baseline): one for each party, and ``all`` for their
    union.

    Attributes:
        name: the name of the party.
        classes: the positions, in the client's ``classes``, of the labels that occur in the site's
            training split. Metrics cover these.
        rows: the number of rows of each split.
        union: whether the site repeats rows of other sites, and is therefore left out of means over
            sites.
    """

    name: str
    classes: tuple[int, ...]
    rows: Mapping[str, int]
    union: bool = False


class SiteBatch(NamedTuple):
    """A scored batch of a site.

    Attributes:
        predictions: (n, width) float, in the format of the task's ``predict``.
        target: (n,) or wider, in the format of the task's ``encode``.
        loss: a scalar, the mean over what the task counts (rows with a known target); NaN if there
            is none.
        weight: (n,) how much each row counts; None if all count alike.
    """

    predictions: Tensor
    target: Tensor
    loss: Tensor
    weight: Tensor | None = None


class SiteRows:
    """The predictions for a site's rows, batch by batch, and the scores that the task defines for
    them.

    Args:
        site: the site whose rows are scored; for a classifier, only its classes count.
        task: the client's task.

    Attributes:
        whole: the client's task.
        task: the task for the site's classes alone.
        batches: the batches so far; :meth:`add` adds one.
    """

    def __init__(self, site: Site, task: Task) -> None:
        self.site = site
        self.whole = task
        self.task = task.at(site.classes)
        self.batches: list[SiteBatch] = []
        self._rows: _Rows | None = None

    def add(self, batch: SiteBatch) -> None:
        """Add a batch."""
        self.batches.append(batch)
        self._rows = None

    def clear(self) -> None:
        """Forget all batches."""
        self.batches = []
        self._rows = None

    @property
    def count(self) -> int:
        """The number of rows of all batches."""
        return sum(len(batch.target) for batch in self.batches)

    def _narrowed(self) -> _Rows:
        """Return the rows of all batches, for the site's classes alone."""
        if self._rows is None:
            self._rows = _rows_of(self)
        return self._rows

    def scores(self) -> dict[str, Tensor]:
        """Return scalars by name: ``loss`` and the scores of the task's ``evaluate``."""
        rows = self._narrowed()
        total, counted = double_on_cpu(rows.losses).sum(0)
        return {
            "loss": (total / counted).float(),
            **self.task.evaluate(rows.predictions, rows.target, rows.weight),
        }

    def scores_once(self) -> dict[str, float]:
        """Return the scores that take too long for every epoch, for the test split."""
        rows = self._narrowed()
        return self.task.evaluate_once(rows.predictions, rows.target, rows.weight)

    def unseen(self) -> int:
        """Return the number of rows with a target that no training row has."""
        return int((~self.task.known(self._narrowed().target)).sum())

    def absent(self) -> tuple[str, ...]:
        """Return the classes, of more than two, that no row has: AUROC and AUPRC are means over the
        others.
        """
        if not isinstance(self.task, Classification) or len(self.task.classes) < 3:
            return ()
        present = set(self._narrowed().target.unique().tolist())
        return tuple(
            str(label)
            for position, label in enumerate(self.task.classes)
            if position not in present
        )

    def confusion(self) -> Tensor | None:
        """Return counts of true classes by predicted classes, over all batches; None if there are
        no classes.
        """
        rows = self._narrowed()
        return self.task.confusion(rows.predictions, rows.target)


class SiteMetrics(Metric):
    """Collects the predictions for a site's rows over batches, and scores them as the task defines.

    Args:
        site: the site whose rows are scored; for a classifier, only its classes count.
        task: the client's task; if None, classification with as many classes as the site's
            positions require.

    Attributes:
        collected: the rows so far.

    Example:
        >>> metrics = SiteMetrics(Site("a", (0, 2), {}))
        >>> metrics.update(torch.tensor([[0.2, 0.7, 0.1], [0.1, 0.7, 0.2]]), torch.tensor([0, 2]), torch.tensor(0.5))
        >>> metrics.compute()["accuracy"].item()
        1.0
    """

    full_state_update = False

    def __init__(self, site: Site, task: Task | None = None) -> None:
        # Every process scores the sites that it holds. Whoever scores many sites gives batches to
        # `collected` directly, so that a result that torchmetrics keeps could be out of date.
        super().__init__(sync_on_compute=False, compute_with_cache=False)
        task = task or Classification(tuple(range(1 + max(site.classes))))
        self.collected = SiteRows(site, task)

    @property
    def site(self) -> Site:
        """The site."""
        return self.collected.site

    @property
    def task(self) -> Task:
        """The task for the site's classes alone."""
        return self.collected.task

    @property
    def batches(self) -> list[SiteBatch]:
        """The batches so far."""
        return self.collected.batches

    @property
    def update_called(self) -> bool:
        """Whether there is a batch."""
        return bool(self.batches)

    def update(
        self, predictions: Tensor, target: Tensor, loss: Tensor, weight: Tensor | None = None
    ) -> None:
        """Add a batch, see :class:`SiteBatch`."""
        self.collected.add(SiteBatch(predictions, target, loss, weight))

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        self.collected.clear()

    def compute(self) -> dict[str, Tensor]:
        """Return scalars by name: ``loss`` and the scores of the task's ``evaluate``."""
        return self.collected.scores()

    def compute_once(self) -> dict[str, float]:
        """Return the scores that take too long for every epoch, for the test split."""
        return self.collected.scores_once()

    def unseen(self) -> int:
        """See :class:`SiteRows`."""
        return self.collected.unseen()

    def absent(self) -> tuple[str, ...]:
        """See :class:`SiteRows`."""
        return self.collected.absent()

    def confusion(self) -> Tensor | None:
        """See :class:`SiteRows`."""
        return self.collected.confusion()


class _Rows(NamedTuple):
    """The rows of a site's batches, for its classes alone.

    Attributes:
        predictions: (n, width).
        target: (n,) or wider.
        losses: (batches, 2) float32, the sum of losses of each batch, and the number of terms.
        weight: (n,) or None.
    """

    predictions: Tensor
    target: Tensor
    losses: Tensor
    weight: Tensor | None


def _rows_of(site_rows: SiteRows) -> _Rows:
    predictions = []
    targets = []
    losses = []
    weights = []
    for batch in site_rows.batches:
        narrowed, target, loss = site_rows.whole.narrow(
            site_rows.site.classes, batch.predictions, batch.target, batch.loss, batch.weight
        )
        counted = site_rows.task.counted(target)
        if batch.weight is not None:
            counted = batch.weight[site_rows.task.known(target)].sum()
            weights.append(batch.weight)
        predictions.append(narrowed)
        targets.append(target)
        losses.append(sum_and_count(loss, counted))
    weight = None
    if weights:
        weight = torch.cat(weights)
    return _Rows(torch.cat(predictions), torch.cat(targets), torch.stack(losses), weight)


def sum_and_count(loss: Tensor, counted: Tensor) -> Tensor:
    """Return the sum and the number of the terms of mean losses, (…, 2) float32; 0 without
    terms.
    """
    total = torch.where(counted > 0, loss.float() * counted, 0.0)
    return torch.stack([total, counted.float()], -1)


def lost_sites(
    scores: Mapping[str, Mapping[str, float]], listed: Mapping[str, Score] = SCORES
) -> list[str]:
    """Return the sites whose predictions are not finite, which is so if a score is undefined that
    all finite predictions have.
    """
    always = [name for name, score in listed.items() if score.always]
    lost = []
    for site, values in scores.items():
        if any(math.isnan(values.get(name, 0.0)) for name in always):
            lost.append(site)
    return lost


class Summary(TypedDict):
    """The scores of all sites together, see :func:`summarise`; each maps a metric to its value.

    Attributes:
        mean: the mean over sites.
        worst: the worst value.
        worst_client: the site with the worst value; None if no site has one.
        counted: the number of sites with a value.
    """

    mean: dict[str, float]
    worst: dict[str, float]
    worst_client: dict[str, str | None]
    counted: dict[str, int]


def summarise(
    scores: Mapping[str, Mapping[str, float]],
    sites: Iterable[Site],
    listed: Mapping[str, Score] = SCORES,
) -> Summary:
    """Return the mean over sites and the worst site for each metric. Sites without a value are left
    out of both.

    If a site's predictions are not finite, there is no mean, and that site is the worst. A metric
    whose direction is unknown has a mean and no worst.

    Args:
        scores: maps each site to its metrics and their values.
        sites: the sites; a union of other sites does not count.
        listed: the scores whose direction is known, by name.

    Example:
        >>> sites = [Site("a", (0, 1), {}), Site("b", (0, 1), {}), Site("c", (0, 1), {})]
        >>> summarise({"a": {"auroc": 0.75}, "b": {"auroc": 0.25}, "c": {"auroc": float("nan")}}, sites)
        {'mean': {'auroc': 0.5}, 'worst': {'auroc': 0.25}, 'worst_client': {'auroc': 'b'},
        'counted': {'auroc': 2}}
    """
    counted = {
        site.name: scores[site.name] for site in sites if not site.union and site.name in scores
    }
    # A mean without the sites whose predictions are not finite would make a federation look better
    # for the clients that it lost.
    lost = lost_sites(counted, listed)
    summary = Summary(mean={}, worst={}, worst_client={}, counted={})
    for metric in joined(counted.values()):
        values = {
            name: of_site[metric]
            for name, of_site in counted.items()
            if not math.isnan(of_site.get(metric, math.nan))
        }
        without_value = [name for name in lost if metric in counted[name]]
        mean = math.nan
        worst = None
        if without_value:
            worst = without_value[0]
        elif metric in listed:
            worst = listed[metric].worst(values)
        if values and not without_value:
            mean = sum(values.values()) / len(values)
        summary["mean"][metric] = mean
        summary["worst"][metric] = math.nan if worst is None else values.get(worst, math.nan)
        summary["worst_client"][metric] = worst
        summary["counted"][metric] = len(values)
    return summary
