"""Prediction of several yes/no labels for each row, and their scores under one convention, which is
stated here.

AUROC, AUPRC and balanced accuracy are means over the labels that have a positive and a negative row
in the evaluated split; each is computed as in classification with two classes, and the number of
averaged labels is reported. Micro F1 counts all labels of all rows together; a row is an exact
match if each of its labels is predicted correctly. Unknown labels of a row do not count. A label is
predicted if its probability is above one half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError
from fedlit.outcomes.base import Columns, Outcome
from fedlit.outcomes.labels import SeveralLabels
from fedlit.precision import double_on_cpu
from fedlit.tasks.base import Facts, Scorer, Task
from fedlit.tasks.baselines import LABELLERS
from fedlit.tasks.class_scores import ClassScorer
from fedlit.tasks.classification import Classification
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.label_values import plain
from fedlit.tasks.scores import LOSS, Score
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import balanced, mean_logit
from fedlit.tasks.yes_no import among, check_values, columns_of, ordered, pair_of
from fedlit.types import Label

if TYPE_CHECKING:
    import pandas as pd


_PROBABILITY = "probability_"
_TARGET = "target_"
_OF_CLASSES = {score.name: score for score in Classification.scores}
_MEANS = ("auroc", "auprc", "balanced_accuracy")


@dataclass(frozen=True)
class MultiLabel(Task):
    """Prediction of several yes/no labels for each row. A label may be unknown.

    A target is a row of labels for each row (see :func:`fedlit.data.table.several`). Each label has
    two values: 0 and 1, true and false, or any other two of one type. The larger one is positive,
    and of words that mean yes and no (also n and y, false and true, f and t, nein and ja, non and
    oui, - and +) the one that means yes.

    Attributes:
        classes: the names of the labels, in the order of the outputs.
        negatives: the value of each label that means no; 0 if none is given.
        positives: the value of each label that means yes; 1 if none is given.
        class_rows: the number of training rows in which each label is true.
        known_rows: the number of training rows in which each label is known.

    Example:
        >>> task = MultiLabel(("died", "readmitted"))
        >>> y = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, torch.nan]])
        >>> scores = task.evaluate(torch.tensor([[0.1, 0.9], [0.8, 0.7], [0.9, 0.9]]), y)
        >>> {name: round(value.item(), 3) for name, value in scores.items() if name not in ("auprc", "micro_f1")}
        {'auroc': 0.75, 'balanced_accuracy': 0.625, 'exact_match': 0.333, 'labels': 2.0}
    """

    classes: tuple[str, ...]
    negatives: tuple[Label, ...] = ()
    positives: tuple[Label, ...] = ()
    class_rows: tuple[int, ...] = ()
    known_rows: tuple[int, ...] = ()

    name: ClassVar[str] = "multi_label"
    outcome_type: ClassVar[type[Outcome]] = SeveralLabels
    weighs_rows: ClassVar[bool] = False
    scores: ClassVar[tuple[Score, ...]] = (
        *(_OF_CLASSES[name] for name in _MEANS),
        Score("micro_f1", "Micro F1", low=0.0, high=1.0),
        Score("exact_match", "Exact match", low=0.0, high=1.0, always=True),
        Score("labels", "Labels averaged", percent=False, low=0.0, context=True),
        LOSS,
    )
    go_alone: ClassVar[Mapping[str, GoAlone]] = LABELLERS

    def __post_init__(self) -> None:
        if not self.positives:
            object.__setattr__(self, "negatives", (0,) * len(self.classes))
            object.__setattr__(self, "positives", (1,) * len(self.classes))

    # ------------------------------------------------------------------ the target

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Label | None = None
    ) -> Facts:
        """Return the labels, and the values of each."""
        values: dict[str, list[Label]] = {}
        for label, column in columns_of(target).items():
            distinct = list(dict.fromkeys(value for value in column if value is not None))
            check_values(label, distinct, f"of {len(column):,}")
            values[label] = ordered(distinct)
        labels = list(values)
        facts = {"task": cls.name, "target": ", ".join(labels), "labels": labels, "values": values}
        return {**facts, "positive": plain(positive)}

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
        """Return the task with the labels of all clients, in the order of the table if all have the
        same labels, otherwise sorted.
        """
        lists = [client_facts["labels"] for client_facts in facts.values()]
        labels = lists[0]
        if any(client_labels != labels for client_labels in lists):
            labels = sorted(set[str]().union(*lists))
        positives = {client_facts["positive"] for client_facts in facts.values()} - {None}
        pairs = [pair_of(label, facts, positives) for label in labels]
        if positives and not any(positives & set(pair) for pair in pairs):
            raise DataError(
                f"client {client!r}: expected the positive value among those of a label, found "
                f"{positives.pop()!r}"
            )
        return cls(
            tuple(labels), tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        )

    def encode(self, target: pd.Series) -> Tensor:
        """Return (n, labels) float32: 1 if a label is true, 0 if it is false, NaN if it is unknown.

        Raises:
            DataError: a value is neither of the label's two values.
        """
        columns = columns_of(target)
        y = torch.full((len(target), len(self.classes)), math.nan)
        for position, label in enumerate(self.classes):
            pair = [self.negatives[position], self.positives[position]]
            if label not in columns:  # only other clients have it
                continue
            cells = zip(target.index, columns[label], strict=True)
            wrong = [(row, value) for row, value in cells if not among(value, pair)]
            if wrong:
                raise DataError(
                    f"target {label!r}: expected {pair[0]!r} or {pair[1]!r}, found {len(wrong)} "
                    f"other values of {len(target):,}, such as {wrong[0][1]!r} in row "
                    f"{wrong[0][0]}; mend them, leave these cells empty, or leave the label out"
                )
            codes = [
                math.nan if value is None else float(value == pair[1]) for value in columns[label]
            ]
            y[:, position] = torch.tensor(codes)
        return y

    def fit(self, y: Tensor) -> Self:
        """Return the task with the number of training rows of each label."""
        have = y.nan_to_num(0).sum(0).long().tolist()
        known_rows = (y == y).sum(0).tolist()
        return replace(self, class_rows=tuple(have), known_rows=tuple(known_rows))

    def label_rows(self, y: Tensor) -> dict[str, int]:
        """Map each value of each label, as ``label=value``, to the number of rows that have it."""
        counts = dict[str, int]()
        for position, label in enumerate(self.classes):
            for value, code in ((self.negatives[position], 0), (self.positives[position], 1)):
                counts[f"{label}={value}"] = int((y[:, position] == code).sum())
        return {label: count for label, count in counts.items() if count}

    def unknown(self, rows: int) -> Tensor:
        """Return a target in which no label is known."""
        return torch.full((rows, len(self.classes)), math.nan)

    def known(self, y: Tensor) -> Tensor:
        """Return which rows have at least one known label."""
        return (y == y).any(1)

    @property
    def label_counts(self) -> dict[str, tuple[int, int]]:
        """The training rows that have each label, and those in which it is known."""
        counts = zip(self.class_rows, self.known_rows, strict=True)
        return dict(zip(map(str, self.classes), counts, strict=True))

    # ------------------------------------------------------------------ outputs

    @property
    def outputs(self) -> int:
        """The number of logits, one for each label."""
        return len(self.classes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The labels."""
        return self.classes

    @property
    def meaning(self) -> tuple[str, ...]:
        """Each label with the value that means yes, because every output has a meaning of its
        own.
        """
        return tuple(
            f"{label}: {value}" for label, value in zip(self.classes, self.positives, strict=True)
        )

    @property
    def described(self) -> Facts:
        """The labels, and the value of each that means yes."""
        return {"classes": list(self.classes), "task": self.name, "positive": list(self.positives)}

    def balance(self) -> Tensor:
        """Return (2, labels): for each label, the weights of rows without it and of rows that have
        it.
        """
        weights = []
        for true_rows, known_rows in zip(self.class_rows, self.known_rows, strict=True):
            if known_rows:
                weights.append(balanced([known_rows - true_rows, true_rows]))
            else:
                weights.append(torch.ones(2))
        return torch.stack(weights, 1)

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean over rows of the mean cross-entropy over a row's known labels; NaN if no
        label of any row is known.

        Args:
            outputs: (n, labels).
            y: (n, labels), NaN if a label is unknown.
            weight: the weights that :meth:`balance` returns, which are scaled for each label to sum
                to the number of its rows.
            rows: not used: rows count alike.
        """
        labelled = (y == y).to(outputs.dtype)
        true = y.nan_to_num(0).to(outputs.dtype)
        losses = (
            functional.binary_cross_entropy_with_logits(outputs, true, reduction="none") * labelled
        )
        if weight is not None:
            label_weights = (weight[0] + (weight[1] - weight[0]) * true) * labelled
            losses = (
                losses
                * label_weights
                * labelled.sum(0)
                / label_weights.sum(0).clamp_min(torch.finfo(label_weights.dtype).tiny)
            )
        counted = labelled.sum(1)
        return (losses.sum(1) / counted.clamp_min(1)).sum() / (counted > 0).sum()

    def predict(self, outputs: Tensor) -> Tensor:
        """Return probabilities (n, labels) float32; each is independent of the others."""
        return outputs.float().sigmoid()

    def bounded(self, outputs: Tensor) -> Tensor:
        """Return the probability of each label, independent of the others."""
        return outputs.sigmoid()

    def of_members(self, outputs: Tensor) -> Tensor:
        """See :class:`~fedlit.tasks.base.Task`."""
        return mean_logit(outputs.float())

    # ------------------------------------------------------------------ scores

    def narrow(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        loss: Tensor,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Restrict predictions and target to the labels that the site has. Other labels are unknown
        for its rows, and so do not enter the loss.
        """
        return predictions[:, list(classes)], y[:, list(classes)], loss

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        known_labels = y == y
        scorers = _scorers_of_labels(predictions, y)
        true = (y == 1).cpu()
        predicted = (predictions > 0.5).cpu() & known_labels.cpu()
        hits = (true & predicted).sum(1)
        chosen = true.sum(1) + predicted.sum(1)
        exact = (true == predicted).all(1).long()

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            nan = predictions.new_tensor(math.nan).float().cpu()
            if counts is None:
                rows = torch.ones_like(hits)
                scores = [scorer(None) for scorer in scorers]
            else:
                rows = counts.cpu()
                pairs = zip(scorers, known_labels.unbind(1), strict=True)
                scores = [scorer(counts[labelled]) for scorer, labelled in pairs]
            scores = [values for values in scores if values["classes"] > 0]
            total = double_on_cpu((rows * chosen).sum())
            right = double_on_cpu((rows * hits).sum())
            means = dict.fromkeys(_MEANS, nan)
            if scores:
                means = {name: _mean_of(name, scores) for name in _MEANS}
            micro_f1 = nan
            if total > 0:
                micro_f1 = (2 * right / total).float()
            return {
                **means,
                "micro_f1": micro_f1,
                "exact_match": (double_on_cpu((rows * exact).sum()) / rows.sum()).float(),
                "labels": torch.full_like(nan, len(scores)),
            }

        return score

    @classmethod
    def evaluate_many(
        cls, tasks: Sequence[MultiLabel], predictions: Tensor, y: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """See :class:`~fedlit.tasks.base.Task`."""
        means, averaged = _means_over_labels(predictions, y, clients)
        true = (y == 1).cpu()
        predicted = ((predictions > 0.5) & (y == y)).cpu()
        hits = clients.sum((true & predicted).sum(1))
        chosen = clients.sum(true.sum(1) + predicted.sum(1))
        exact = clients.sum((true == predicted).all(1).long())
        return {
            **means,
            "micro_f1": (2 * double_on_cpu(hits) / double_on_cpu(chosen)).float(),
            "exact_match": (double_on_cpu(exact) / clients.sizes).float(),
            "labels": averaged.float(),
        }

    def written(self, y: Tensor) -> Columns:
        """Return ``target_<label>`` for each label, in that label's values; None if it is
        unknown.
        """
        codes = y.nan_to_num(2).long().numpy()
        values = zip(self.classes, self.negatives, self.positives, strict=True)
        return {
            f"{_TARGET}{label}": np.array([no, yes, None], object)[codes[:, c]]
            for c, (label, no, yes) in enumerate(values)
        }

    def read(self, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return the task, float32 probabilities, and the target."""
        columns = [f"{_PROBABILITY}{label}" for label in self.classes]
        probabilities = np.ascontiguousarray(frame[columns].to_numpy(np.float32))
        y = torch.full(probabilities.shape, math.nan)
        values = zip(self.classes, self.negatives, self.positives, strict=True)
        for c, (label, no, yes) in enumerate(values):
            target = frame[f"{_TARGET}{label}"].map(str, na_action="ignore")
            codes = target.map({str(no): 0.0, str(yes): 1.0})
            y[:, c] = torch.tensor(codes.to_numpy(np.float32, na_value=math.nan))
        return self, torch.from_numpy(probabilities), y


def _scorers_of_labels(predictions: Tensor, y: Tensor) -> list[Scorer]:
    """Return the scorer of each label, as in classification with two classes, over the rows in which
    the label is known.
    """
    two = Classification((0, 1))
    scorers = []
    for column, rows in enumerate((y == y).unbind(1)):
        positive = predictions[rows, column]
        probabilities = torch.stack([1 - positive, positive], 1)
        scorers.append(two.scorer(probabilities, y[rows, column].long()))
    return scorers


def _means_over_labels(
    predictions: Tensor, y: Tensor, clients: Segments
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the means over the labels of each client that have a positive and a negative row, by
    name, and the number of these labels.
    """
    shape = (len(clients), y.shape[1])
    averaged = torch.zeros(shape, dtype=torch.bool)
    scores = {name: torch.zeros(shape) for name in _MEANS}
    for column, labelled in enumerate((y == y).unbind(1)):
        rows = labelled.nonzero()[:, 0]
        lengths = clients.chosen(rows).lengths
        with_rows = [client for client, length in enumerate(lengths) if length]
        if not with_rows:
            continue
        positive = predictions[rows, column]
        probabilities = torch.stack([1 - positive, positive], 1)
        of_clients = Segments([lengths[client] for client in with_rows])
        of_label = ClassScorer(probabilities, y[rows, column].long(), of_clients)()
        averaged[with_rows, column] = of_label["classes"] > 0
        for name in _MEANS:
            scores[name][with_rows, column] = of_label[name]
    count = averaged.sum(1)
    of_averaged = Segments(count.tolist())
    return {name: of_averaged.mean(scores[name][averaged]) for name in _MEANS}, count


def _mean_of(name: str, scores: Sequence[Mapping[str, Tensor]]) -> Tensor:
    return torch.stack([values[name].cpu() for values in scores]).mean()
