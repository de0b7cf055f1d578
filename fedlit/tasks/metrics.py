"""Classification metrics under one stated convention.

Per client and split, on probabilities. One versus rest, macro over the classes that the *client's training split
has*; a class without a positive and a negative row in the evaluated split has no AUROC or AUPRC and is left out of
the mean, and the number of classes averaged is reported. With two classes AUROC, AUPRC and F1 are those of the
positive (second) class. Balanced accuracy is the mean recall, and F1 the mean, over the classes present in the
split; weighted F1 is their mean weighted by rows, also where there are two classes. Exact, not binned. A row whose
label the client has never seen in training counts as a negative of every class and as wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import binary_auroc, binary_average_precision, multiclass_confusion_matrix

from fedlit.spec import Site

__all__ = [
    "LOWER_IS_BETTER",
    "SCORES",
    "ClientMetrics",
    "auroc_one_versus_one",
    "classification_metrics",
    "confusion_matrix",
    "restrict",
    "summarise",
]

SCORES = ("loss", "auroc", "auprc", "balanced_accuracy", "accuracy", "f1", "weighted_f1")
LOWER_IS_BETTER = frozenset({"loss"})


def confusion_matrix(probabilities: Tensor, target: Tensor) -> Tensor:
    """Rows: true class, columns: predicted class (of largest probability, the first among equals).

    Shape:
        - probabilities: (n, C), float
        - target: (n,), int64 in [−1, C); −1 is a label outside the C classes
        - output: (C + 1, C), int64; the last row holds the labels outside

    Example:
        >>> confusion_matrix(torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([0, 1, -1]))
        tensor([[1, 0],
                [0, 1],
                [1, 0]])
    """
    classes = probabilities.shape[1]
    outside = torch.where(target < 0, classes, target)
    matrix = multiclass_confusion_matrix(probabilities.argmax(1), outside, num_classes=classes + 1, validate_args=False)
    return matrix[:, :classes]


def restrict(probabilities: Tensor, columns: Sequence[int]) -> Tensor:
    """Probabilities of some classes only, renormalised.

    Shape:
        - probabilities: (n, C), float in [0, 1]
        - output: (n, len(columns)), each row sums to 1

    Example:
        >>> restrict(torch.tensor([[0.2, 0.6, 0.2]]), [0, 2])
        tensor([[0.5000, 0.5000]])
    """
    mine = probabilities[:, list(columns)]
    return mine / mine.sum(1, keepdim=True).clamp_min(torch.finfo(mine.dtype).tiny)


def classification_metrics(probabilities: Tensor, target: Tensor) -> dict[str, Tensor]:
    """AUROC, AUPRC, balanced accuracy, accuracy, F1 and weighted F1 of one client on one split, by the convention on
    top of this module.

    Args:
        probabilities: (n, C) float in [0, 1], each row sums to 1; C counts the classes of the client's training split.
        target: (n,) int64 in [−1, C); −1 for a label outside the C classes.

    Returns:
        Scalars by name, with ``classes``, the number of classes that AUROC and AUPRC average (1 of two classes
        counts as 1). What is not defined (one class only in the split, probabilities that are not finite) is NaN.

    Example:
        A perfect predictor on a split that has two of four classes scores 1, not 0.5:

        >>> scores = classification_metrics(torch.eye(4)[[0, 1, 1]], torch.tensor([0, 1, 1]))
        >>> {name: value.item() for name, value in scores.items() if name != "auprc"}
        {'auroc': 1.0, 'balanced_accuracy': 1.0, 'accuracy': 1.0, 'f1': 1.0, 'weighted_f1': 1.0, 'classes': 2.0}
    """
    names = ("auroc", "auprc", "balanced_accuracy", "accuracy", "f1", "weighted_f1")
    nan = probabilities.new_tensor(math.nan)
    if not len(target) or not torch.isfinite(probabilities).all():
        return {**dict.fromkeys(names, nan), "classes": torch.zeros_like(nan)}
    classes = probabilities.shape[1]
    confusion = confusion_matrix(probabilities, target).cpu().to(torch.float64)
    hits, support, predicted = confusion.diagonal(), confusion.sum(1)[:classes], confusion.sum(0)
    present = support > 0
    f1 = 2 * hits / (support + predicted).clamp_min(1)
    ranked = [c for c in ([1] if classes == 2 else range(classes)) if 0 < support[c] < len(target)]
    one_versus_rest = [(probabilities[:, c], (target == c).long()) for c in ranked]
    auroc = [binary_auroc(score, positive, validate_args=False) for score, positive in one_versus_rest]
    auprc = [binary_average_precision(score, positive, validate_args=False) for score, positive in one_versus_rest]
    return {
        "auroc": torch.stack(auroc).mean() if auroc else nan,
        "auprc": torch.stack(auprc).mean() if auprc else nan,
        "balanced_accuracy": (hits / support)[present].mean().float(),
        "accuracy": (hits.sum() / len(target)).float(),
        "f1": (f1[1] if classes == 2 and present[1] else nan if classes == 2 else f1[present].mean()).float(),
        "weighted_f1": ((f1 * support)[present].sum() / support.sum()).float() if present.any() else nan,
        "classes": torch.full_like(nan, len(ranked)),
    }


def auroc_one_versus_one(probabilities: Tensor, target: Tensor) -> float:
    """Mean over pairs of classes of the AUROC among the rows of the two (Hand and Till 2001), by scikit-learn, over the
    classes present in the split; with two classes the AUROC. NaN where fewer are present.

    Args:
        probabilities: (n, C) float in [0, 1], each row sums to 1.
        target: (n,) int64 in [−1, C); rows of −1 belong to no pair.

    Example:
        >>> auroc_one_versus_one(torch.eye(4)[[0, 1, 3]], torch.tensor([0, 1, 3]))
        1.0
    """
    from sklearn.metrics import roc_auc_score

    known = target >= 0
    present = torch.unique(target[known]).tolist()
    if len(present) < 2 or not torch.isfinite(probabilities).all():
        return math.nan
    mine = restrict(probabilities[known].cpu().double(), present).numpy()
    rank = {position: place for place, position in enumerate(present)}
    labels = [rank[position] for position in target[known].tolist()]
    if len(present) == 2:
        return float(roc_auc_score(labels, mine[:, 1]))
    return float(roc_auc_score(labels, mine, multi_class="ovo"))


class ClientMetrics(Metric):
    """Collects a site's probabilities and labels over batches and scores them.

    A model with outputs for classes that the site does not have is restricted to the site's classes and renormalised
    first, and its loss is the cross-entropy of what remains.

    Args:
        site: whose classes count.

    Example:
        >>> metrics = ClientMetrics(Site("a", (0, 2), {}))
        >>> metrics.update(torch.tensor([[0.2, 0.7, 0.1], [0.1, 0.7, 0.2]]), torch.tensor([0, 2]), torch.tensor(0.5))
        >>> metrics.compute()["accuracy"].item()
        1.0
    """

    full_state_update = False
    probabilities: list[Tensor]
    target: list[Tensor]
    loss: list[Tensor]

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.columns = list(site.classes)
        for name in ("probabilities", "target", "loss"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, probabilities: Tensor, target: Tensor, loss: Tensor) -> None:
        """Add a batch.

        Args:
            probabilities: (n, outputs' classes) float.
            target: (n,) int64, positions among the outputs' classes, −1 outside.
            loss: scalar, mean over the batch's rows that have a label the client knows; NaN where there is none.
        """
        known = (target >= 0).sum()
        position = torch.full((probabilities.shape[1] + 1,), -1, dtype=torch.long, device=target.device)
        position[self.columns] = torch.arange(len(self.columns), device=target.device)
        mine = restrict(probabilities, self.columns)
        target = position[target]  # position[-1] is -1
        if (
            len(self.columns) < probabilities.shape[1]
        ):  # the model's own loss counts classes that the site does not have
            known = (target >= 0).sum()
            loss = -mine[target >= 0, target[target >= 0]].clamp_min(torch.finfo(mine.dtype).tiny).log().mean()
        self.probabilities.append(mine)
        self.target.append(target)
        self.loss.append(torch.stack([torch.where(known > 0, loss.float() * known, 0.0), known.float()]))

    def compute(self) -> dict[str, Tensor]:
        """Scalars by name: ``loss`` and what :func:`classification_metrics` gives."""
        # on the CPU: some accelerators have no float64
        total, known = torch.stack(self.loss).cpu().double().sum(0)
        return {
            "loss": (total / known).float(),
            **classification_metrics(torch.cat(self.probabilities), torch.cat(self.target)),
        }

    def compute_once(self) -> dict[str, float]:
        """Scores that take too long for every epoch, for the test split: :func:`auroc_one_versus_one`."""
        return {"auroc_ovo": auroc_one_versus_one(torch.cat(self.probabilities), torch.cat(self.target))}

    def confusion(self) -> Tensor:
        """:func:`confusion_matrix` over all batches."""
        return confusion_matrix(torch.cat(self.probabilities), torch.cat(self.target))


def summarise(scores: Mapping[str, Mapping[str, float]], sites: Iterable[Site]) -> dict[str, dict[str, Any]]:
    """Mean over sites and the worst site, per metric; sites without a value are left out of both.

    Where a site's predictions are not finite, there is no mean, and that site is the worst.

    Args:
        scores: site name → metric → value.
        sites: the sites; a union of others does not count.

    Returns:
        ``{"mean": {metric: value}, "worst": {metric: value}, "worst_client": {metric: name}, "counted": {metric:
        number of sites}}``.

    Example:
        >>> sites = [Site("a", (0, 1), {}), Site("b", (0, 1), {}), Site("c", (0, 1), {})]
        >>> summarise({"a": {"auroc": 0.75}, "b": {"auroc": 0.25}, "c": {"auroc": float("nan")}}, sites)
        {'mean': {'auroc': 0.5}, 'worst': {'auroc': 0.25}, 'worst_client': {'auroc': 'b'}, 'counted': {'auroc': 2}}
    """
    names = [site.name for site in sites if not site.union and site.name in scores]
    # A share of right answers is undefined only where predictions are not finite: leaving such a site out of the mean
    # would make a federation look better for the client that it lost.
    lost = [name for name in names if math.isnan(scores[name].get("accuracy", 0.0))]
    summary: dict[str, dict[str, Any]] = {"mean": {}, "worst": {}, "worst_client": {}, "counted": {}}
    for metric in dict.fromkeys(metric for name in names for metric in scores[name]):
        values = {name: scores[name][metric] for name in names if not math.isnan(scores[name].get(metric, math.nan))}
        worst = (max if metric in LOWER_IS_BETTER else min)(values, key=values.__getitem__, default=None)
        worst = lost[0] if lost else worst
        summary["mean"][metric] = sum(values.values()) / len(values) if values and not lost else math.nan
        summary["worst"][metric] = values.get(worst, math.nan) if worst is not None else math.nan
        summary["worst_client"][metric] = worst
        summary["counted"][metric] = len(values)
    return summary
