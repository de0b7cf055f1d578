"""Regression: a number, standardised for the network, predicted in the user's units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlit.tasks.base import LOSS, Score, Scorer, Task
from fedlit.tasks.go_alone import REGRESSORS, GoAlone
from fedlit.tasks.number import MAE, RMSE, Number, numbers_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Regression"]


@dataclass(frozen=True)
class Regression(Number):
    """A number.

    Networks see (target − mean) / scale; predictions, RMSE and MAE are in the user's units, the loss is not.

    Attributes:
        kind: what is minimised: the ``squared`` error, or ``huber``'s, which grows linearly beyond one scale.
        mean: of the target, over the training rows of the client, or of all clients (``targets: pooled``).
        scale: its standard deviation there.
        target: what the number is called.

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
    scores: ClassVar[tuple[Score, ...]] = (
        RMSE,
        MAE,
        Score("r2", "R²", percent=False, high=1.0),
        LOSS,
    )
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"loss": ("squared", "huber"), "targets": ("client", "pooled")}
    go_alone: ClassVar[Mapping[str, GoAlone]] = REGRESSORS

    @classmethod
    def facts(cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None) -> dict[str, Any]:
        """Count, mean and variance of the target."""
        values = numbers_of(target, "regression")
        return {
            "task": cls.name,
            "target": target.name,
            "loss": settings.get("loss", "squared"),
            "count": len(values),
            "mean": float(values.mean()),
            "variance": float(values.var()),
        }

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Self:
        """Standardised by the rows of all."""
        told = [facts[name] for name in sorted(facts)]
        count, means, variances = (np.array([own[key] for own in told]) for key in ("count", "mean", "variance"))
        mean = (count * means).sum() / count.sum()
        variance = (count * (variances + (means - mean) ** 2)).sum() / count.sum()
        # a constant target is learnt in its own unit; what rounding leaves of its variance is none
        scale = math.sqrt(variance) if variance > (1e-12 * mean) ** 2 else 1.0
        return cls(facts[client]["loss"], float(mean), scale, str(facts[client]["target"]))

    def encode(self, target: pd.Series) -> Tensor:
        """(n,) float32, standardised.

        Raises:
            DataError: values that are no finite numbers.
        """
        values = numbers_of(target, "regression", self.mean, self.scale)
        return torch.from_numpy(((values - self.mean) / self.scale).astype(np.float32))

    @property
    def meaning(self) -> tuple[str, ...]:
        """Which numbers 0 and 1 stand for."""
        return (f"{self.target} with 0 for {self.mean:.6g}", f"1 for {self.mean + self.scale:.6g}")

    @property
    def described(self) -> dict[str, Any]:
        """What is predicted, and how it is standardised."""
        return {"classes": [], "task": self.name, "target": self.target, "mean": self.mean, "scale": self.scale}

    @property
    def alike(self) -> tuple[str, str]:
        """Those of one loss."""
        return self.name, self.kind

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean squared or Huber error, in units of the scale."""
        measure = functional.mse_loss if self.kind == "squared" else functional.huber_loss
        return measure(outputs[:, 0], y.to(outputs.dtype))

    def predict(self, outputs: Tensor) -> Tensor:
        """(n, 1) float64, in the user's units: beside a large mean, float32 would lose what is predicted."""
        return outputs.double() * self.scale + self.mean

    def scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        """RMSE, MAE and R², in float64; R² is undefined where the target does not vary."""
        value = self.true(y)
        error = predictions[:, 0].cpu().double() - value
        finite = len(y) > 0 and bool(torch.isfinite(error).all())

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            # rows are repeated, not weighted: a sum of repeated numbers is the only one that has its bits
            own, wrong = (x if counts is None else x.repeat_interleave(counts.cpu()) for x in (value, error))
            nan = own.new_tensor(math.nan)
            if not finite or not len(own):
                return dict.fromkeys(("rmse", "mae", "r2"), nan)
            spread, missed = (own - own.mean()).square().sum(), wrong.square().sum()
            varies = own.min() < own.max()
            return {
                "rmse": (missed / len(own)).sqrt(),
                "mae": wrong.abs().mean(),
                "r2": 1 - missed / spread if varies else nan,
            }

        return score

    def true(self, y: Tensor) -> Tensor:
        """In the user's units."""
        return y.cpu().double() * self.scale + self.mean

    def frame(self, row: np.ndarray, y: Tensor, predictions: Tensor) -> pd.DataFrame:
        """``row``, ``target``, ``predicted``: the target to a millionth of the scale, as a standardised float32 has it;
        what is predicted to a thousandth of that.
        """
        import pandas as pd

        digits = 6 - math.ceil(math.log10(self.scale))
        target = np.round(y.double().numpy() * self.scale + self.mean, digits) + 0.0
        return pd.DataFrame({"row": row, "target": target, **self.outcome.columns(predictions.numpy())})

    @classmethod
    def read(cls, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor] | None:
        """In the user's units."""
        target, predicted = (frame[name].astype("float64").to_numpy() for name in ("target", "predicted"))
        task = cls()
        return task, torch.tensor(predicted)[:, None], torch.tensor(target)
