"""The interface of an outcome: what the predictions of a task mean. It needs NumPy only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from fedlit.errors import ConfigError
from fedlit.outcomes.models import Fitted
from fedlit.types import Bools, Floats, Label, Numbers, PredictionArray, State

Columns = dict[str, np.ndarray | list[Label] | list[str]]
"""Columns for the user, by name."""
Logarithm = Callable[[Floats], Floats]
"""The natural logarithm of each number. Those of NumPy and PyTorch differ in the last bit."""
Family = Literal["gaussian", "poisson", "logistic"]
EstimatorKind = Literal["Classifier", "Regressor", "Curves"]
"""Models for labels, for numbers, and those that predict curves with ``survival_at(x, times)``."""

PLAIN_LABELS = (bool, int, float, str)
"""The types that labels in a file may have."""
FLOOR = 1e-6
"""Below this probability the log loss goes on as a straight line: it stays convex, and one row
costs at most 14.8."""
EDGE = 1e-3
"""Probabilities and rates at or below it, and probabilities above 1 less it, have the logarithm of
this one."""


@dataclass(frozen=True)
class RowLoss:
    """The loss of each row, which is convex in its predictions.

    Attributes:
        losses: maps predictions (n, width) float64 to losses (n,), which are 0 for a row with an
            unknown target.
        slopes: maps predictions to the derivatives of these losses, (n, width).
        labelled: (n,) bool, which rows have a known target.
        nats: whether the loss is a negative log-likelihood; otherwise it is a squared error in some
            unit.
        total: the sum of losses (n,).
        weight: (n,) float64, how much each row counts in sums and means; None if all count alike.

    Example:
        >>> loss = RowLoss(lambda p: p[:, 0] ** 2, lambda p: 2 * p, np.array([True, True]), nats=False)
        >>> loss.mean([[1.0], [3.0]]), loss.terms(np.array([[1.0], [3.0]]))[0]
        (5.0, 10.0)
    """

    losses: Callable[[Floats], Floats]
    slopes: Callable[[Floats], Floats]
    labelled: Bools
    nats: bool = True
    total: Callable[[Floats], float] = np.sum
    weight: Floats | None = None

    def __call__(self, predictions: ArrayLike) -> Floats:
        """Return the losses (n,) float64 of predictions (n, width), without weights."""
        return self.losses(np.asarray(predictions, float))

    def terms(self, predictions: Floats) -> tuple[float, Floats]:
        """Return the sum over rows, and its gradient (n, width)."""
        losses = self.losses(predictions)
        slopes = self.slopes(predictions)
        if self.weight is not None:
            losses = losses * self.weight
            slopes = slopes * self.weight[:, None]
        return float(self.total(losses)), slopes

    def mean(self, predictions: ArrayLike) -> float:
        """Return the mean over the rows with a known target; NaN if there are none."""
        if not self.labelled.any():
            return math.nan
        if self.weight is None:
            return float(self(predictions).sum() / int(self.labelled.sum()))
        return float(self(predictions) @ self.weight / self.weight[self.labelled].sum())


class Outcome(ABC):
    """What the predictions of a task mean, which are arrays (rows, :attr:`width`).

    Each task has one subclass, a frozen dataclass whose fields are the part of the task's state
    that is needed to interpret predictions without PyTorch. Nobody asks a task for its name: what
    differs between tasks stands here.

    Attributes:
        one_label: whether one of several labels is predicted for each row.
        number: whether the target's cells are numbers, in one column or several.
        several_columns: whether the target is several columns of the table, such as labels, or a
            time and an event.
        partial: whether a row of a target of several columns may lack some of them, as where one of
            several labels is not known; otherwise it has no label if one cell is missing.
        roles: the keys of the task's settings that name the columns of the target, in the order of
            a row's cells, and whether each must be there; empty if ``target`` names the columns.
        label_cells: the positions of cells that are labels although the others are numbers.
        stratum: the position of the cell by which splits of a target of several columns are
            stratified; None if they are random.
        of_rows: the fields that describe training rows and that scores alone need: an export leaves
            them out.
        sequence: whether the target is a label for each position of a row.
        noun: what a predicted number is, in the plan.
        unit: what scores count: a row, a position of a sequence, a person with several rows.
        estimator: the kind of scikit-learn model that can predict it as a local baseline; None if
            no kind can.
        one_model_each: whether such a model is fitted for each column of the target, see
            :class:`fedlit.tasks.fitting.FitEach`.
        family: the distribution of :meth:`observed` around :meth:`link`, by which a mixture's
            predictions are corrected for each client; None if they are not.
        classes: the labels that can be predicted; empty if a number is predicted.
    """

    one_label: ClassVar[bool] = False
    number: ClassVar[bool] = False
    several_columns: ClassVar[bool] = False
    partial: ClassVar[bool] = False
    roles: ClassVar[Mapping[str, bool]] = {}
    label_cells: ClassVar[tuple[int, ...]] = ()
    stratum: ClassVar[int | None] = None
    of_rows: ClassVar[tuple[str, ...]] = ()
    sequence: ClassVar[bool] = False
    noun: ClassVar[str] = "number"
    unit: ClassVar[str] = "row"
    estimator: ClassVar[EstimatorKind | None] = None
    one_model_each: ClassVar[bool] = False
    family: ClassVar[Family | None] = None
    classes: tuple[Label, ...] = ()

    # ------------------------------------------------------------------ as plain data

    @classmethod
    def of(cls, state: State) -> Self:
        """Build an outcome from a task's state (see :func:`fedlit.tasks.task_state`)."""
        fields: dict[str, object] = {}
        for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]  # subclasses are dataclasses
            if name in state:
                value = state[name]
                fields[name] = tuple(value) if isinstance(value, list) else value
        return cls(**fields)

    @classmethod
    def united(cls, states: Sequence[State]) -> State:
        """Return the state of the task of which all these tasks predict a part.

        Args:
            states: the states of the tasks of a mixture's parts, which are all of this kind.
        """
        return dict(states[0])

    def check(self) -> None:
        """Refuse invalid values, which a file from an unknown source may contain.

        Raises:
            ValueError: labels are not distinct, or numbers are invalid.
        """
        texts = {str(label) for label in self.classes if type(label) in PLAIN_LABELS}
        if len(texts) < len(self.classes):
            raise ValueError("expected labels that differ as text")

    # ------------------------------------------------------------------ predictions

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns of predictions."""

    @property
    def magnitude(self) -> float:
        """How large differences between predictions are: 1 for probabilities, the scale of a
        number.
        """
        return 1.0

    @property
    def times(self) -> tuple[float, ...]:
        """The times of predictions, if these are a curve."""
        return ()

    @property
    def curve_columns(self) -> tuple[str, ...]:
        """The names of those columns of :meth:`columns` that are a curve."""
        return ()

    def curve(self, predictions: PredictionArray, times: Floats) -> Floats:
        """Return the probability of no event up to any times, (n, times).

        Raises:
            ConfigError: predictions are no curve.
        """
        raise ConfigError(
            "predict_survival: expected a client that predicts curves over time, as the task survival "
            f"does, found {type(self).__name__}; use predict"
        )

    def at(self, classes: Sequence[int]) -> Outcome:
        """Return the outcome with only some of the classes, chosen by their positions."""
        return self

    def narrow(self, classes: Sequence[int], predictions: PredictionArray) -> PredictionArray:
        """Return predictions for only some of the classes."""
        return predictions

    def aligned(self, predictions: PredictionArray, part: Outcome) -> Floats:
        """Return the predictions (n, width) float64 of a part of a mixture: 0 for a class that the
        part does not know.

        Args:
            predictions: the predictions of the part, (n, width of the part).
            part: what the part predicts.
        """
        if tuple(part.classes) == tuple(self.classes):
            return predictions.astype(np.float64)
        whole = np.zeros((len(predictions), len(self.classes)))
        whole[:, [self.classes.index(label) for label in part.classes]] = predictions
        return whole

    @abstractmethod
    def columns(self, predictions: PredictionArray) -> Columns:
        """Return predictions as columns for the user: ``predicted``, or ``predicted_<label>`` for
        each of several labels, and ``probability_<label>`` for each class.
        """

    def of_model(self, model: Fitted, x: PredictionArray) -> PredictionArray:
        """Return the predictions of a fitted scikit-learn model for rows (n, d), at least float32,
        in the user's units.

        Raises:
            ConfigError: no scikit-learn model predicts such a target.
        """
        raise ConfigError(
            f"task: expected a network, found {type(model).__name__}; local baselines of "
            "scikit-learn do not predict such a target. Compare with the same network without "
            "exchange (exchange.federated: [])"
        )

    # ------------------------------------------------------------------ mixtures

    def row_loss(self, y: Numbers, log: Logarithm = np.log) -> RowLoss | None:
        """Return the loss by which predictions are mixed; None if there is none that is convex in
        predictions.

        Args:
            y: the target in the format of the task's ``encode``: (n,), or (n, columns) if the
                target has several.
            log: the natural logarithm.
        """
        return None

    def link(self, predictions: Floats) -> Floats:
        """Return predictions (n, width) on the scale on which effects are added, (n, outputs)."""
        raise NotImplementedError(
            f"{type(self).__name__} has the family {self.family}, and so needs a link"
        )

    def unlink(self, eta: Floats) -> Floats:
        """Return the predictions (n, width) that :meth:`link` maps to these numbers (n,
        outputs).
        """
        raise NotImplementedError(
            f"{type(self).__name__} has the family {self.family}, and so needs its inverse"
        )

    def observed(self, y: Numbers) -> Floats:
        """Return the target (n, outputs) as predictions would be without error: 0 and 1, or numbers
        in the user's units; NaN if unknown.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has the family {self.family}, and so needs what was observed"
        )


def minus_log(probability: Floats, log: Logarithm) -> Floats:
    """Return −log p, and below :data:`FLOOR` its tangent there.

    Example:
        >>> minus_log(np.array([1.0, 0.5, 0.0]), np.log).round(3)
        array([-0.   ,  0.693, 14.816])
    """
    straight = 1 - probability / FLOOR - math.log(FLOOR)
    logarithm = -log(np.maximum(probability, FLOOR))
    return np.where(probability < FLOOR, straight, logarithm)


def slope_of_minus_log(probability: Floats, factor: np.ndarray | float = 1.0) -> Floats:
    """Return the derivative of ``factor`` times :func:`minus_log`."""
    slopes: Floats = -factor / np.maximum(probability, FLOOR)
    return slopes
