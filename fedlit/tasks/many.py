"""Scores many sites in one pass over the rows of all whose tasks are alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from fedlit.precision import double_on_cpu
from fedlit.tasks.base import Task
from fedlit.tasks.classification import Classification
from fedlit.tasks.metrics import SiteMetrics, SiteRows, sum_and_count
from fedlit.tasks.segments import Segments


@dataclass(frozen=True)
class SiteScores:
    """What is known of the predictions for a site's rows.

    Attributes:
        values: the scores by name, as :meth:`SiteMetrics.compute` returns them.
        unseen: the number of rows with a target that no training row has.
        absent: the classes, of more than two, that no row has.
    """

    values: dict[str, float]
    unseen: int
    absent: tuple[str, ...]


def score_sites(metrics: Mapping[str, SiteMetrics]) -> dict[str, SiteScores]:
    """Return the scores of sites, bit-for-bit those that each site's metrics compute alone.

    Sites with equal kinds of tasks, widths of predictions and classes are scored in one pass. Sites
    whose rows have weights are scored one by one, because sums of weights depend on the rows that
    come before, and so are those whose predictions are not finite, or whose task does not define
    :meth:`~fedlit.tasks.base.Task.evaluate_many`.

    Args:
        metrics: maps each site to its metrics.
    """
    groups: dict[Hashable, list[str]] = {}
    for name, site in metrics.items():
        groups.setdefault(_kind(name, site), []).append(name)
    scores: dict[str, SiteScores] = {}
    for names in groups.values():
        if len(names) == 1:
            scores[names[0]] = _alone(metrics[names[0]])
        else:
            of_names = _together([metrics[name].collected for name in names])
            scores |= dict(zip(names, of_names, strict=True))
    return {name: scores[name] for name in metrics}


def _kind(name: str, metrics: SiteMetrics) -> Hashable:
    """Return a key that is equal for sites that are scored together; the name if one is alone."""
    rows = metrics.collected
    task = type(rows.task)
    weighs = any(batch.weight is not None for batch in rows.batches)
    shared = type(metrics) is SiteMetrics and "evaluate_many" in vars(task)
    if not rows.batches or weighs or not shared:
        return name
    tensors = rows.batches[0][:2]
    formats = [(tensor.shape[1:], tensor.dtype, tensor.device) for tensor in tensors]
    return (task, rows.site.classes, *formats)


def _alone(metrics: SiteMetrics) -> SiteScores:
    values = {name: float(value) for name, value in metrics.compute().items()}
    return SiteScores(values, metrics.unseen(), metrics.absent())


def _together(sites: Sequence[SiteRows]) -> list[SiteScores]:
    """Return the scores of sites with equal :func:`_kind`."""
    first = sites[0]
    batches = list(chain.from_iterable(site.batches for site in sites))
    of_batches = Segments([len(batch.target) for batch in batches])
    predictions, target, losses = first.whole.narrow_many(
        first.site.classes,
        torch.cat([batch.predictions for batch in batches]),
        torch.cat([batch.target for batch in batches]),
        torch.stack([batch.loss.float() for batch in batches]),
        of_batches,
    )
    labelled = first.task.known(target)
    sums = sum_and_count(losses, of_batches.sum(labelled.long()))
    totals = Segments([len(site.batches) for site in sites]).sum(double_on_cpu(sums))
    clients = Segments([site.count for site in sites])
    scores = _scores([site.task for site in sites], predictions, target, clients)
    scores = {"loss": (totals[:, 0] / totals[:, 1]).float(), **scores}
    columns = [values.tolist() for values in scores.values()]
    unseen = clients.sum((~labelled).long()).tolist()
    absent = _absent(sites, target, clients)
    return [
        SiteScores(dict(zip(scores, values, strict=True)), unseen[position], absent[position])
        for position, values in enumerate(zip(*columns, strict=True))
    ]


def _scores(
    tasks: Sequence[Task], predictions: Tensor, target: Tensor, clients: Segments
) -> dict[str, Tensor]:
    """Return the scores of tasks of one class, each (clients,), see :meth:`Task.evaluate_many`."""
    infinite = ~torch.isfinite(predictions).all(1)
    scored = (clients.sum(infinite.long()).cpu() == 0) & (clients.sizes > 0)
    if scored.all():
        return type(tasks[0]).evaluate_many(tasks, predictions, target, clients)
    # Without finite predictions, no score depends on the rows.
    undefined = tasks[0].evaluate(predictions[:0], target[:0])
    scores = {name: value.repeat(len(tasks)).cpu() for name, value in undefined.items()}
    if scored.any():
        positions = scored.nonzero()[:, 0].tolist()
        rows = scored[clients.client].to(target.device)
        chosen = Segments([clients.lengths[position] for position in positions])
        tasks = [tasks[position] for position in positions]
        finite = type(tasks[0]).evaluate_many(tasks, predictions[rows], target[rows], chosen)
        for name, values in finite.items():
            scores[name] = scores[name].to(values.dtype)
            scores[name][positions] = values.cpu()
    return scores


def _absent(sites: Sequence[SiteRows], target: Tensor, clients: Segments) -> list[tuple[str, ...]]:
    """Return what :meth:`SiteRows.absent` returns for each site."""
    width = len(sites[0].task.classes)
    if not isinstance(sites[0].task, Classification) or width < 3:
        return [()] * len(sites)
    labels = torch.where(target < 0, width, target).cpu()
    cells = len(sites) * (width + 1)
    counts = torch.bincount(clients.client * (width + 1) + labels, minlength=cells)
    present = counts.view(len(sites), width + 1)[:, :width] > 0
    absent: list[tuple[str, ...]] = [()] * len(sites)
    for position in (~present.all(1)).nonzero()[:, 0].tolist():
        rows = zip(sites[position].task.classes, present[position].tolist(), strict=True)
        absent[position] = tuple(str(label) for label, is_present in rows if not is_present)
    return absent
