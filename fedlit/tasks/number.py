"""Prediction of a number: a measurement, which is standardised for the network, or a count, for
which a rate is predicted.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError
from fedlit.outcomes.base import Family, Outcome
from fedlit.outcomes.numbers import Quantity, Rate
from fedlit.show.text import in_rows
from fedlit.tasks.base import LOSS, Score, Scorer, Task, weighted_mean
from fedlit.tasks.go_alone import COUNTERS, REGRESSORS, GoAlone

if TYPE_CHECKING:
    import pandas as pd

RMSE = Score(
    "rmse", "RMSE", higher_is_better=False, percent=False, low=0.0, always=True, in_units=True
)
MAE = Score("mae", "MAE", higher_is_better=False, percent=False, low=0.0, in_units=True)

_FURTHEST = 1e15
"""How many scales a target may be from the mean: sums of its squares are still within float32."""
MOST_COUNTED = 2**24
"""Counts up to this one are whole numbers in float32."""


class Number(Task):
    """A task with a single output of order of magnitude 1, which is 0 at the mean of the target.

    Attributes:
        mean: the mean of the target over the training rows of the client, or of all clients
            (``targets: pooled``).
        target: the name of the number.
    """

    mean: float
    target: str

    @classmethod
    def facts(
        cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None
    ) -> dict[str, Any]:
        """Return the number of rows, and the mean of their target."""
        values = cls._values(target)
        return {
            "task": cls.name,
            "target": target.name,
            "count": len(values),
            "mean": float(values.mean()),
        }

    @classmethod
    def _values(cls, target: pd.Series, mean: float = 0.0, scale: float = 1e100) -> np.ndarray:
        """Return a target as float64.

        Raises:
            DataError: values are not numbers, or not finite; the message shows one of them.
        """
        import pandas as pd

        if target.dtype.kind not in "iuf":
            numbers = pd.to_numeric(target.astype(str), errors="coerce")
            wrong = (numbers.isna() if numbers.isna().any() else target == target).to_numpy()
            values = target.to_numpy()
            expected = f"numbers for task: {cls.name}"
        else:
            values = target.to_numpy(np.float64)
            wrong = ~(np.abs(values - mean) <= _FURTHEST * scale)
            expected = f"finite numbers within {_FURTHEST * scale:g} of {mean:g}"
        _refuse(
            target,
            values,
            wrong,
            expected,
            "mend or drop those rows, name another target, or task: classification",
        )
        return values

    @property
    def outputs(self) -> int:
        """One output."""
        return 1

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the number."""
        return (self.target,)

    def as_input(self, outputs: Tensor) -> Tensor:
        """Return the output unchanged."""
        return outputs

    @abstractmethod
    def true(self, y: Tensor) -> Tensor:
        """Return an encoded target (n,) in the user's units, as float64 on the CPU."""

    @abstractmethod
    def more_scores(
        self, true: Tensor, predicted: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the scores other than RMSE and MAE; NaN if one is undefined.

        Args:
            true: (n,) float64.
            predicted: (n,) float64, finite predictions.
            weight: (n,) float64, how much each row counts; once if None.
        """

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Compute RMSE, MAE and the scores of :meth:`more_scores`, in float64."""
        true = self.true(y)
        predicted = predictions[:, 0].cpu().double()
        names = [score.name for score in self.scores if score is not LOSS]

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            if counts is not None and counts.dtype.is_floating_point:
                scores = self._weighted(true, predicted, counts.cpu().double())
                return {name: scores[name] for name in names}
            # rows are repeated, not weighted: a sum of repeated numbers is the only one that has
            # its bits
            rows = true
            numbers = predicted
            if counts is not None:
                rows = true.repeat_interleave(counts.cpu())
                numbers = predicted.repeat_interleave(counts.cpu())
            rmse = (numbers - rows).square().mean().sqrt()
            mae = (numbers - rows).abs().mean()
            scores = {"rmse": rmse, "mae": mae, **self.more_scores(rows, numbers)}
            return {name: scores[name] for name in names}

        return score

    def _weighted(self, true: Tensor, predicted: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Return the scores of rows that count as much as their weights, (n,) float64."""
        counted = weight > 0
        true = true[counted]
        predicted = predicted[counted]
        weight = weight[counted]
        error = predicted - true
        return {
            "rmse": weighted_mean(error.square(), weight).sqrt(),
            "mae": weighted_mean(error.abs(), weight),
            **self.more_scores(true, predicted, weight),
        }

    @classmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        """Return (task, predictions, y) in the user's units."""
        target, predicted = (
            frame[name].astype("float64").to_numpy() for name in ("target", "predicted")
        )
        return cls(), torch.tensor(predicted)[:, None], torch.tensor(target)


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
        cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None
    ) -> dict[str, Any]:
        """Return the count, mean and variance of the target."""
        facts = super().facts(target, settings)
        variance = float(cls._values(target).var())
        return {**facts, "loss": settings.get("loss", "squared"), "variance": variance}

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the task with the mean and standard deviation over the rows of all clients."""
        ordered = [facts[name] for name in sorted(facts)]
        count = _values_of(ordered, "count")
        means = _values_of(ordered, "mean")
        variances = _values_of(ordered, "variance")
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not finite
            mean = (count * means).sum() / count.sum()
            variance = (count * (variances + (means - mean) ** 2)).sum() / count.sum()
            # a constant target is learnt in its own unit; what rounding leaves of its variance is
            # none
            rounding = (1e-12 * mean) ** 2
        scale = math.sqrt(variance) if variance > rounding else 1.0
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
    def described(self) -> dict[str, Any]:
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
        return "gaussian" if self.kind == "squared" else None

    @property
    def alike(self) -> tuple[str, str]:
        """A key that is equal for tasks with the same loss."""
        return self.name, self.kind

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean squared or Huber error, in units of the scale."""
        measure = functional.mse_loss if self.kind == "squared" else functional.huber_loss
        if rows is not None:
            return weighted_mean(
                measure(outputs[:, 0], y.to(outputs.dtype), reduction="none"), rows
            )
        return measure(outputs[:, 0], y.to(outputs.dtype))

    def predict(self, outputs: Tensor) -> Tensor:
        """Return predictions (n, 1) float64 in the user's units. With a large mean, float32 would
        lose the predicted differences.
        """
        return outputs.double() * self.scale + self.mean

    def more_scores(
        self, true: Tensor, predicted: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return R², which is undefined if the target does not vary."""
        if weight is None:
            r2 = 1 - (predicted - true).square().sum() / (true - true.mean()).square().sum()
        else:
            spread = (true - weighted_mean(true, weight)).square()
            r2 = 1 - weighted_mean((predicted - true).square(), weight) / weighted_mean(
                spread, weight
            )
        return {"r2": r2 if true.min() < true.max() else true.new_tensor(math.nan)}

    def true(self, y: Tensor) -> Tensor:
        """Return the target in the user's units."""
        return y.cpu().double() * self.scale + self.mean

    def written(self, y: Tensor) -> dict[str, Any]:
        """Return the target rounded to a millionth of the scale, which is the precision of a
        standardised float32.
        """
        return {
            "target": np.round(self.true(y).numpy(), 6 - math.ceil(math.log10(self.scale))) + 0.0
        }


@dataclass(frozen=True)
class Counts(Number):
    """Prediction of how often something happens: a non-negative whole number with an assumed
    Poisson distribution.

    Networks output the logarithm of rate / mean, so that 0 stands for the mean; predictions are
    rates, which are expected counts. The loss is the Poisson negative log-likelihood.

    Attributes:
        mean: the mean count over the training rows of the client, or of all clients (``targets:
            pooled``).
        target: the name of what is counted.

    Example:
        >>> import pandas as pd
        >>> task = Counts(mean=2.0)
        >>> y = task.encode(pd.Series([0, 4]))
        >>> y, task.predict(torch.tensor([[0.0], [math.log(2)]]))
        (tensor([0., 4.]), tensor([[2.0000],
                [4.0000]], dtype=torch.float64))
        >>> scores = task.evaluate(torch.tensor([[2.0], [4.0]]), y)
        >>> {name: round(value.item(), 4) for name, value in scores.items()}
        {'deviance': 2.0, 'd2': 0.2787, 'rmse': 1.4142, 'mae': 1.0}
    """

    mean: float = 1.0
    target: str = "target"

    name: ClassVar[str] = "counts"
    outcome_type: ClassVar[type[Outcome]] = Rate
    scores: ClassVar[tuple[Score, ...]] = (
        Score("deviance", "Poisson deviance", higher_is_better=False, percent=False, low=0.0),
        Score("d2", "D²", percent=False, high=1.0),
        RMSE,
        MAE,
        LOSS,
    )
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"targets": ("client", "pooled")}
    go_alone: ClassVar[Mapping[str, GoAlone]] = COUNTERS

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the task with the mean over the rows of all clients."""
        ordered = [facts[name] for name in sorted(facts)]
        count = _values_of(ordered, "count")
        means = _values_of(ordered, "mean")
        mean = float((count * means).sum() / count.sum())
        if mean == 0:
            raise DataError(
                f"client {client!r}, target {str(facts[client]['target'])!r}: expected a count "
                f"above 0 in its training rows, found 0 in all {count.sum():,}; leave the client "
                f"out, or let clients share their mean with task: {{name: counts, targets: pooled}}"
            )
        return cls(mean, str(facts[client]["target"]))

    @classmethod
    def plausible(cls, facts: Mapping[str, Any]) -> bool:
        """Return whether the mean is one of counts."""
        return bool(0 <= facts.get("mean", 0) <= MOST_COUNTED)

    @classmethod
    def _values(cls, target: pd.Series, mean: float = 0.0, scale: float = 1e100) -> np.ndarray:
        values = super()._values(target, mean, scale)
        wrong = (values < 0) | (values % 1 != 0) | (values > MOST_COUNTED)
        expected = f"counts (whole numbers from 0 to {MOST_COUNTED:,}) for task: counts"
        _refuse(
            target, values, wrong, expected, "mend or drop those rows, or take task: regression"
        )
        return values

    def encode(self, target: pd.Series) -> Tensor:
        """Return the counts unchanged, (n,) float32.

        Raises:
            DataError: values are not counts.
        """
        return torch.from_numpy(self._values(target).astype(np.float32))

    @property
    def meaning(self) -> tuple[str, ...]:
        """The rate that the output 0 stands for."""
        return (f"log rate of {self.target} with 0 for {self.mean:.6g}",)

    @property
    def described(self) -> dict[str, Any]:
        """The name of what is counted, and its mean."""
        return {"classes": [], "task": self.name, "target": self.target, "mean": self.mean}

    @property
    def glm(self) -> Family:
        """A Poisson regression."""
        return "poisson"

    @property
    def alike(self) -> tuple[str, float]:
        """A key that is equal for tasks with the same mean."""
        return self.name, self.mean

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the mean Poisson negative log-likelihood, in nats. It includes log y! by
        Stirling's formula, so that losses of large and small counts are of the same size.
        """
        rate = outputs[:, 0] + math.log(self.mean)
        if rows is None:
            return functional.poisson_nll_loss(rate, y.to(outputs.dtype), full=True)
        losses = functional.poisson_nll_loss(rate, y.to(outputs.dtype), full=True, reduction="none")
        return weighted_mean(losses, rows)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the rate (n, 1) float64, in the user's units."""
        return outputs.double().exp() * self.mean

    def of_members(self, outputs: Tensor) -> Tensor:
        """See :class:`~fedlit.tasks.base.Task`."""
        return outputs.logsumexp(1) - math.log(outputs.shape[1])

    def more_scores(
        self, true: Tensor, predicted: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the mean Poisson deviance and D², which is 1 − deviance / deviance of the scored
        rows' mean, and undefined if the counts do not vary.
        """
        mean = weighted_mean(true, weight)
        deviance = _deviance(true, predicted, weight)
        least = _deviance(true, mean.expand_as(true), weight)
        return {
            "deviance": deviance,
            "d2": 1 - deviance / least if true.min() < true.max() else true.new_tensor(math.nan),
        }

    def true(self, y: Tensor) -> Tensor:
        """Return the counts unchanged."""
        return y.cpu().double()

    def written(self, y: Tensor) -> dict[str, Any]:
        """Return the counts unchanged."""
        return {"target": y.long().numpy()}


def _deviance(count: Tensor, rate: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return the mean Poisson deviance, the mean of 2 (y log(y / μ) − y + μ); infinite if the rate
    is 0 for a positive count.
    """
    return 2 * weighted_mean(
        torch.where(count > 0, count * (count / rate).log(), 0.0) - count + rate, weight
    )


def _refuse(
    target: pd.Series, values: np.ndarray, wrong: np.ndarray, expected: str, do: str
) -> None:
    if wrong.any():
        raise DataError(
            f"target {target.name!r}: expected {expected}, found {int(wrong.sum())} others of "
            f"{len(values)}: {in_rows(target.index[wrong], values[wrong])}; {do}"
        )


def _values_of(facts: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    return np.array([client_facts[key] for client_facts in facts])
