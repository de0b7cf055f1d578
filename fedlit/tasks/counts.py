"""Counts: non-negative whole numbers, by a rate for each row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.errors import DataError
from fedlit.tasks.base import LOSS, Score, Scorer, Task
from fedlit.tasks.go_alone import COUNTERS, GoAlone
from fedlit.tasks.number import MAE, RMSE, Number, numbers_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Counts"]


@dataclass(frozen=True)
class Counts(Number):
    """How often something happens: a non-negative whole number, taken for Poisson distributed.

    Networks put out the logarithm of rate / mean, so that 0 stands for the mean; predictions are rates, the counts that
    are expected. The loss is the Poisson negative log-likelihood.

    Attributes:
        mean: of the counts, over the training rows of the client, or of all clients (``targets: pooled``).
        target: what is counted.

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
    def facts(cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None) -> dict[str, Any]:
        """Count of rows, and their mean."""
        values = _counts(target)
        return {"task": cls.name, "target": target.name, "count": len(values), "mean": float(values.mean())}

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """Centred at the mean of the rows of all."""
        told = [facts[name] for name in sorted(facts)]
        count, means = (np.array([own[key] for own in told]) for key in ("count", "mean"))
        mean = float((count * means).sum() / count.sum())
        if mean == 0:
            raise DataError(
                f"client {client!r}, target {str(facts[client]['target'])!r}: expected a count above 0 in its training "
                f"rows, found 0 in all {count.sum():,}; no rate can be learnt from it. Leave the client out, or let "
                "clients share their mean with task: {name: counts, targets: pooled}"
            )
        return cls(mean, str(facts[client]["target"]))

    def encode(self, target: pd.Series) -> Tensor:
        """(n,) float32, the counts themselves.

        Raises:
            DataError: values that are no counts.
        """
        return torch.from_numpy(_counts(target).astype(np.float32))

    @property
    def meaning(self) -> tuple[str, ...]:
        """Which rate 0 stands for."""
        return (f"log rate of {self.target} with 0 for {self.mean:.6g}",)

    @property
    def described(self) -> dict[str, Any]:
        """What is counted, and its mean."""
        return {"classes": [], "task": self.name, "target": self.target, "mean": self.mean}

    @property
    def alike(self) -> tuple[str, float]:
        """Those of one mean."""
        return self.name, self.mean

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean Poisson negative log-likelihood, in nats; of log y! as Stirling's formula has it, so that losses of
        large and small counts are of one size.
        """
        return functional.poisson_nll_loss(outputs[:, 0] + math.log(self.mean), y.to(outputs.dtype), full=True)

    def predict(self, outputs: Tensor) -> Tensor:
        """(n, 1) float64: the rate, in the user's units."""
        return outputs.double().exp() * self.mean

    def of_members(self, outputs: Tensor) -> Tensor:
        """See :class:`~fedlit.tasks.base.Task`."""
        return outputs.logsumexp(1) - math.log(outputs.shape[1])

    def scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """Mean Poisson deviance; D², 1 − deviance / that of the scored rows' mean, which is undefined where counts do
        not vary; RMSE and MAE. In float64.
        """
        true, rate = self.true(y), predictions[:, 0].cpu().double()
        finite = len(y) > 0 and bool(torch.isfinite(rate).all())

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            # rows are repeated, not weighted: a sum of repeated numbers is the only one that has its bits
            own, found = (x if counts is None else x.repeat_interleave(counts.cpu()) for x in (true, rate))
            nan = own.new_tensor(math.nan)
            if not finite or not len(own):
                return dict.fromkeys(("deviance", "d2", "rmse", "mae"), nan)
            deviance, varies = _deviance(own, found), own.min() < own.max()
            return {
                "deviance": deviance,
                "d2": 1 - deviance / _deviance(own, own.mean().expand_as(own)) if varies else nan,
                "rmse": (own - found).square().mean().sqrt(),
                "mae": (own - found).abs().mean(),
            }

        return score

    def true(self, y: Tensor) -> Tensor:
        """The counts themselves."""
        return y.cpu().double()

    def frame(self, row: np.ndarray, y: Tensor, predictions: Tensor) -> pd.DataFrame:
        """``row``, ``target``, ``predicted``: the count, and the rate."""
        import pandas as pd

        own = {"row": row, "target": y.long().numpy()}
        return pd.DataFrame({**own, **self.outcome.columns(predictions.numpy())})

    @classmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor] | None:
        """Counts and rates."""
        target, predicted = (frame[name].astype("float64").to_numpy() for name in ("target", "predicted"))
        return cls(), torch.tensor(predicted)[:, None], torch.tensor(target)


_MOST = 2**24
"""Counts up to this one are whole numbers in float32."""


def _deviance(count: Tensor, rate: Tensor) -> Tensor:
    """Mean Poisson deviance: 2 (y log(y / μ) − y + μ); infinite where a rate of 0 meets a count."""
    return 2 * (torch.where(count > 0, count * (count / rate).log(), 0.0) - count + rate).mean()


def _counts(target: pd.Series) -> np.ndarray:
    """As float64.

    Raises:
        DataError: not numbers, negative, fractional, or too large; with how many, and one of them.
    """
    values = numbers_of(target, "counts")
    wrong = (values < 0) | (values % 1 != 0) | (values > _MOST)
    if wrong.any():
        raise DataError(
            f"target {target.name!r}: expected counts (whole numbers from 0 to {_MOST:,}) for task: counts, found "
            f"{int(wrong.sum())} others of {len(values)}, such as {values[wrong][0]:g} in row "
            f"{target.index[wrong][0]}; mend or drop those rows, or take task: regression"
        )
    return values
