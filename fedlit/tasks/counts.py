"""Prediction of a count, for which a rate is predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError
from fedlit.outcomes.base import Columns, Family, Outcome
from fedlit.outcomes.numbers import Rate
from fedlit.precision import double_on_cpu, in_double
from fedlit.tasks.base import Facts
from fedlit.tasks.baselines import COUNTERS
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.number import MAE, RMSE, Number, facts_of, refuse_cells
from fedlit.tasks.scores import LOSS, Score
from fedlit.tasks.segments import Segments
from fedlit.tasks.weighing import weighted_mean

if TYPE_CHECKING:
    import pandas as pd


MOST_COUNTED = 2**24
"""Counts up to this one are whole numbers in float32."""


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
    def agree(cls, client: str, facts: Mapping[str, Facts]) -> Self:
        """Return the task with the mean over the rows of all clients."""
        ordered = [facts[name] for name in sorted(facts)]
        count = facts_of(ordered, "count")
        means = facts_of(ordered, "mean")
        mean = float((count * means).sum() / count.sum())
        if mean == 0:
            raise DataError(
                f"client {client!r}, target {str(facts[client]['target'])!r}: expected a count "
                f"above 0 in its training rows, found 0 in all {count.sum():,}; leave the client "
                f"out, or let clients share their mean with task: {{name: counts, targets: pooled}}"
            )
        return cls(mean, str(facts[client]["target"]))

    @classmethod
    def plausible(cls, facts: Facts) -> bool:
        """Return whether the mean is one of counts."""
        return bool(0 <= facts.get("mean", 0) <= MOST_COUNTED)

    @classmethod
    def _values(cls, target: pd.Series, mean: float = 0.0, scale: float = 1e100) -> np.ndarray:
        values = super()._values(target, mean, scale)
        wrong = (values < 0) | (values % 1 != 0) | (values > MOST_COUNTED)
        expected = f"counts (whole numbers from 0 to {MOST_COUNTED:,}) for task: counts"
        refuse_cells(
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
    def described(self) -> Facts:
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
        return in_double(outputs).exp() * self.mean

    def of_members(self, outputs: Tensor) -> Tensor:
        """See :class:`~fedlit.tasks.base.Task`."""
        return outputs.logsumexp(1) - math.log(outputs.shape[1])

    def more_scores(
        self, true: Tensor, predicted: Tensor, weight: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the mean Poisson deviance and D², which is 1 − deviance / deviance of the scored
        rows' mean, and undefined if the counts do not vary.
        """
        if weight is None:
            scores = self.scores_of_many(true, predicted, Segments([len(true)]))
            return {name: value[0] for name, value in scores.items()}
        deviance = weighted_mean(_deviance(true, predicted), weight)
        least = weighted_mean(_deviance(true, weighted_mean(true, weight).expand_as(true)), weight)
        d2 = true.new_tensor(math.nan)
        if true.min() < true.max():
            d2 = 1 - deviance / least
        return {"deviance": 2 * deviance, "d2": d2}

    @classmethod
    def scores_of_many(
        cls, true: Tensor, predicted: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """See :class:`~fedlit.tasks.number.Number`."""
        deviance = 2 * clients.mean(_deviance(true, predicted))
        least = 2 * clients.mean(_deviance(true, clients.spread(clients.mean(true))))
        d2 = torch.where(clients.varies(true), 1 - deviance / least, math.nan)
        return {"deviance": deviance, "d2": d2}

    @classmethod
    def evaluate_many(
        cls, tasks: Sequence[Counts], predictions: Tensor, y: Tensor, clients: Segments
    ) -> dict[str, Tensor]:
        """See :class:`~fedlit.tasks.base.Task`."""
        return cls._evaluate_many(tasks, predictions, y, clients)

    def true(self, y: Tensor) -> Tensor:
        """Return the counts unchanged."""
        return double_on_cpu(y)

    def written(self, y: Tensor) -> Columns:
        """Return the counts unchanged."""
        return {"target": y.long().numpy()}


def _deviance(count: Tensor, rate: Tensor) -> Tensor:
    """Return half the Poisson deviance of each row, y log(y / μ) − y + μ; infinite if the rate is 0
    for a positive count.
    """
    return torch.where(count > 0, count * (count / rate).log(), 0.0) - count + rate
