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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError
from fedlit.outcomes.base import Columns, Family, Outcome
from fedlit.outcomes.labels import OneLabel
from fedlit.tasks.base import Facts, Scorer, Task
from fedlit.tasks.baselines import CLASSIFIERS
from fedlit.tasks.class_scores import (
    ClassScorer,
    auroc_one_versus_one,
    confusion_cells,
    log_loss,
    restrict,
)
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.label_values import plain, sorted_labels, type_of, types_of
from fedlit.tasks.scores import LOSS, Score
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import mean_logit, weighted_mean
from fedlit.types import Label

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

    classes: tuple[Label, ...]
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
        cls, target: pd.Series, settings: Mapping[str, str], positive: Label | None = None
    ) -> Facts:
        """Return the sorted labels; if there are two, the positive one is last."""
        subject = f"target {target.name!r}"
        types = types_of(target)
        if len(types) > 1:
            mixture = " and ".join(f"{type_} ({label!r})" for type_, label in types.items())
            raise DataError(
                f"{subject}: expected labels of one type, found a mixture of {mixture}; convert the "
                "column"
            )
        unsupported = types.keys() - {"true/false", "numbers", "text"}
        if unsupported:
            raise DataError(
                f"{subject}: expected numbers, text or true/false as labels, found "
                f"{', '.join(unsupported)}; convert the column"
            )
        labels = sorted_labels(subject, map(plain, target.unique().tolist()), positive)
        return {
            "task": cls.name,
            "target": str(target.name),
            "labels": labels,
            "positive": plain(positive),
        }

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
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
        positive = None
        if len(positives) == 1:
            positive = positives.pop()
        union = chain.from_iterable(client_facts["labels"] for client_facts in facts.values())
        classes = sorted_labels(subject, union, positive)
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
        types = types_of(target)
        if unexpected := [label for type_, label in types.items() if type_ != expected]:
            raise DataError(
                f"target {target.name!r}: expected {expected} as labels, found {unexpected[0]!r}; write "
                f"them as those that were trained on ({', '.join(map(repr, self.classes[:3]))})"
            )
        index = {label: position for position, label in enumerate(self.classes)}
        positions = [index.get(label, -1) for label in target.tolist()]
        return torch.tensor(positions, dtype=torch.int64)

    def known(self, y: Tensor) -> Tensor:
        """Return which labels are among the classes."""
        return y >= 0

    # ------------------------------------------------------------------ outputs

    @property
    def outputs(self) -> int:
        """A logit for each class, or a single one (for the positive class) if there are two."""
        if len(self.classes) == 2:
            return 1
        return len(self.classes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The labels; only the positive one if there are two."""
        return tuple(map(str, self.classes[-self.outputs :]))

    @property
    def described(self) -> Facts:
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
            row_weights = rows
            if weight is not None:
                row_weights = rows * weight[y]
            return weighted_mean(self.row_losses(outputs, y), row_weights)
        if outputs.shape[1] > 1:
            return functional.cross_entropy(outputs, y, weight)
        if weight is not None:
            weight = weight[y]
            weight = weight / weight.mean()  # normalised as cross_entropy does it
        return functional.binary_cross_entropy_with_logits(
            outputs[:, 0], y.to(outputs.dtype), weight
        )

    def row_losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy of each row (n,)."""
        if outputs.shape[1] > 1:
            return functional.cross_entropy(outputs, y, reduction="none")
        true = y.to(outputs.dtype)
        return functional.binary_cross_entropy_with_logits(outputs[:, 0], true, reduction="none")

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
        if outputs.shape[2] == 1:
            return mean_logit(outputs)
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
        narrowed, y = _of_classes(classes, predictions, y)
        if len(classes) < predictions.shape[1]:
            labelled = y >= 0
            if rows is not None:
                rows = rows[labelled]
            loss = weighted_mean(_losses_of(narrowed[labelled], y[labelled]), rows)
        return narrowed, y, loss

    def narrow_many(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        losses: Tensor,
        batches: Segments,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`~fedlit.tasks.base.Task`."""
        narrowed, y = _of_classes(classes, predictions, y)
        if len(classes) < predictions.shape[1]:
            labelled = (y >= 0).nonzero()[:, 0]
            losses = batches.chosen(labelled).mean(_losses_of(narrowed[labelled], y[labelled]))
        return narrowed, y, losses

    @classmethod
    def evaluate_many(
        cls,
        tasks: Sequence[Classification],
        predictions: Tensor,
        y: Tensor,
        clients: Segments,
    ) -> dict[str, Tensor]:
        """See :class:`~fedlit.tasks.base.Task`."""
        return ClassScorer(predictions, y, clients)()

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        score = ClassScorer(predictions, y)
        return lambda counts: {name: value[0] for name, value in score(counts).items()}

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
        return torch.bincount(confusion_cells(predictions, y), minlength=(width + 1) * width).view(
            -1, width
        )

    def written(self, y: Tensor) -> Columns:
        """Return ``target``, None if it is not among the classes."""
        # In an array of objects, None does not turn numbers into floats.
        return {"target": np.array([*self.classes, None], object)[y.numpy()]}

    def read(self, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return the task, float32 probabilities, and the target."""
        columns = [f"{_PROBABILITY}{label}" for label in self.classes]
        probabilities = np.ascontiguousarray(frame[columns].to_numpy(np.float32))
        positions = {str(label): position for position, label in enumerate(self.classes)}
        y = frame["target"].map(str, na_action="ignore").map(positions).fillna(-1)
        return self, torch.from_numpy(probabilities), torch.tensor(y.to_numpy(np.int64))


def _of_classes(classes: Sequence[int], predictions: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the renormalised predictions of some classes, and the target among them."""
    # The last position stays −1, so that the label −1 keeps its code.
    position = torch.full((predictions.shape[1] + 1,), -1, dtype=torch.long, device=y.device)
    position[list(classes)] = torch.arange(len(classes), device=y.device)
    return restrict(predictions, classes), position[y]


def _losses_of(probabilities: Tensor, y: Tensor) -> Tensor:
    """Return −log p of the label of each row."""
    of_label = probabilities[torch.arange(len(y), device=y.device), y]
    return -of_label.clamp_min(torch.finfo(of_label.dtype).tiny).log()
