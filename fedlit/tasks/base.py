"""The interface of a task: what is predicted for a row, which loss is minimised, and which scores
evaluate it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.outcomes import Outcome
from fedlit.outcomes.base import Family

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from fedlit.tasks.go_alone import GoAlone

Scorer = Callable[[Tensor | None], dict[str, Tensor]]
"""Scores by name of the same predictions, for counts (n,) int64 that say how often each row counts;
once if None."""


@dataclass(frozen=True)
class Score:
    """A measure of the quality of predictions. Only a score determines whether higher is better.

    Attributes:
        name: the name in files and configurations.
        label: the name that is shown to the user.
        higher_is_better: whether a higher value is better.
        percent: whether it is shown in percent.
        low: the smallest possible value; intervals are cut there.
        high: the largest possible value.
        test_only: whether it takes too long for every epoch, and is computed on test rows only.
        always: whether it is defined for any finite predictions, so that an undefined value shows
            that predictions are not finite.
        context: whether it only states on what other scores were computed, and is never used to
            choose anything.
        in_units: whether it is in the unit of the target, so that values of targets in other units
            have no mean.

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
    in_units: bool = False

    def gain(self, first: Any, second: Any) -> Any:
        """Return by how much the first value is better than the second; positive if it is
        better.
        """
        return first - second if self.higher_is_better else second - first

    def least_lift(self, matters: float, value: float) -> float:
        """Return the smallest lift that matters, in the unit of the score.

        Args:
            matters: percentage points for a score in percent; for other scores, percent of
                ``value``.
            value: the score to improve on.

        Example:
            >>> auroc, mae = Score("auroc", "AUROC"), Score("mae", "MAE", higher_is_better=False, percent=False)
            >>> auroc.least_lift(0.5, 0.9), mae.least_lift(0.5, 40.0)
            (0.005, 0.2)
        """
        return matters / 100 * (1.0 if self.percent else abs(value))

    def best(self, values: Mapping[str, float]) -> str | None:
        """Return the name with the best value, the first among equals; None if no value is a
        number.
        """
        numbers = {name: value for name, value in values.items() if not math.isnan(value)}
        return max(numbers, key=lambda name: self.gain(numbers[name], 0.0), default=None)

    def worst(self, values: Mapping[str, float]) -> str | None:
        """Return the name with the worst value, the first among equals; None if no value is a
        number.
        """
        numbers = {name: value for name, value in values.items() if not math.isnan(value)}
        return min(numbers, key=lambda name: self.gain(numbers[name], 0.0), default=None)

    def text(self, value: float, *, signed: bool = False) -> str:
        """Return the number as text for the user: percentages with two decimals, all others with
        four significant digits.
        """
        if not math.isfinite(value):
            return "–"
        sign = "+" if signed else ""
        return f"{100 * value + 0.0:{sign}.2f}" if self.percent else f"{value + 0.0:{sign}.4g}"


WEIGHT = "weight"
"""The column of predictions that says how much each row counts."""

LOSS = Score("loss", "Loss", higher_is_better=False, percent=False)

SCORES: dict[str, Score] = {}
"""The scores of all tasks, by name: of those that ship with fedlit, and of those whose modules have
been imported."""

COMPARED: dict[str, Score] = {}
"""Those by which models of different kinds can be compared."""

BASELINES: dict[str, str] = {}
"""The labels of these tasks' local baselines, by name."""


def add_task(scores: Iterable[Score], go_alone: Mapping[str, GoAlone]) -> None:
    """Add a task's scores and local baselines to those that are known; the first one counts if
    names are equal.
    """
    for score in scores:
        SCORES.setdefault(score.name, score)
        if score.name != LOSS.name and not score.context:
            COMPARED.setdefault(score.name, score)
    for name, model in go_alone.items():
        BASELINES.setdefault(name, model.label)


class Task(ABC):
    """The prediction task of a client. Clients of one federation may have different tasks around a
    shared core.

    A task is a value object, a frozen dataclass of plain values. It contains what was learnt about
    the target (labels, mean), and nothing about single rows. A task that does not ship with fedlit
    is named by the path of its class (``task: my_tasks.Claims``), and needs no other entry.

    Attributes:
        name: the name in configurations; of a task that does not ship with fedlit, the path of its
            class.
        outcome_type: what predictions of the task mean.
        scores: the scores of predictions, the main one first; ``loss`` is among them.
        study_scores: the names of the scores that studies show if they name none; the first three
            if empty.
        more_facts: the names of further numbers that a client may send about its target before
            training, see :meth:`facts`.
        choices: maps each key that a configuration may add to the name to its possible values, of
            which the first is the default.
        go_alone: the scikit-learn models that a client can fit without other clients, by name.
        weighs_rows: whether loss and scores can weigh rows.
        classes: the labels that can be predicted, one or several for each row; empty if a number is
            predicted.
        class_rows: the number of training rows of each class.
    """

    name: ClassVar[str]
    outcome_type: ClassVar[type[Outcome]]
    scores: ClassVar[tuple[Score, ...]]
    study_scores: ClassVar[tuple[str, ...]] = ()
    more_facts: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    go_alone: ClassVar[Mapping[str, GoAlone]]
    weighs_rows: ClassVar[bool] = True
    classes: tuple[Any, ...] = ()
    class_rows: tuple[int, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name the task, and add its scores and local baselines to those that are known.

        Raises:
            ConfigError: a task that does not ship with fedlit has a name of its own, by which
                nobody could find it.
        """
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith(f"{__package__}."):
            return
        path = f"{cls.__module__}.{cls.__qualname__}"
        if "name" in vars(cls):
            raise ConfigError(
                f"{path}: expected no name, found {cls.name!r}; leave it out: the task's name is "
                f"{path}"
            )
        cls.name = path
        add_task(getattr(cls, "scores", ()), getattr(cls, "go_alone", {}))

    # ------------------------------------------------------------------ the target

    @classmethod
    @abstractmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None
    ) -> dict[str, Any]:
        """Return everything that a client may send about its target, as plain data.

        Args:
            target: the target of the training rows.
            settings: the choices that differ from the default.
            positive: the label that counts as positive if there are two; the larger one if None.

        Raises:
            DataError: the task cannot predict this target.
        """

    @classmethod
    def plausible(cls, facts: Mapping[str, Any]) -> bool:
        """Return whether another site's facts, whose types have been checked, can be those of such
        a target.
        """
        return True

    @classmethod
    @abstractmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the task of a client, given the facts of the clients that agree on it.

        Args:
            client: the client's name.
            facts: maps the client, and every client whose outputs shall mean the same, to its
                facts.

        Raises:
            DataError: nothing can be learnt from such a target.
        """

    @abstractmethod
    def encode(self, target: pd.Series) -> Tensor:
        """Return the target as a tensor (n,), (n, labels) or (n, positions), of the dtype that
        ``loss`` takes.
        """

    def unknown(self, rows: int) -> Tensor:
        """Return an entirely unknown target, in the format of ``encode``."""
        return torch.full((rows,), -1 if self.classes else math.nan)

    def fit(self, y: Tensor) -> Self:
        """Return the task with the number of training rows of each class, counted in the encoded
        target.
        """
        if not self.classes:
            return self
        have = tuple(torch.bincount(y[y >= 0], minlength=len(self.classes)).tolist())
        return replace(self, class_rows=have)  # type: ignore[type-var]  # tasks are dataclasses

    def label_rows(self, y: Tensor) -> dict[str, int]:
        """Map each label in an encoded target to the number of rows that have it; empty if a number
        is predicted.
        """
        rows = y.reshape(len(y), -1)
        counts = {
            str(label): int((rows == position).any(1).sum())
            for position, label in enumerate(self.classes)
        }
        return {label: count for label, count in counts.items() if count}

    def known(self, y: Tensor) -> Tensor:
        """Return which rows have a target that can be predicted, (n,) bool."""
        return y == y

    def unseen(self, y: Tensor) -> Tensor:
        """Return where the target has a label that no training row has, a bool tensor."""
        return ~self.known(y)

    @property
    def label_counts(self) -> dict[str, tuple[int, int]]:
        """For each label that is a column of its own: the training rows that have it, and those in
        which it is known.

        It is empty if labels are no columns.
        """
        return {}

    def counted(self, y: Tensor) -> Tensor:
        """Return the number of terms of which the loss is the mean: the number of rows with a known
        target.
        """
        return self.known(y).sum()

    # ------------------------------------------------------------------ outputs

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The width of the network's output for a row."""

    @property
    @abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """The name of each output, for the user."""

    @property
    def meaning(self) -> tuple[str, ...]:
        """What the outputs mean, for the user. It is equal for tasks whose outputs mean the same,
        so that their heads may be averaged.
        """
        return tuple(map(str, self.classes))

    @property
    @abstractmethod
    def described(self) -> dict[str, Any]:
        """The description of the task in a plan: plain data, with ``classes``."""

    @property
    def title(self) -> str:
        """The task for messages: its name, with the choices that determine its loss."""
        return self.name

    @property
    def fingerprint(self) -> str:
        """What was learnt about the target beyond :attr:`classes`, by which a checkpoint recognises
        its data.
        """
        return repr(self)

    @property
    def target_unit(self) -> tuple[str, float] | None:
        """The name and the scale of the target if scores are in its unit, so that units can be
        compared; otherwise None.
        """
        return None

    @property
    def glm(self) -> Family | None:
        """The generalised linear model whose negative log-likelihood the loss is: ``logistic`` for
        one of several labels, ``gaussian`` for the squared error, ``poisson`` for counts; None if
        it is none of them.
        """
        return None

    @property
    def alike(self) -> Hashable:
        """A key that is equal for tasks whose loss is the same function of (outputs, y, weight)."""
        return self.name

    def balance(self) -> Tensor | None:
        """Return a weight for each class by which all classes count equally, see :func:`balanced`;
        None if there are no classes.
        """
        return balanced(self.class_rows) if self.classes else None

    @abstractmethod
    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the loss to minimise, which is a mean over rows, as a scalar.

        Args:
            outputs: (n, outputs).
            y: the target in the format of ``encode``.
            weight: the weight of each class, in the format of :meth:`balance`.
            rows: (n,) how much each row counts; once if None. Whole numbers are as many equal rows.
        """

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """Return predictions (n, width) float32 or float64, in the user's units: probabilities, or
        a number.
        """

    def bounded(self, outputs: Tensor) -> Tensor:
        """Return outputs (…, outputs) as numbers in [0, 1] of the same shape, for rules that
        compare functions.
        """
        return one_of(outputs)

    def of_members(self, outputs: Tensor) -> Tensor:
        """Combine the outputs of an ensemble's members (n, members, outputs) into outputs (n,
        outputs), from which :meth:`predict` computes the mean of the members' predictions.
        """
        return outputs.mean(1)

    def as_input(self, outputs: Tensor) -> Tensor:
        """Return these outputs as inputs for another network, (n, :attr:`input_width`)."""
        return self.predict(outputs)

    @property
    def input_width(self) -> int:
        """The width of :meth:`as_input`."""
        return self.outputs

    @property
    def outcome(self) -> Outcome:
        """What the task's predictions mean, in a form that does not need PyTorch."""
        return self.outcome_type.of(vars(self))

    def of_model(self, model: Any, x: np.ndarray) -> Tensor:
        """Return the predictions of a fitted scikit-learn model for rows (n, d), in the format of
        :meth:`predict`.
        """
        return torch.from_numpy(self.outcome.of_model(model, x))

    # ------------------------------------------------------------------ scores

    @classmethod
    def shown_scores(cls) -> list[str]:
        """Return the names of the scores that studies show if they name none."""
        compared = [score.name for score in cls.scores if score.name in COMPARED]
        return list(cls.study_scores) or compared[:3]

    def at(self, classes: Sequence[int]) -> Self:
        """Return the task for a site whose training rows have only some of the classes, given by
        their positions.
        """
        chosen = {}
        for key, value in vars(self).items():
            if isinstance(value, tuple) and value:
                chosen[key] = tuple(value[position] for position in classes)
        return replace(self, **chosen)  # type: ignore[type-var]  # tasks are dataclasses

    def narrow(
        self,
        classes: Sequence[int],
        predictions: Tensor,
        y: Tensor,
        loss: Tensor,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predictions, target and mean loss of a batch for the task of such a site, see
        :meth:`at`.
        """
        return predictions, y, loss

    def scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Return a function that computes the scores of these predictions for any counts. What does
        not depend on counts is computed only once.

        With counts that are all one, it returns the same bits as with None; with any counts, the
        same as for rows that are repeated so often.

        Args:
            predictions: (n, width) float.
            y: the target in the format of ``encode``.

        Returns:
            A function that returns scalars by name, without the loss; NaN if a score is undefined.
            Counts may be floats, for weights of rows.
        """
        finite = len(y) > 0 and bool(torch.isfinite(predictions).all())
        score = self._scorer(predictions, y) if finite else None
        scores = [entry for entry in self.scores if entry is not LOSS and not entry.test_only]

        def scored(counts: Tensor | None) -> dict[str, Tensor]:
            if score is None or (counts is not None and not float(counts.sum())):
                return {
                    entry.name: predictions.new_tensor(0.0 if entry.context else math.nan)
                    for entry in scores
                }
            return score(counts)

        return scored

    @abstractmethod
    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Return the function of :meth:`scorer` for at least one row of finite predictions, and for
        counts that are not all 0.
        """

    def evaluate(
        self, predictions: Tensor, y: Tensor, counts: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return exact scores by name, see :meth:`scorer`."""
        return self.scorer(predictions, y)(counts)

    def evaluate_once(
        self, predictions: Tensor, y: Tensor, counts: Tensor | None = None
    ) -> dict[str, float]:
        """Return the scores that are computed on test rows only."""
        return {}

    def confusion(self, predictions: Tensor, y: Tensor) -> Tensor | None:
        """Return the numbers of rows by true class (the last row is for labels that are no class)
        and predicted class; None without classes.
        """
        return None

    @abstractmethod
    def written(self, y: Tensor) -> dict[str, Any]:
        """Return the target as columns for the user: ``target``, or ``target_<label>`` for each of
        several labels.
        """

    def frame(
        self, row: np.ndarray, y: Tensor, predictions: Tensor, weight: Tensor | None = None
    ) -> pd.DataFrame:
        """Return predictions for the user, one row for each row of data: ``row``, the columns of
        :meth:`written`, and those of :meth:`fedlit.outcomes.base.Outcome.columns`: probabilities,
        and what is predicted.
        """
        import pandas as pd

        weights = {} if weight is None else {WEIGHT: weight.cpu().numpy().astype("float64")}
        return pd.DataFrame(
            {"row": row, **weights, **self.written(y), **self.outcome.columns(predictions.numpy())}
        )

    @classmethod
    @abstractmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return (task, predictions, y) of rows that ``frame`` wrote."""


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean of values (n,), each of which counts as much as its weight.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]))
        tensor(2.)
    """
    return values.mean() if weight is None else (values * weight).sum() / weight.sum()


def balanced(rows: Sequence[int]) -> Tensor:
    """Return weights by which all classes count equally: the inverse of each class's share, scaled
    to sum to the number of classes; 0 for a class without rows.

    Args:
        rows: the number of training rows of each class.

    Example:
        >>> balanced([30, 10, 0])
        tensor([0.5000, 1.5000, 0.0000])
    """
    count = torch.tensor(rows, dtype=torch.float32)
    present = count > 0
    inverse = torch.where(present, 1 / count.clamp_min(1), 0.0)
    return inverse * present.sum() / inverse.sum()


def one_of(logits: Tensor) -> Tensor:
    """Return the probabilities of several exclusive classes (…, classes); if there is a single
    logit, that of the positive class.
    """
    return logits.softmax(-1) if logits.shape[-1] > 1 else logits.sigmoid()


def labels_of(frame: pd.DataFrame, prefix: str) -> list[str]:
    """Return the labels of the columns that :meth:`Task.frame` names by ``prefix`` and a label, and
    that have a value: the labels of the client with these rows.
    """
    columns = frame.columns[frame.columns.str.startswith(prefix)]
    return [column.removeprefix(prefix) for column in columns if frame[column].notna().any()]


def of_people(column: Hashable) -> bool:
    """Return whether a column of :meth:`Task.frame` holds labels or numbers in the user's spelling,
    not probabilities.

    Example:
        >>> [of_people(column) for column in ("row", "target", "predicted_died", "probability_died")]
        [False, True, True, False]
    """
    return is_target(column) or str(column).partition("_")[0] == "predicted"


def is_target(column: Hashable) -> bool:
    """Return whether a column of :meth:`Task.frame` holds the target."""
    return str(column).partition("_")[0] == "target"


def by_name(scores: Iterable[Score]) -> dict[str, Score]:
    """Return scores by their names; the first one counts if names are equal."""
    named: dict[str, Score] = {}
    for score in scores:
        named.setdefault(score.name, score)
    return named
