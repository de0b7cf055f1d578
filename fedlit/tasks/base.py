"""What a task is: what is predicted of a row, what is minimised, and by which scores it is judged."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from fedlit.outcomes import Outcome

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from fedlit.tasks.go_alone import GoAlone

__all__ = [
    "LOSS", "Ranked", "Score", "Scorer", "Task", "balanced", "by_name", "is_target", "labels_of", "of_people", "one_of",
]  # fmt: skip

Ranked = dict[str, "tuple[np.ndarray, np.ndarray]"]
"""Class → (n,) bool, whether each row is of it; (n,) float in [0, 1], the probability that it was given. Each class has
rows inside and outside of it."""

Scorer = Callable[[Tensor | None], dict[str, Tensor]]
"""Scores by name of the same predictions, for counts (n,) int64 that say how often each row counts; once if None."""


@dataclass(frozen=True)
class Score:
    """A number by which predictions are judged. Whether more is better is asked of it, and of nobody else.

    Attributes:
        name: as in files and configurations.
        label: as people read it.
        higher_is_better: whether more is better.
        percent: whether people read it in percent.
        low: the least value that there is; an interval is cut there.
        high: the largest value that there is.
        test_only: whether it takes too long for every epoch, and is computed of test rows only.
        always: whether any finite predictions have it: where it is undefined, they are not finite.
        context: whether it only says what other scores were computed of, and nothing is chosen by it.

    Example:
        >>> rmse = Score("rmse", "RMSE", higher_is_better=False, percent=False, low=0.0)
        >>> rmse.gain(2.0, 3.0), rmse.best({"a": 2.0, "b": 3.0}), rmse.text(2.0), rmse.text(1.0, signed=True)
        (1.0, 'a', '2', '+1')
    """

    name: str
    label: str
    higher_is_better: bool = True
    percent: bool = True
    low: float = -math.inf
    high: float = math.inf
    test_only: bool = False
    always: bool = False
    context: bool = False

    def gain(self, first: Any, second: Any) -> Any:
        """How much better the first is than the second: positive where it is better."""
        return first - second if self.higher_is_better else second - first

    def least_lift(self, matters: float, value: float) -> float:
        """The smallest lift that matters, in the unit of the score.

        Args:
            matters: percentage points of a score in percent; of another percent of ``value``.
            value: the score that is to be bettered.

        Example:
            >>> auroc, mae = Score("auroc", "AUROC"), Score("mae", "MAE", higher_is_better=False, percent=False)
            >>> auroc.least_lift(0.5, 0.9), mae.least_lift(0.5, 40.0)
            (0.005, 0.2)
        """
        return matters / 100 * (1.0 if self.percent else abs(value))

    def _order(self, value: float) -> float:
        return value if self.higher_is_better else -value

    def best(self, values: Mapping[str, float]) -> str | None:
        """Of whom the value is best, the first of equals; None where none is a number."""
        known = {name: value for name, value in values.items() if not math.isnan(value)}
        return max(known, key=lambda name: self._order(known[name]), default=None)

    def worst(self, values: Mapping[str, float]) -> str | None:
        """Of whom the value is worst, the first of equals; None where none is a number."""
        known = {name: value for name, value in values.items() if not math.isnan(value)}
        return min(known, key=lambda name: self._order(known[name]), default=None)

    def text(self, value: float, *, signed: bool = False) -> str:
        """The number as people read it: percent with two decimals, anything else with four digits."""
        if not math.isfinite(value):
            return "–"
        sign = "+" if signed else ""
        return f"{100 * value + 0.0:{sign}.2f}" if self.percent else f"{value + 0.0:{sign}.4g}"


LOSS = Score("loss", "Loss", higher_is_better=False, percent=False)


class Task(ABC):
    """What is predicted of a client's rows. A task belongs to a client; clients of one federation may have different
    ones around a shared core.

    A task is a value: it holds what was learnt of the target (labels, mean) and nothing of any row.

    Attributes:
        name: as configurations call it.
        scores: by which predictions are judged, the main one first; ``loss`` is among them.
        choices: what a configuration may say beside the name: key → its values, the first of which holds if it says
            nothing.
        go_alone: models of scikit-learn that a client can fit without anyone, by name.
        classes: labels that can be predicted, one a row, or several; empty where it is a number.
        class_rows: training rows of each of them.
    """

    name: ClassVar[str]
    scores: ClassVar[tuple[Score, ...]]
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    go_alone: ClassVar[Mapping[str, GoAlone]]
    classes: tuple[Any, ...] = ()
    class_rows: tuple[int, ...] = ()

    # ------------------------------------------------------------------ the target

    @classmethod
    @abstractmethod
    def facts(cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None) -> dict[str, Any]:
        """All that a client may tell of its target: plain data.

        Args:
            target: of the training rows.
            settings: the choices that differ from the first.
            positive: the label that counts as positive where there are two; the larger one if None.

        Raises:
            DataError: a target that the task cannot predict.
        """

    @classmethod
    @abstractmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """The task of a client.

        Args:
            client: the client's name.
            facts: its own, and those of the clients for whom outputs shall mean the same, by name.

        Raises:
            DataError: nothing can be learnt of such a target.
        """

    @abstractmethod
    def encode(self, target: pd.Series) -> Tensor:
        """The target as a tensor (n,), (n, labels) or (n, positions), in whatever type ``loss`` takes."""

    def unknown(self, rows: int) -> Tensor:
        """A target of which nothing is known, as ``encode`` gives it."""
        return torch.full((rows,), -1 if self.classes else math.nan)

    def fit(self, y: Tensor) -> Self:
        """The task that knows the training rows' target, as ``encode`` gave it: of each class the rows that have it."""
        if not self.classes:
            return self
        have = tuple(torch.bincount(y[y >= 0], minlength=len(self.classes)).tolist())
        return replace(self, class_rows=have)  # type: ignore[type-var]  # tasks are dataclasses

    def known(self, y: Tensor) -> Tensor:
        """Of which rows the target is one that can be predicted: (n,) bool."""
        return y == y

    def counted(self, y: Tensor) -> Tensor:
        """Of how many the mean loss of such a target is the mean: its known rows."""
        return self.known(y).sum()

    # ------------------------------------------------------------------ outputs

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Width of what a network puts out for a row."""

    @property
    @abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """What each output is called, for people."""

    @property
    def meaning(self) -> tuple[str, ...]:
        """What the outputs mean, for people: equal where it is the same, so that heads may be averaged."""
        return tuple(map(str, self.classes))

    @property
    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What a plan says of it: plain data, with ``classes``."""

    @property
    def alike(self) -> Hashable:
        """Equal for tasks whose loss is the same function of (outputs, y, weight)."""
        return self.name

    def balance(self) -> Tensor | None:
        """A weight for each class by which all count alike, see :func:`balanced`; None where there are no classes."""
        return balanced(self.class_rows) if self.classes else None

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """What is minimised: the mean over rows, a scalar.

        Args:
            outputs: (n, outputs).
            y: as ``encode`` gives them.
            weight: of each class, as :meth:`balance` gives them.
        """

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """What is predicted, (n, width) of float32 or float64, in the units people read: probabilities, or a number."""

    def bounded(self, outputs: Tensor) -> Tensor:
        """Outputs (…, outputs) as numbers in [0, 1] of the same shape, for rules that compare functions."""
        return one_of(outputs)

    def of_members(self, outputs: Tensor) -> Tensor:
        """Outputs (n, outputs) of which :meth:`predict` makes the mean of what an ensemble's members predict, from
        theirs (n, members, outputs).
        """
        return outputs.mean(1)

    def as_input(self, outputs: Tensor) -> Tensor:
        """What another network takes in of these outputs, (n, :attr:`input_width`)."""
        return self.predict(outputs)

    @property
    def input_width(self) -> int:
        """Width of :meth:`as_input`."""
        return self.outputs

    @property
    def outcome(self) -> Outcome:
        """What its predictions mean, without PyTorch."""
        return Outcome.of({"name": self.name, **vars(self)})

    def of_model(self, model: Any, x: np.ndarray) -> Tensor:
        """What a fitted model of scikit-learn predicts for rows (n, d), as :meth:`predict` gives it."""
        return torch.from_numpy(self.outcome.of_model(model, x))

    # ------------------------------------------------------------------ scores

    def at(self, classes: Sequence[int]) -> Self:
        """The task as a site sees it whose training rows have some of the classes only (their positions)."""
        of_classes = {key: own for key, own in vars(self).items() if isinstance(own, tuple) and own}
        chosen = {key: tuple(own[place] for place in classes) for key, own in of_classes.items()}
        return replace(self, **chosen)  # type: ignore[type-var]  # tasks are dataclasses

    def narrow(
        self, classes: Sequence[int], predictions: Tensor, y: Tensor, loss: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions, target and mean loss of a batch as the task :meth:`at` such a site has them."""
        return predictions, y, loss

    def scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """What scores these predictions, for any counts; what does not depend on counts is computed once.

        Of counts that are all one it gives the same bits as of None, and of any counts the same as of the rows
        repeated so often.

        Args:
            predictions: (n, width) float.
            y: as ``encode`` gives them.

        Returns:
            Makes scalars by name, without the loss; NaN where a score is not defined, as of predictions that are not
            finite.
        """
        finite = len(y) > 0 and bool(torch.isfinite(predictions).all())
        score = self._scorer(predictions, y) if finite else None
        known = [own for own in self.scores if own is not LOSS and not own.test_only]

        def scored(counts: Tensor | None) -> dict[str, Tensor]:
            if score is None or (counts is not None and not int(counts.sum())):
                return {own.name: predictions.new_tensor(0.0 if own.context else math.nan) for own in known}
            return score(counts)

        return scored

    @abstractmethod
    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """See :meth:`scorer`; of finite predictions of one row or more, and of counts that are not all 0."""

    def evaluate(self, predictions: Tensor, y: Tensor, counts: Tensor | None = None) -> dict[str, Tensor]:
        """Scores by name, exact; see :meth:`scorer`."""
        return self.scorer(predictions, y)(counts)

    def evaluate_once(self, predictions: Tensor, y: Tensor) -> dict[str, float]:
        """Scores that are computed of test rows only."""
        return {}

    def confusion(self, predictions: Tensor, y: Tensor) -> Tensor | None:
        """Counts of true classes (rows; the last one is of labels outside) by predicted ones; None without classes."""
        return None

    def ranked(self, predictions: Tensor, y: Tensor) -> Ranked:
        """Each class against the rest, for curves; none where a number is predicted, or values are not finite."""
        return {}

    @abstractmethod
    def frame(self, row: np.ndarray, y: Tensor, predictions: Tensor) -> pd.DataFrame:
        """Predictions as people read them, one row per row: ``row``, ``target``, what is predicted, ``predicted``; of
        several labels a ``target_<label>`` and a ``predicted_<label>`` each.
        """

    @classmethod
    @abstractmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """(task, predictions, y) of rows that ``frame`` wrote."""


def balanced(rows: Sequence[int]) -> Tensor:
    """Weights of classes by which all count alike: the inverse of each one's share, scaled to sum to the number of
    classes; 0 for one without rows.

    Args:
        rows: training rows of each class.

    Example:
        >>> balanced([30, 10, 0])
        tensor([0.5000, 1.5000, 0.0000])
    """
    count = torch.tensor(rows, dtype=torch.float32)
    present = count > 0
    inverse = torch.where(present, 1 / count.clamp_min(1), 0.0)
    return inverse * present.sum() / inverse.sum()


def one_of(logits: Tensor) -> Tensor:
    """Probabilities of one of several classes, (…, classes); of the positive class where there is one logit."""
    return logits.softmax(-1) if logits.shape[-1] > 1 else logits.sigmoid()


def labels_of(frame: pd.DataFrame, prefix: str) -> list[str]:
    """The labels of the columns that :meth:`Task.frame` calls ``prefix`` and a label, and that have a value: those of
    the client whose rows they are.
    """
    columns = frame.columns[frame.columns.str.startswith(prefix)]
    return [column.removeprefix(prefix) for column in columns if frame[column].notna().any()]


def of_people(column: Hashable) -> bool:
    """Whether a column of :meth:`Task.frame` holds labels or numbers as people write them, not probabilities.

    Example:
        >>> [of_people(column) for column in ("row", "target", "predicted_died", "probability_died")]
        [False, True, True, False]
    """
    return is_target(column) or str(column).partition("_")[0] == "predicted"


def is_target(column: Hashable) -> bool:
    """Whether a column of :meth:`Task.frame` holds the target."""
    return str(column).partition("_")[0] == "target"


def by_name(scores: Iterable[Score]) -> dict[str, Score]:
    """Scores by their names; the first of equal names."""
    named: dict[str, Score] = {}
    for score in scores:
        named.setdefault(score.name, score)
    return named
