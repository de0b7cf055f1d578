"""Scores of a classifier, whose convention :mod:`fedlit.tasks.classification` states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fedlit.precision import double_on_cpu, in_double
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import weighted_mean

_SORTED_ALONE = 1024
"""The mean number of rows of a client from which clients are sorted one by one, which takes as many
comparisons as one sort of all and does without a second one."""


class _Curve(NamedTuple):
    """The rows of each client, sorted by their probability of a class.

    Attributes:
        order: (n,) the rows.
        positive: (n,) int64, 1 where a row has the class.
        ends: the last row of each point.
        points: which points belong to which client.
    """

    order: Tensor
    positive: Tensor
    ends: Tensor
    points: Segments


class ClassScorer:
    """Computes scores of one or many clients from their rows' probabilities and class positions.
    All classes of all clients are sorted in one pass, once for all counts.

    Args:
        probabilities: (n, C), the rows of one client after the other.
        y: (n,) int64, −1 for labels that are no class.
        clients: which rows belong to which client; all to a single one if None.
    """

    def __init__(self, probabilities: Tensor, y: Tensor, clients: Segments | None = None) -> None:
        self.probabilities = probabilities
        self.y = y
        self.clients = clients or Segments([len(y)])
        self.width = probabilities.shape[1]
        # With two classes, scores are those of the second.
        self.first = 0
        if self.width == 2:
            self.first = 1
        self._curves: dict[int, _Curve] = {}
        self.cells = confusion_cells(probabilities, y)
        if len(self.clients) > 1:
            self.cells += self.clients.client * ((self.width + 1) * self.width)

    def __call__(self, counts: Tensor | None = None) -> dict[str, Tensor]:
        """Return the scores by name, each (clients,) on the CPU, see
        :meth:`fedlit.tasks.base.Task.scorer`. Counts of several clients are whole numbers.
        """
        if counts is not None and counts.dtype.is_floating_point:
            counts = in_double(counts)
        confusion = self._confusion(counts)
        hits = confusion.diagonal(dim1=1, dim2=2)
        support = confusion.sum(2)[:, : self.width]
        predicted = confusion.sum(1)
        rows = confusion.flatten(1).sum(1)
        present = support > 0
        either = support + predicted
        f1 = 2 * hits / torch.where(either > 0, either, 1)
        averaged = present[:, self.first :]
        of_present = Segments(present.sum(1).tolist())
        of_averaged = Segments(averaged.sum(1).tolist())
        ranked = averaged & (support < rows[:, None])[:, self.first :]
        return {
            **self._means_of_areas(ranked, counts),
            "balanced_accuracy": of_present.mean((hits / support)[present]).float(),
            "accuracy": (hits.sum(1) / rows).float(),
            "f1": of_averaged.mean(f1[:, self.first :][averaged]).float(),
            "weighted_f1": (of_present.sum((f1 * support)[present]) / support.sum(1)).float(),
            "classes": ranked.sum(1).to(self.probabilities.dtype),
        }

    def _confusion(self, counts: Tensor | None) -> Tensor:
        """Return the weights of rows by client, true class, the last for labels that are no class,
        and predicted class, (clients, C + 1, C) float64.
        """
        weights = None
        if counts is not None:
            weights = double_on_cpu(counts)
        cells = len(self.clients) * (self.width + 1) * self.width
        sums = torch.bincount(self.cells, weights, minlength=cells)
        return double_on_cpu(sums).view(len(self.clients), self.width + 1, self.width)

    # ------------------------------------------------------------------ curves

    def _means_of_areas(self, ranked: Tensor, counts: Tensor | None) -> dict[str, Tensor]:
        """Return the means of areas over those classes that a client has a curve of, (clients,
        averaged classes) bool.
        """
        of_ranked = Segments(ranked.sum(1).tolist())
        auroc = torch.zeros(ranked.shape)
        auprc = torch.zeros(ranked.shape)
        for column, somewhere in enumerate(ranked.any(0).tolist()):
            if somewhere:
                areas = self._areas(self.first + column, counts)
                auroc[:, column] = areas[0]
                auprc[:, column] = areas[1]
        return {"auroc": of_ranked.mean(auroc[ranked]), "auprc": of_ranked.mean(auprc[ranked])}

    def _areas(self, position: int, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the areas under the ROC curve and under the precision–recall steps of one class
        versus the rest, (clients,) float32 on the CPU; they mean nothing for a client without a
        positive or a negative row.

        They are computed in whole numbers up to the last division, so that they do not depend on
        the order of equal scores.
        """
        hits, predicted, points = self._points(position, counts)
        missed = predicted - hits
        recall = hits / points.spread(points.last(hits))
        fallout = missed / points.spread(points.last(missed))
        higher = points.before(recall)
        trapezoids = (recall + higher) * (fallout - points.before(fallout))
        auroc = points.sum(trapezoids) / 2
        # torchmetrics adds the steps from the last point to the first.
        steps = (higher - recall) * (hits / predicted)
        auprc = -points.sum_backwards(steps)
        return auroc.float().cpu(), auprc.float().cpu()

    def _points(self, position: int, counts: Tensor | None) -> tuple[Tensor, Tensor, Segments]:
        """Return the positive rows, and all rows, that are predicted at each point of the clients'
        curves, and which points belong to which client. A curve has a point at the last one of
        equal scores.
        """
        if position not in self._curves:
            self._curves[position] = self._curve(position)
        curve = self._curves[position]
        if counts is None:
            counts = torch.ones_like(curve.positive)
        order, positive, ends = (tensor.to(counts.device) for tensor in curve[:3])
        ordered_counts = counts.index_select(0, order)
        hits = self.clients.cumsum(ordered_counts * positive).index_select(0, ends)
        predicted = self.clients.cumsum(ordered_counts).index_select(0, ends)
        points = curve.points
        # A score that no counted row has adds no point: of points with equally many rows the last
        # one counts, and one without rows does not.
        repeated = points.before(predicted) == predicted
        if not repeated.any():
            return hits, predicted, points
        last = functional.pad(~repeated[1:], [0, 1], value=True)
        points.mark_ends(last)
        last &= predicted != 0
        rows = last.nonzero()[:, 0]
        return hits.index_select(0, rows), predicted.index_select(0, rows), points.chosen(rows)

    def _curve(self, position: int) -> _Curve:
        """Sort the rows of each client by their probability of a class."""
        score = self.probabilities[:, position]
        order = self._order(score)
        score = score.index_select(0, order)
        ends = functional.pad(score[1:] != score[:-1], [0, 1], value=True)
        self.clients.mark_ends(ends)
        positive = (self.y.index_select(0, order) == position).long()
        rows = ends.nonzero()[:, 0]
        return _Curve(order, positive, rows, self.clients.chosen(rows))

    def _order(self, score: Tensor) -> Tensor:
        """Return the rows of one client after the other, each from the highest score to the
        lowest.
        """
        clients = self.clients
        if clients.rows < _SORTED_ALONE * len(clients) and len(clients) > 1:
            order = score.argsort(descending=True)
            return order[clients.client.to(order.device)[order].argsort(stable=True)]
        orders = []
        start = 0
        for part in score.split(clients.lengths):
            orders.append(start + part.argsort(descending=True))
            start += len(part)
        return torch.cat(orders)


def confusion_cells(probabilities: Tensor, y: Tensor) -> Tensor:
    """Return the cell of the confusion matrix, counted row by row, for each row of data, (n,) int64
    on the CPU.
    """
    width = probabilities.shape[1]
    return (torch.where(y < 0, width, y) * width + probabilities.argmax(1)).cpu()


def restrict(probabilities: Tensor, columns: Sequence[int]) -> Tensor:
    """Return the renormalised probabilities of some classes only; they are equal if none of these
    classes has any.

    Shape:
        - probabilities: (n, C), float in [0, 1]
        - output: (n, len(columns)), each row sums to 1

    Example:
        >>> restrict(torch.tensor([[0.2, 0.6, 0.2]]), [0, 2])
        tensor([[0.5000, 0.5000]])
    """
    selected = probabilities[:, list(columns)]
    total = selected.sum(1, keepdim=True)
    return torch.where(total < torch.finfo(selected.dtype).tiny, 1 / len(columns), selected / total)


def log_loss(probabilities: Tensor, target: Tensor, weight: Tensor | None = None) -> float:
    """Return the mean of −log p of the true class, with p at least 1e-6; NaN if no row has a known
    label.

    Args:
        probabilities: (n, C) float in [0, 1].
        target: (n,) int64 in [−1, C).
        weight: (n,) how much each row counts; once if None.
    """
    labelled = target >= 0
    of_label = probabilities[labelled].gather(1, target[labelled].long()[:, None])
    true = in_double(of_label).clamp_min(1e-6)
    if not len(true):
        return math.nan
    if weight is None:
        return float(-true.log().mean())
    return float(weighted_mean(-true.log()[:, 0], weight[labelled].to(true)))


def auroc_one_versus_one(
    probabilities: Tensor, target: Tensor, weight: Tensor | None = None
) -> float:
    """Return the mean over pairs of classes of the AUROC among the rows of the two (Hand and Till
    2001), computed by scikit-learn over the classes present in the split. With two classes it is
    the AUROC; NaN if fewer are present.

    Args:
        probabilities: (n, C) float in [0, 1], each row sums to 1.
        target: (n,) int64 in [−1, C); rows with −1 belong to no pair.
        weight: (n,) how much each row counts; once if None. It is not defined for more than two
            classes.

    Example:
        >>> auroc_one_versus_one(torch.eye(4)[[0, 1, 3]], torch.tensor([0, 1, 3]))
        1.0
    """
    from sklearn.metrics import roc_auc_score

    labelled = target >= 0
    present = torch.unique(target[labelled]).tolist()
    if len(present) < 2 or not torch.isfinite(probabilities).all():
        return math.nan
    selected = restrict(double_on_cpu(probabilities[labelled]), present).numpy()
    rank = {position: index for index, position in enumerate(present)}
    labels = [rank[position] for position in target[labelled].tolist()]
    weights = None
    if weight is not None:
        weights = weight[labelled].cpu().numpy()
    if len(present) == 2:
        return float(roc_auc_score(labels, selected[:, 1], sample_weight=weights))
    if weights is not None:
        return math.nan
    return float(roc_auc_score(labels, selected, multi_class="ovo"))
