"""Scores of a classifier, whose convention :mod:`fedlit.tasks.classification` states."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedlit.precision import double_on_cpu, in_double
from fedlit.tasks.weighing import weighted_mean


class ClassScorer:
    """Computes scores from probabilities (n, C) and class positions (n,). It sorts the rows by
    probability once for each class.
    """

    def __init__(self, probabilities: Tensor, y: Tensor) -> None:
        self.probabilities = probabilities
        self.y = y
        self.cells = confusion_cells(probabilities, y)
        self._curves: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def __call__(self, counts: Tensor | None = None) -> dict[str, Tensor]:
        """Return the scores by name, see :meth:`fedlit.tasks.base.Task.scorer`."""
        width = self.probabilities.shape[1]
        nan = self.probabilities.new_tensor(math.nan)
        if counts is not None and counts.dtype.is_floating_point:
            counts = in_double(counts)
        confusion = self._confusion(counts)
        hits = confusion.diagonal()
        support = confusion.sum(1)[:width]
        predicted = confusion.sum(0)
        present = support > 0
        rows = confusion.sum()
        either = support + predicted
        f1 = 2 * hits / torch.where(either > 0, either, 1)
        weighted_f1 = nan
        if present.any():
            weighted_f1 = ((f1 * support)[present].sum() / support.sum()).float()
        averaged = list(range(width))
        if width == 2:
            averaged = [1]
        f1_of_classes = nan
        if present[averaged].any():
            f1_of_classes = f1[averaged][present[averaged]].mean()
        curves = [self._areas(c, counts) for c in averaged if 0 < support[c] < rows]
        auroc = nan
        auprc = nan
        if curves:
            auroc = torch.stack([area for area, _ in curves]).mean()
            auprc = torch.stack([area for _, area in curves]).mean()
        return {
            "auroc": auroc,
            "auprc": auprc,
            "balanced_accuracy": (hits / support)[present].mean().float(),
            "accuracy": (hits.sum() / rows).float(),
            "f1": f1_of_classes.float(),
            "weighted_f1": weighted_f1,
            "classes": torch.full_like(nan, len(curves)),
        }

    def _confusion(self, counts: Tensor | None) -> Tensor:
        """Return the weights of rows by true class, the last for labels that are no class, and
        predicted class, (C + 1, C) float64.
        """
        width = self.probabilities.shape[1]
        weights = None
        if counts is not None:
            weights = double_on_cpu(counts)
        cells = torch.bincount(self.cells, weights, minlength=(width + 1) * width)
        return double_on_cpu(cells).view(-1, width)

    def _areas(self, position: int, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the areas under the ROC curve and under the precision–recall steps of one class
        versus the rest. They are computed in whole numbers up to the last division, so that they do
        not depend on the order of equal scores.
        """
        if position not in self._curves:
            score, order = self.probabilities[:, position].sort(descending=True)
            ends = functional.pad(
                torch.where(score[1:] != score[:-1])[0], [0, 1], value=len(score) - 1
            )
            # The curve has a point at the last one of equal scores.
            self._curves[position] = order, (self.y[order] == position).long(), ends
        curve = self._curves[position]
        if counts is None:
            counts = torch.ones_like(curve[1])
        order, positive, ends = (tensor.to(counts.device) for tensor in curve)
        ordered_counts = counts.index_select(0, order)
        hits = (ordered_counts * positive).cumsum(0).index_select(0, ends)
        predicted = ordered_counts.cumsum(0).index_select(0, ends)
        # A score that no counted row has adds no point to the curve: its numbers repeat those of the
        # score above, whose point they overwrite.
        step = (predicted.diff(prepend=predicted.new_zeros(1)) != 0).cumsum(0)
        points = int(step[-1]) + 1
        hits = hits.new_zeros(points).scatter_(0, step, hits)
        predicted = predicted.new_zeros(points).scatter_(0, step, predicted)
        missed = predicted - hits
        recall = hits / hits[-1]
        auroc = torch.trapz(recall, missed / missed[-1])
        backwards = recall.flip(0)
        precision = (hits[1:] / predicted[1:]).flip(0)
        return auroc.float(), -torch.sum(backwards.diff() * precision).float()


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
