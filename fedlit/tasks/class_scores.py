"""Scores of a classifier, whose convention :mod:`fedlit.tasks.classification` states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlit.precision import double_on_cpu, in_double
from fedlit.tasks.segments import Segments, quotients
from fedlit.tasks.weighing import weighted_mean
from fedlit.types import Bools

_SORTED_ALONE = 1024
"""The mean number of rows of a client from which clients are sorted one by one, which takes as many
comparisons as one sort of all and does without a second one."""


class _Curve(NamedTuple):
    """The rows of each client, sorted by their probability of a class.

    Attributes:
        order: (n,) int64, the rows.
        positive: (n,) int64, 1 where a row has the class.
        ends: the last row of each point.
        points: which points belong to which client.
    """

    order: np.ndarray
    positive: np.ndarray
    ends: np.ndarray
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
        support_of = confusion.sum(2)[:, : self.width]
        rows = confusion.flatten(1).sum(1)
        # Arithmetic on a few numbers takes NumPy a fifth of the time; sums stay PyTorch's.
        hits = confusion.diagonal(dim1=1, dim2=2).numpy()
        support = support_of.numpy()
        either = support + confusion.sum(1).numpy()
        present = support > 0
        f1 = 2 * hits / np.where(either > 0, either, 1)
        averaged = present[:, self.first :]
        of_present = Segments(present.sum(1).tolist())
        of_averaged = Segments(averaged.sum(1).tolist())
        ranked = averaged & (support < rows.numpy()[:, None])[:, self.first :]
        recall = torch.from_numpy(hits[present] / support[present])
        weighted = torch.from_numpy((f1 * support)[present])
        right = torch.from_numpy(np.ascontiguousarray(hits)).sum(1)
        return {
            **self._means_of_areas(ranked, counts),
            "balanced_accuracy": of_present.mean(recall).float(),
            "accuracy": (right / rows).float(),
            "f1": of_averaged.mean(torch.from_numpy(f1[:, self.first :][averaged])).float(),
            "weighted_f1": (of_present.sum(weighted) / support_of.sum(1)).float(),
            "classes": torch.from_numpy(ranked.sum(1)).to(self.probabilities.dtype),
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

    def _means_of_areas(self, ranked: Bools, counts: Tensor | None) -> dict[str, Tensor]:
        """Return the means of areas over those classes that a client has a curve of, (clients,
        averaged classes) bool.
        """
        of_ranked = Segments(ranked.sum(1).tolist())
        columns = np.flatnonzero(ranked.any(0)).tolist()
        if not columns:
            undefined = of_ranked.mean(torch.zeros(0))
            return {"auroc": undefined, "auprc": undefined}
        areas = [self._areas(self.first + column, counts) for column in columns]
        chosen = torch.from_numpy(ranked[:, columns])
        auroc = torch.stack([auroc for auroc, _ in areas], 1)
        auprc = torch.stack([auprc for _, auprc in areas], 1)
        return {"auroc": of_ranked.mean(auroc[chosen]), "auprc": of_ranked.mean(auprc[chosen])}

    def _areas(self, position: int, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the areas under the ROC curve and under the precision–recall steps of one class
        versus the rest, (clients,) float32 on the CPU; they mean nothing for a client without a
        positive or a negative row.

        They are computed in whole numbers up to the last division, so that they do not depend on
        the order of equal scores.
        """
        hits, predicted, points = self._points(position, counts)
        recall = points.shares(hits)
        fallout = points.shares(predicted - hits)
        higher = points.before(recall)
        trapezoids = (recall + higher) * (fallout - points.before(fallout))
        auroc = points.sum(torch.from_numpy(trapezoids)) / 2
        # torchmetrics adds the steps from the last point to the first.
        steps = (higher - recall) * quotients(hits, predicted)
        auprc = -points.sum_backwards(torch.from_numpy(steps))
        return auroc.float(), auprc.float()

    def _points(
        self, position: int, counts: Tensor | None
    ) -> tuple[np.ndarray, np.ndarray, Segments]:
        """Return the positive rows, and all rows, that are predicted at each point of the clients'
        curves, and which points belong to which client. A curve has a point at the last one of
        equal scores.
        """
        if position not in self._curves:
            self._curves[position] = self._curve(position)
        order, positive, ends, points = self._curves[position]
        if counts is None:
            hits = self.clients.cumsum(positive)[ends]
            predicted = self.clients.cumsum(np.ones_like(positive))[ends]
            return hits, predicted, points
        ordered_counts = counts.cpu().numpy()[order]
        hits = self.clients.cumsum(ordered_counts * positive)[ends]
        predicted = self.clients.cumsum(ordered_counts)[ends]
        # A score that no counted row has adds no point.
        rows = (predicted != points.before(predicted)).nonzero()[0]
        if len(rows) == len(predicted):
            return hits, predicted, points
        return hits[rows], predicted[rows], points.chosen(torch.from_numpy(rows))

    def _curve(self, position: int) -> _Curve:
        """Sort the rows of each client by their probability of a class."""
        score = self.probabilities[:, position].detach()
        order = self._order(score).cpu().numpy()
        ordered = score.cpu().numpy()[order]
        is_end = np.append(ordered[1:] != ordered[:-1], True)
        if len(self.clients) > 1:
            is_end[self.clients.ends.numpy()] = True
        ends = is_end.nonzero()[0]
        positive = (self.y.cpu().numpy()[order] == position).astype(np.int64)
        return _Curve(order, positive, ends, self.clients.chosen(torch.from_numpy(ends)))

    def _order(self, score: Tensor) -> Tensor:
        """Return the rows of one client after the other, each from the highest score to the
        lowest.
        """
        clients = self.clients
        if len(clients) == 1:
            return score.argsort(descending=True)
        if clients.rows < _SORTED_ALONE * len(clients):
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
    2001), over the classes present in the split: bit for bit that of scikit-learn, whose checks
    take longer than the score of a small client. With two classes it is the AUROC; NaN if fewer are
    present.

    Args:
        probabilities: (n, C) float in [0, 1], each row sums to 1.
        target: (n,) int64 in [−1, C); rows with −1 belong to no pair.
        weight: (n,) how much each row counts; once if None. It is not defined for more than two
            classes.

    Example:
        >>> auroc_one_versus_one(torch.eye(4)[[0, 1, 3]], torch.tensor([0, 1, 3]))
        1.0
    """
    labelled = target >= 0
    present = torch.unique(target[labelled]).tolist()
    if len(present) < 2 or not torch.isfinite(probabilities).all():
        return math.nan
    selected = restrict(double_on_cpu(probabilities[labelled]), present).numpy()
    labels = np.searchsorted(present, target[labelled].cpu().numpy())
    if weight is None and len(present) == 2:
        return _auroc_of_two(labels == 1, selected[:, 1])
    if weight is None:
        return float(np.average(_auroc_of_pairs(labels, selected)))
    if len(present) > 2:
        return math.nan
    from sklearn.metrics import roc_auc_score

    weights = weight[labelled].cpu().numpy()
    return float(roc_auc_score(labels, selected[:, 1], sample_weight=weights))


def _auroc_of_pairs(labels: np.ndarray, probabilities: np.ndarray) -> list[float]:
    """Return the AUROC among the rows of two classes, for each pair: the mean of those by the
    probabilities of either.
    """
    scores = []
    for first, second in combinations(range(probabilities.shape[1]), 2):
        rows = (labels == first) | (labels == second)
        by_first = _auroc_of_two(labels[rows] == first, probabilities[rows, first])
        by_second = _auroc_of_two(labels[rows] == second, probabilities[rows, second])
        scores.append((by_first + by_second) / 2)
    return scores


def _auroc_of_two(positive: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the curve of hits over false alarms, (n,) bool and float."""
    order = np.argsort(-scores, kind="stable")
    last_of_ties = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(positive[order], dtype=np.float64)[last_of_ties]
    alarms = 1 + last_of_ties - hits
    if len(hits) > 2:
        # Points on a straight line are left out as scikit-learn does, for the same bits.
        is_corner = np.ones(len(hits), bool)
        is_corner[1:-1] = (np.diff(hits, 2) != 0) | (np.diff(alarms, 2) != 0)
        hits = hits[is_corner]
        alarms = alarms[is_corner]
    y = np.append(0.0, hits) / hits[-1]
    x = np.append(0.0, alarms) / alarms[-1]
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2.0).sum())
