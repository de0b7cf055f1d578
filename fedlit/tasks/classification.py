"""Classification, and its metrics under one convention, which is stated here.

Metrics are computed for each client and split, on probabilities. They are one versus rest,
macro-averaged over the classes in the *client's training split*; a class without a positive and a
negative row in the evaluated split has no AUROC or AUPRC and is left out of the mean, and the
number of averaged classes is reported. With two classes, AUROC, AUPRC and F1 are those of the
positive (second) class. Balanced accuracy is the mean recall, and F1 the mean, over the classes
present in the split; weighted F1 is their mean weighted by rows, also with two classes. All are
exact, not binned. A row whose label the client has never seen in training counts as a negative of
every class and as wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError, Told, expect
from fedlit.outcomes.base import Family, Outcome
from fedlit.outcomes.labels import OneLabel
from fedlit.tasks.base import LOSS, Score, Scorer, Task, labels_of, weighted_mean
from fedlit.tasks.go_alone import CLASSIFIERS, GoAlone

if TYPE_CHECKING:
    import pandas as pd

_PROBABILITY = "probability_"


@dataclass(frozen=True)
class Classification(Task):
    """Prediction of one of several labels.

    Attributes:
        classes: the labels, as the source spells them, in the order of the class indices. If there
            are two, the second is the positive class, and the network has one output.
        class_rows: the number of training rows of each class.

    Example:
        A perfect predictor on a split that has two of four classes scores 1, not 0.5:

        >>> task = Classification(("a", "b", "c", "d"))
        >>> scores = task.evaluate(torch.eye(4)[[0, 1, 1]], torch.tensor([0, 1, 1]))
        >>> {name: value.item() for name, value in scores.items() if name != "auprc"}
        {'auroc': 1.0, 'balanced_accuracy': 1.0, 'accuracy': 1.0, 'f1': 1.0, 'weighted_f1': 1.0,
        'classes': 2.0}
        >>> task.evaluate(torch.eye(4)[[0, 1, 1]], torch.tensor([0, 1, 0]), torch.tensor([1, 1, 2]))["accuracy"].item()
        0.5
    """

    classes: tuple[Any, ...]
    class_rows: tuple[int, ...] = ()

    name: ClassVar[str] = "classification"
    outcome_type: ClassVar[type[Outcome]] = OneLabel
    study_scores: ClassVar[tuple[str, ...]] = ("auroc", "balanced_accuracy", "auprc")
    scores: ClassVar[tuple[Score, ...]] = (
        Score("auroc", "AUROC", low=0.0, high=1.0),
        Score("auprc", "AUPRC", low=0.0, high=1.0),
        Score("balanced_accuracy", "Balanced accuracy", low=0.0, high=1.0),
        Score("accuracy", "Accuracy", low=0.0, high=1.0, always=True),
        Score("f1", "F1", low=0.0, high=1.0),
        Score("weighted_f1", "Weighted F1", low=0.0, high=1.0),
        Score("auroc_ovo", "AUROC, one versus one", low=0.0, high=1.0, test_only=True),
        Score(
            "log_loss", "Log loss", higher_is_better=False, percent=False, low=0.0, test_only=True
        ),
        Score("classes", "Classes averaged", percent=False, low=0.0, context=True),
        LOSS,
    )
    go_alone: ClassVar[Mapping[str, GoAlone]] = CLASSIFIERS

    # ------------------------------------------------------------------ the target

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None
    ) -> dict[str, Any]:
        """Return the sorted labels; if there are two, the positive one is last."""
        subject = f"target {target.name!r}"
        types = _types(target)
        if len(types) > 1:
            mixture = " and ".join(f"{type_} ({label!r})" for type_, label in types.items())
            raise DataError(
                f"{subject}: expected labels of one type, found a mixture of {mixture}; convert the "
                "column"
            )
        unsupported = types.keys() - {"true/false", "numbers", "text"}
        expected = "numbers, text or true/false as labels"
        expect(
            not unsupported,
            subject,
            expected,
            Told(", ".join(unsupported)),
            "convert the column",
            DataError,
        )
        labels = _sorted_labels(subject, map(plain, target.unique().tolist()), positive)
        return {
            "task": cls.name,
            "target": str(target.name),
            "labels": labels,
            "positive": plain(positive),
        }

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the task with the labels of all clients."""
        subject = f"target {facts[client]['target']!r}"
        first = dict[str, str]()
        for name, client_facts in facts.items():
            first.setdefault(type_of(client_facts["labels"][0]), name)
        if len(first) > 1:
            mixture = " and ".join(
                f"{type_} ({', '.join(map(repr, facts[name]['labels'][:3]))}) at {name!r}"
                for type_, name in first.items()
            )
            raise DataError(
                f"{subject}: expected labels of one type at all clients, found a mixture: {mixture}; "
                "write the same labels in both tables, or leave classes apart with data.align: "
                "none or features"
            )
        positives = {client_facts["positive"] for client_facts in facts.values()} - {None}
        positive = positives.pop() if len(positives) == 1 else None
        union = chain.from_iterable(client_facts["labels"] for client_facts in facts.values())
        classes = _sorted_labels(subject, union, positive)
        if len(classes) < 2:
            raise DataError(
                f"client {client!r}: expected at least two classes in its training rows, found one "
                f"({classes[0]!r}); a classifier cannot be trained on it alone. Leave the client "
                "out, or give all clients the common classes with align: classes"
            )
        return cls(tuple(classes))

    def encode(self, target: pd.Series) -> Tensor:
        """Return the positions of labels among the classes, (n,) int64; −1 for a label that is not
        one of them.
        """
        expected = type_of(self.classes[0])
        types = _types(target)
        if unexpected := [label for type_, label in types.items() if type_ != expected]:
            raise DataError(
                f"target {target.name!r}: expected {expected} as labels, found {unexpected[0]!r}; write "
                f"them as those that were trained on ({', '.join(map(repr, self.classes[:3]))})"
            )
        index = {label: position for position, label in enumerate(self.classes)}
        return torch.tensor(target.map(index).fillna(-1).to_numpy(np.int64))

    def known(self, y: Tensor) -> Tensor:
        """Return which labels are among the classes."""
        return y >= 0

    # ------------------------------------------------------------------ outputs

    @property
    def outputs(self) -> int:
        """A logit for each class, or a single one (for the positive class) if there are two."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The labels; only the positive one if there are two."""
        return tuple(map(str, self.classes if self.outputs > 1 else self.classes[-1:]))

    @property
    def described(self) -> dict[str, Any]:
        """The labels."""
        return {"classes": list(self.classes)}

    @property
    def fingerprint(self) -> str:
        """Nothing, because only the classes were learnt."""
        return ""

    @property
    def glm(self) -> Family:
        """A logistic regression."""
        return "logistic"

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean cross-entropy. Each row has the weight of its class times its own, and
        weights are scaled to sum to the number of rows.
        """
        if rows is not None:
            row_weights = rows if weight is None else rows * weight[y]
            if outputs.shape[1] > 1:
                return weighted_mean(
                    functional.cross_entropy(outputs, y, reduction="none"), row_weights
                )
            true = y.to(outputs.dtype)
            return weighted_mean(
                functional.binary_cross_entropy_with_logits(outputs[:, 0], true, reduction="none"),
                row_weights,
            )
        if outputs.shape[1] > 1:
            return functional.cross_entropy(outputs, y, weight)
        if weight is not None:
            weight = weight[y]
            weight = weight / weight.mean()  # normalised as cross_entropy does it
        return functional.binary_cross_entropy_with_logits(
            outputs[:, 0], y.to(outputs.dtype), weight
        )

    def predict(self, outputs: Tensor) -> Tensor:
        """Return probabilities (n, classes) float32; each row sums to 1."""
        outputs = outputs.float()
        if outputs.shape[1] == 1:
            positive = outputs[:, 0].sigmoid()
            return torch.stack([1 - positive, positive], 1)
        return outputs.softmax(1)

    def of_members(self, outputs: Tensor) -> Tensor:
        """See :class:`~fedlit.tasks.base.Task`."""
        outputs = outputs.float()
        members = math.log(outputs.shape[1])
        if outputs.shape[2] == 1:  # log of the mean σ(z), less that of the mean σ(−z)
            return functional.logsigmoid(outputs).logsumexp(1) - functional.logsigmoid(
                -outputs
            ).logsumexp(1)
        return outputs.log_softmax(2).logsumexp(1) - members

    @property
    def input_width(self) -> int:
        """The number of probabilities, one for each class."""
        return max(2, self.outputs)

    # ------------------------------------------------------------------ scores

    def narrow(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        loss: Tensor,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Restrict predictions to the site's classes, and renormalise them. If the model has
        outputs for other classes, the loss is the cross-entropy of the renormalised predictions,
        because the model's loss also counts classes that the site does not have.
        """
        position = torch.full((predictions.shape[1] + 1,), -1, dtype=torch.long, device=y.device)
        position[list(classes)] = torch.arange(len(classes), device=y.device)
        # position[-1] is -1
        narrowed = restrict(predictions, classes)
        y = position[y]
        if len(classes) < predictions.shape[1]:
            losses = -narrowed[y >= 0, y[y >= 0]].clamp_min(torch.finfo(narrowed.dtype).tiny).log()
            loss = weighted_mean(losses, None if rows is None else rows[y >= 0])
        return narrowed, y, loss

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        return _Scorer(predictions, y)

    def evaluate_once(
        self, predictions: Tensor, y: Tensor, counts: Tensor | None = None
    ) -> dict[str, float]:
        """Return :func:`auroc_one_versus_one`, and the mean of −log p of the true class, over rows
        with a known label. If p is below 1e-6, as predictions of forests may be, it counts as 1e-6.
        """
        return {
            "auroc_ovo": auroc_one_versus_one(predictions, y, counts),
            "log_loss": log_loss(predictions, y, counts),
        }

    def confusion(self, predictions: Tensor, y: Tensor) -> Tensor:
        """Return counts (classes + 1, classes) int64. The class with the largest probability is
        predicted, the first among equals.

        Example:
            >>> Classification((0, 1)).confusion(
            ...     torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([0, 1, -1])
            ... )
            tensor([[1, 0],
                    [0, 1],
                    [1, 0]])
        """
        width = predictions.shape[1]
        return torch.bincount(_cells(predictions, y), minlength=(width + 1) * width).view(-1, width)

    def written(self, y: Tensor) -> dict[str, Any]:
        """Return ``target``, None if it is not among the classes."""
        # of type object, numbers stay what they are beside a None
        return {"target": np.array([*self.classes, None], object)[y.numpy()]}

    @classmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return (task, predictions, y), with labels as text. A class whose probability is missing
        in every row does not belong to the client.
        """
        # where no predictions are finite, of whatever classes
        labels = labels_of(frame, _PROBABILITY) or labels_of(frame.fillna(0), _PROBABILITY)
        predictions = frame[[f"{_PROBABILITY}{label}" for label in labels]].to_numpy(np.float32)
        task = cls(tuple(labels))
        return task, torch.tensor(predictions), task.encode(frame["target"])


class _Scorer:
    """Computes scores from probabilities (n, C) and class positions (n,). It sorts the rows by
    probability once for each class.
    """

    def __init__(self, probabilities: Tensor, y: Tensor) -> None:
        self.probabilities = probabilities
        self.y = y
        self.cells = _cells(probabilities, y)
        self._curves: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def __call__(self, counts: Tensor | None = None) -> dict[str, Tensor]:
        width = self.probabilities.shape[1]
        nan = self.probabilities.new_tensor(math.nan)
        if counts is not None and counts.dtype.is_floating_point:
            counts = counts.double()
        weights = None if counts is None else counts.cpu().double()
        confusion = (
            torch.bincount(self.cells, weights, minlength=(width + 1) * width)
            .double()
            .view(-1, width)
        )
        hits = confusion.diagonal()
        support = confusion.sum(1)[:width]
        predicted = confusion.sum(0)
        present = support > 0
        rows = confusion.sum()
        either = support + predicted
        f1 = 2 * hits / torch.where(either > 0, either, 1)
        if width == 2:
            f1_of_classes = f1[1] if present[1] else nan
        else:
            f1_of_classes = f1[present].mean()
        ranked = [1] if width == 2 else range(width)
        curves = [self._areas(c, counts) for c in ranked if 0 < support[c] < rows]
        auroc, auprc = (
            (torch.stack(areas).mean() for areas in zip(*curves, strict=True))
            if curves
            else (nan, nan)
        )
        return {
            "auroc": auroc,
            "auprc": auprc,
            "balanced_accuracy": (hits / support)[present].mean().float(),
            "accuracy": (hits.sum() / rows).float(),
            "f1": f1_of_classes.float(),
            "weighted_f1": ((f1 * support)[present].sum() / support.sum()).float()
            if present.any()
            else nan,
            "classes": torch.full_like(nan, len(curves)),
        }

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
            # ends: the last of equal scores
            self._curves[position] = order, (self.y[order] == position).long(), ends
        order, positive, ends = self._curves[position]
        counts = torch.ones_like(positive) if counts is None else counts
        ordered_counts = counts.index_select(0, order)
        hits = (ordered_counts * positive).cumsum(0).index_select(0, ends)
        predicted = ordered_counts.cumsum(0).index_select(0, ends)
        # A score that no counted row has is none: it gets the place of the one above, whose numbers
        # it repeats.
        step = (predicted.diff(prepend=predicted.new_zeros(1)) != 0).cumsum(0)
        hits, predicted = (
            x.new_zeros(int(step[-1]) + 1).scatter_(0, step, x) for x in (hits, predicted)
        )
        missed = predicted - hits
        recall = hits / hits[-1]
        auroc = torch.trapz(recall, missed / missed[-1])
        backwards = recall.flip(0)
        precision = (hits[1:] / predicted[1:]).flip(0)
        return auroc.float(), -torch.sum(backwards.diff() * precision).float()


def _cells(probabilities: Tensor, y: Tensor) -> Tensor:
    """Return the cell of the confusion matrix, counted row by row, for each row of data, (n,) int64
    on the CPU.
    """
    width = probabilities.shape[1]
    return (torch.where(y < 0, width, y) * width + probabilities.argmax(1)).cpu()


def type_of(label: Any) -> str:
    """Return the type of a label in words: ``true/false``, ``numbers``, ``text``, or the name of
    the Python type.
    """
    if isinstance(label, bool | np.bool_):
        return "true/false"
    if isinstance(label, Real):
        return "numbers"
    return "text" if isinstance(label, str) else type(label).__name__


def _types(target: pd.Series) -> dict[str, Any]:
    """Map each type to its first label. Python considers True equal to 1, so types are counted
    separately even for equal labels.
    """
    labels = (
        target.dropna().tolist() if target.dtype == object else target.dropna().unique().tolist()
    )
    first = {type(label): label for label in reversed(labels)}
    return {type_of(label): label for label in first.values()}


def plain(label: Any) -> Any:
    """Return a label as a Python value."""
    return label.item() if isinstance(label, np.generic) else label


def _sorted_labels(subject: str, labels: Iterable[Any], positive: Any) -> list[Any]:
    """Return each label once, sorted; if there are two, the positive one is last."""
    distinct = sorted(dict.fromkeys(labels))
    if len(distinct) == 2 and positive is not None:
        if positive not in distinct:
            raise DataError(
                f"{subject}: expected the positive label to be one of {distinct}, found {positive!r}"
            )
        distinct.sort(key=lambda label: bool(label == positive))
    return distinct


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
    true = (
        probabilities[labelled].gather(1, target[labelled].long()[:, None]).double().clamp_min(1e-6)
    )
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
    selected = restrict(probabilities[labelled].cpu().double(), present).numpy()
    rank = {position: index for index, position in enumerate(present)}
    labels = [rank[position] for position in target[labelled].tolist()]
    weights = None if weight is None else weight[labelled].cpu().numpy()
    if len(present) == 2:
        return float(roc_auc_score(labels, selected[:, 1], sample_weight=weights))
    if weights is not None:
        return math.nan
    return float(roc_auc_score(labels, selected, multi_class="ovo"))
