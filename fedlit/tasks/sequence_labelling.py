"""Prediction of a label for each position of a sequence, and its scores under one convention, which
is stated here.

A position counts like a row in classification (see :mod:`fedlit.tasks.classification`): AUROC and
AUPRC are one versus rest, macro-averaged over the labels in the client's training split; accuracy
and balanced accuracy are over positions. A position without a label does not count. A position
whose label no training read has is a negative of every label, and wrong. Intervals resample reads,
not positions, because positions of one read are similar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError
from fedlit.outcomes.base import Columns, Outcome
from fedlit.outcomes.labels import LabelSequence
from fedlit.tasks.base import Facts, Scorer, Task
from fedlit.tasks.class_scores import log_loss
from fedlit.tasks.classification import Classification
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.scores import LOSS, Score
from fedlit.types import Label

if TYPE_CHECKING:
    import pandas as pd

NO_LABEL = "?"
UNSEEN = "!"
"""What stands in a text of labels for a position without one, and for a label that no training read
has."""
IGNORED = -100
"""The code of a position without a label, which PyTorch's cross-entropy leaves out."""

_PROBABILITY = "probability_"
_NAMES = (
    "auroc",
    "auprc",
    "balanced_accuracy",
    "accuracy",
    "f1",
    "weighted_f1",
    "log_loss",
    "classes",
)


@dataclass(frozen=True)
class SequenceLabelling(Task):
    """Prediction of one of several labels for each position of a sequence.

    A target is a text with one character for each position, which is the label of the position, or
    ``?`` if there is none. All sequences of a client have the same length.

    Attributes:
        classes: the labels, one character each, sorted.
        length: the number of positions of a sequence.
        class_rows: the number of training positions with each label.

    Example:
        >>> import pandas as pd
        >>> task = SequenceLabelling(("a", "b"), 3)
        >>> y = task.encode(pd.Series(["ab?", "bba"]))
        >>> y.tolist()
        [[0, 1, -100], [1, 1, 0]]
        >>> logits = torch.tensor([[2.0, 0, 0, 2, 0, 2], [0, 2, 2, 0, 2, 0]])  # a and b of each position
        >>> round(task.evaluate(task.predict(logits), y)["accuracy"].item(), 2)
        0.8
    """

    classes: tuple[str, ...]
    length: int = 1
    class_rows: tuple[int, ...] = ()

    name: ClassVar[str] = "sequence_labelling"
    outcome_type: ClassVar[type[Outcome]] = LabelSequence
    weighs_rows: ClassVar[bool] = False
    scores: ClassVar[tuple[Score, ...]] = (
        *(score for score in Classification.scores if score.name in _NAMES),
        LOSS,
    )
    go_alone: ClassVar[Mapping[str, GoAlone]] = {}

    # ------------------------------------------------------------------ the target

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Label | None = None
    ) -> Facts:
        """Return the sorted labels, and the number of positions of a sequence."""
        subject = f"target {target.name!r}"
        texts = _texts(target, subject)
        labels = sorted(set().union(*texts) - {NO_LABEL})
        if not labels or UNSEEN in labels:
            raise DataError(
                f"{subject}: expected labels in training rows, other than {UNSEEN!r}; found {labels}."
            )
        return {
            "task": cls.name,
            "target": str(target.name),
            "labels": labels,
            "length": len(texts[0]),
        }

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
        """Return the task with the labels of all clients."""
        lengths = {name: client_facts["length"] for name, client_facts in facts.items()}
        subject = f"target {facts[client]['target']!r}"
        do = "cut sequences, or leave labels apart with data.align: none"
        if len({*lengths.values()}) > 1:
            raise DataError(
                f"{subject}: expected as many positions at all clients, found {lengths}; {do}"
            )
        classes = sorted(
            set[str]().union(*(client_facts["labels"] for client_facts in facts.values()))
        )
        if len(classes) < 2:
            raise DataError(
                f"client {client!r}: expected at least two labels in its training rows, found one "
                f"({classes[0]!r}); leave the client out, or give all the common labels (align: "
                "classes)"
            )
        return cls(tuple(classes), facts[client]["length"])

    def encode(self, target: pd.Series) -> Tensor:
        """Return the positions of labels among the classes, (n, length) int64: −1 for a label that
        is not one of them, −100 if there is no label.

        Raises:
            DataError: a row has another number of positions.
        """
        texts = _texts(target, f"target {target.name!r}", self.length)
        points = (
            np.array(texts, dtype=f"U{self.length}")
            .view(np.uint32)
            .reshape(len(texts), self.length)
        )
        codes = np.full(points.shape, -1, np.int64)
        for code, label in ((IGNORED, NO_LABEL), *enumerate(self.classes)):
            codes[points == ord(label)] = code
        return torch.from_numpy(codes)

    def known(self, y: Tensor) -> Tensor:
        """Return which sequences have a position with a known label."""
        return (y >= 0).any(1)

    def unseen(self, y: Tensor) -> Tensor:
        """Return the positions whose label no training row has."""
        return y == -1

    def counted(self, y: Tensor) -> Tensor:
        """Return the number of positions with a known label. The loss is the mean over these."""
        return (y >= 0).sum()

    def unknown(self, rows: int) -> Tensor:
        """Return sequences in which no position has a label."""
        return torch.full((rows, self.length), IGNORED)

    # ------------------------------------------------------------------ outputs

    @property
    def outputs(self) -> int:
        """The number of logits, one for each position and label. The labels of a position are
        adjacent.
        """
        return self.length * len(self.classes)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The position and label of each output: ``1:a``, ``1:b``, …, ``2:a``, …."""
        positions = range(1, self.length + 1)
        return tuple(f"{number}:{label}" for number, label in product(positions, self.classes))

    @property
    def described(self) -> Facts:
        """The labels, and the number of positions of a sequence."""
        return {"classes": list(self.classes), "task": self.name, "length": self.length}

    @property
    def alike(self) -> tuple[str, int, int]:
        """A key that is equal for tasks with the same numbers of positions and labels."""
        return self.name, self.length, len(self.classes)

    def _apart(self, outputs: Tensor) -> Tensor:
        """Reshape (…, length · labels) to (…, length, labels)."""
        by_position: Tensor = outputs.unflatten(-1, (self.length, len(self.classes)))
        return by_position

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean cross-entropy over the positions that have a label; NaN if none has. Each
        position has the weight of its label.

        Args:
            outputs: (n, length · labels).
            y: (n, length), in the format of :meth:`encode`.
            weight: (labels,).
            rows: not used: reads count alike.
        """
        target = torch.where(y < 0, IGNORED, y).flatten()
        return functional.cross_entropy(
            self._apart(outputs).flatten(0, 1), target, weight, ignore_index=IGNORED
        )

    def predict(self, outputs: Tensor) -> Tensor:
        """Return probabilities (n, length · labels) float32; those of each position sum to 1."""
        return self.bounded(outputs.float())

    def bounded(self, outputs: Tensor) -> Tensor:
        """Return the probabilities at each position."""
        return self._apart(outputs).softmax(-1).flatten(-2)

    def of_members(self, outputs: Tensor) -> Tensor:
        """See :class:`~fedlit.tasks.base.Task`."""
        log_probabilities = self._apart(outputs.float()).log_softmax(-1)
        return (log_probabilities.logsumexp(1) - math.log(outputs.shape[1])).flatten(-2)

    # ------------------------------------------------------------------ scores

    def narrow(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        loss: Tensor,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Restrict predictions in the same way as classification, position by position."""
        whole = Classification(self.classes)
        flat = self._apart(predictions).flatten(0, 1)
        labels = y.flatten()
        narrowed, codes, loss = whole.narrow(classes, flat, labels.clamp_min(-1), loss)
        codes = torch.where(labels == IGNORED, IGNORED, codes)
        return narrowed.reshape(len(y), self.length * len(classes)), codes.view_as(y), loss

    def _positions(self, predictions: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return, for the positions that have a label, their probabilities (k, labels) and labels
        (k,), and which positions these are (n · length,).
        """
        labelled = (y != IGNORED).flatten()
        return self._apart(predictions).flatten(0, 1)[labelled], y.flatten()[labelled], labelled

    def scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """See :meth:`Task.scorer`. Predictions at positions without a label mean nothing, and need
        not be finite.
        """
        labelled = self._apart(predictions).masked_fill((y == IGNORED).unsqueeze(-1), 0.0)
        return super().scorer(labelled.view_as(predictions), y)

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        probabilities, label, labelled = self._positions(predictions, y)
        score = Classification(self.classes).scorer(probabilities, label)

        def scored(counts: Tensor | None) -> dict[str, Tensor]:
            if counts is None:
                return score(None)
            counts_of_positions = counts.repeat_interleave(self.length)
            return score(counts_of_positions[labelled.to(counts.device)])

        return scored

    def evaluate_once(
        self, predictions: Tensor, y: Tensor, counts: Tensor | None = None
    ) -> dict[str, float]:
        """Return the mean of −log p of the true label, in the same way as classification."""
        probabilities, label, _ = self._positions(predictions, y)
        return {"log_loss": log_loss(probabilities, label)}

    def confusion(self, predictions: Tensor, y: Tensor) -> Tensor:
        """Return counts of positions (labels + 1, labels) int64."""
        return Classification(self.classes).confusion(*self._positions(predictions, y)[:2])

    def written(self, y: Tensor) -> Columns:
        """Return ``target``, a text of labels: ``?`` if there is none, ``!`` for one that no
        training read has.
        """
        # −1 and −100 are the last but one, and the last
        letters = np.array([*self.classes, UNSEEN, NO_LABEL])
        codes = torch.where(
            y == IGNORED, len(self.classes) + 1, torch.where(y < 0, len(self.classes), y)
        ).numpy()
        return {"target": ["".join(sequence) for sequence in letters[codes].tolist()]}

    def read(self, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return the task, float32 probabilities, and the target."""
        probabilities = []
        for label in self.classes:
            cells = [text.split(" ") for text in frame[f"{_PROBABILITY}{label}"]]
            probabilities.append(np.array(cells, np.float32))
        predictions = torch.from_numpy(np.stack(probabilities, 2)).flatten(1)
        return self, predictions, self.encode(frame["target"])


def _texts(target: pd.Series, subject: str, length: int | None = None) -> list[str]:
    texts: list[str] = target.tolist()
    for row, text in zip(target.index, texts, strict=True):
        length = length or len(str(text))
        if not isinstance(text, str) or len(text) != length or not text:
            raise DataError(
                f"{subject}, row {row}: expected a text of {length} labels, one for each position "
                f"({NO_LABEL} where there is none), found {text!r}."
            )
    return texts
