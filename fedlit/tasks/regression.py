"""Prediction of a measurement, which is standardised for the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.outcomes.base import Columns, Family, Outcome
from fedlit.outcomes.numbers import Quantity
from fedlit.precision import double_on_cpu, in_double
from fedlit.tasks.base import Facts
from fedlit.tasks.baselines import REGRESSORS
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.number import MAE, RMSE, Number, facts_of
from fedlit.tasks.scores import LOSS, Score
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import weighted_mean
from fedlit.types import Label

if TYPE_CHECKING:
    import pandas as pd


_LOSSES: Mapping[str, Callable[..., Tensor]] = {
    "squared": functional.mse_loss,
    "huber": functional.huber_loss,
}


@dataclass(frozen=True)
class Regression(Number):
    """Prediction of a number.

    Networks see (target − mean) / scale; predictions, RMSE and MAE are in the user's units, the
    loss is not.

    Attributes:
        kind: the loss to minimise: the ``squared`` error, or the ``huber`` loss, which grows
            linearly beyond one scale.
        mean: the mean of the target over the training rows of the client, or of all clients
            (``targets: pooled``).
        scale: the standard deviation of the target over the same rows.
        target: the name of the number.

    Example:
        >>> import pandas as pd
        >>> task = Regression(mean=10.0, scale=2.0)
        >>> y = task.encode(pd.Series([10.0, 14.0]))
        >>> y, task.predict(torch.tensor([[0.0], [1.0]]))
        (tensor([0., 2.]), tensor([[10.],
                [12.]], dtype=torch.float64))
        >>> {name: value.item() for name, value in task.evaluate(torch.tensor([[10.0], [12.0]]), y).items()}
        {'rmse': 1.4142135623730951, 'mae': 1.0, 'r2': 0.5}
    """

    kind: str = "squared"
    mean: float = 0.0
    scale: float = 1.0
    target: str = "target"

    name: ClassVar[str] = "regression"
    outcome_type: ClassVar[type[Outcome]] = Quantity
    scores: ClassVar[tuple[Score, ...]] = (
        RMSE,
        MAE,
        Score("r2", "R²", percent=False, high=1.0),
        LOSS,
    )
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "loss": ("squared", "huber"),
        "targets": ("client", "pooled"),
    }
    go_alone: ClassVar[Mapping[str, GoAlone]] = REGRESSORS

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Label | None = None
    ) -> Facts:
        """Return the count, mean and variance of the target."""
        facts = super().facts(target, settings)
        variance = float(cls._values(target).var())
        return {**facts, "loss": settings.get("loss", "squared"), "variance": variance}

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
        """Return the task with the mean and standard deviation over the rows of all clients."""
        ordered = [facts[name] for name in sorted(facts)]
        count = facts_of(ordered, "count")
        means = facts_of(ordered, "mean")
        variances = facts_of(ordered, "variance")
        with np.errstate(over="ignore", invalid="ignore"):  # a sum that overflows is not finite
            mean = (count * means).sum() / count.sum()
            variance = (count * (variances + (means - mean) ** 2)).sum() / count.sum()
            # The variance of a constant target is 0 but for rounding; such a target is learnt in its
            # own unit.
            rounding = (1e-12 * mean) ** 2
        scale = 1.0
        if variance > rounding:
            scale = math.sqrt(variance)
        return cls(facts[client]["loss"], float(mean), scale, str(facts[client]["target"]))

    def encode(self, target: pd.Series) -> Tensor:
        """Return the standardised target (n,) float32.

        Raises:
            DataError: values are not finite numbers.
        """
        values = self._values(target, self.mean, self.scale)
        return torch.from_numpy(((values - self.mean) / self.scale).astype(np.float32))

    @property
    def meaning(self) -> tuple[str, ...]:
        """The numbers that the outputs 0 and 1 stand for."""
        return (f"{self.target} with 0 for {self.mean:.6g}", f"1 for {self.mean + self.scale:.6g}")

    @property
    def described(self) -> Facts:
        """What is predicted, and how it is standardised."""
        return {
            "classes": [],
            "task": self.name,
            "target": self.target,
            "mean": self.mean,
            "scale": self.scale,
        }

    @property
    def title(self) -> str:
        """The name, with the loss."""
        return f"{self.name} with loss: {self.kind}"

    @property
    def target_unit(self) -> tuple[str, float]:
        """The name and the standard deviation of the target."""
        return self.target, self.scale

    @property
    def glm(self) -> Family | None:
        """A linear regression if the loss is the squared error."""
        if self.kind != "squared":
            return None
        return "gaussian"

    @property
    def alike(self) -> tuple[str, str]:
        """A key that is equal for tasks with the same loss."""
        return self.name, self.kind

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean squared or Huber error, in units of the scale."""
        if rows is None:
            return _LOSSES[self.kind](outputs[:, 0], y.to(outputs.dtype))
        return weighted_mean(self.row_losses(outputs, y), rows)

    def row_losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the squared or Huber error of each row (n,), in units of the scale."""
        true = y.to(outputs.dtype)
        return _LOSSES[self.kind](outputs[:, 0], true, reduction="none")

    def predict(self, outputs: Tensor) -> Tensor:
        """Return predictions (n, 1) float64 in the user's units. With a large mean, float32 would
        lose the predicted differences.
        """
        return in_double(outputs) * self.scale + self.mean

    def more_scores(
        self, true: Tensor, predicted: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return R², which is undefined if the target does not vary."""
        if weight is None:
            scores = self.scores_of_many(true, predicted, Segments([len(true)]))
            return {name: value[0] for name, value in scores.items()}
        if not true.min() < true.max():
            return {"r2": true.new_tensor(math.nan)}
        spread = (true - weighted_mean(true, weight)).square()
        r2 = 1 - weighted_mean((predicted - true).square(), weight) / weighted_mean(spread, weight)
        return {"r2": r2}

    @classmethod
    def scores_of_many(
        cls, true: Tensor, predicted: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """See :class:`~fedlit.tasks.number.Number`."""
        spread = (true - clients.spread(clients.mean(true))).square()
        r2 = 1 - clients.sum((predicted - true).square()) / clients.sum(spread)
        return {"r2": torch.where(clients.varies(true), r2, math.nan)}

    @classmethod
    def evaluate_many(
        cls, tasks: Sequence[Regression], predictions: Tensor, y: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """See :class:`~fedlit.tasks.base.Task`."""
        return cls._evaluate_many(tasks, predictions, y, clients)

    def true(self, y: Tensor) -> Tensor:
        """Return the target in the user's units."""
        return double_on_cpu(y) * self.scale + self.mean

    def written(self, y: Tensor) -> Columns:
        """Return the target rounded to a millionth of the scale, which is the precision of a
        standardised float32.
        """
        return {
            "target": np.round(self.true(y).numpy(), 6 - math.ceil(math.log10(self.scale))) + 0.0
        }
