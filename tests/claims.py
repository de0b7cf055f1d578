"""A task that fedlit does not ship, in one file: how many claims a year, of claims in so many years.

The target is two columns, the prediction too, and the loss of a row depends on both columns of the
target, as that of a time and an event does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.errors import DataError
from fedlit.outcomes.base import (
    Logarithm,
    Outcome,
    RowLoss,
    minus_log,
    slope_of_minus_log,
)
from fedlit.show.text import in_rows
from fedlit.tasks.base import LOSS, Score, Scorer, Task, weighted_mean
from fedlit.tasks.baselines import COUNTERS
from fedlit.tasks.go_alone import GoAlone
from fedlit.types import Floats


@dataclass(frozen=True)
class ClaimsAYear(Outcome):
    """Claims a year, and the probability of at least one in a year: predictions (n, 2)."""

    mean: float = 1.0

    number: ClassVar[bool] = True
    several_columns: ClassVar[bool] = True
    estimator: ClassVar[Literal["Classifier", "Regressor"] | None] = "Regressor"
    one_model_each: ClassVar[bool] = True

    @property
    def width(self) -> int:
        return 2

    def columns(self, predictions: np.ndarray) -> dict[str, Any]:
        return {"predicted": predictions[:, 0], "predicted_any": predictions[:, 1]}

    def of_model(self, model: Any, x: np.ndarray) -> np.ndarray:
        claims, years = (np.asarray(each.predict(x), np.float64) for each in model.fitted)
        rate = np.maximum(claims / np.maximum(years, 1e-3), self.mean / 1000)
        return np.stack([rate, -np.expm1(-rate)], 1)

    def row_loss(self, y: np.ndarray, log: Logarithm = np.log) -> RowLoss:
        claims, years = y.astype(np.float64).T
        least = np.where(claims > 0, claims * log(np.maximum(claims / years, 1e-300)) - claims, 0.0)

        def losses(predictions: Floats) -> Floats:
            rate = predictions[:, 0]
            return rate * years + claims * minus_log(rate, log) + least

        def slopes(predictions: Floats) -> Floats:
            slope = years + slope_of_minus_log(predictions[:, 0], claims)
            return np.stack([slope, np.zeros(len(slope))], 1)

        return RowLoss(losses, slopes, np.ones(len(y), bool))


FOREST = GoAlone(
    "forest_of_claims",
    "sklearn.ensemble.RandomForestRegressor",
    grid={"n_estimators": [5], "min_samples_leaf": [3]},
    label="Forest of claims",
    by_column=True,
    on_request=True,
)


@dataclass(frozen=True)
class Claims(Task):
    """Prediction of claims a year."""

    mean: float = 1.0

    outcome_type: ClassVar[type[Outcome]] = ClaimsAYear
    scores: ClassVar[tuple[Score, ...]] = (
        Score("claims_deviance", "Deviance a year", higher_is_better=False, percent=False, low=0.0),
        LOSS,
    )
    more_facts: ClassVar[tuple[str, ...]] = ("years",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"targets": ("client", "pooled")}
    go_alone: ClassVar[Mapping[str, GoAlone]] = {**COUNTERS, "forest_of_claims": FOREST}

    @classmethod
    def facts(cls, target: pd.Series, settings: Mapping[str, str], positive: Any = None) -> Any:
        claims, years = cls._values(target).T
        columns: Any = target.name
        name = ", ".join(columns)
        total = float(years.sum())
        mean = float(claims.sum()) / total
        return {
            "task": cls.name,
            "target": name,
            "count": len(target),
            "mean": mean,
            "years": total,
        }

    @classmethod
    def agree(cls, client: str, facts: Mapping[str, Mapping[str, Any]]) -> Claims:
        each = [facts[name] for name in sorted(facts)]
        years = np.array([own["years"] for own in each])
        return cls(float((np.array([own["mean"] for own in each]) * years).sum() / years.sum()))

    @classmethod
    def _values(cls, target: pd.Series) -> np.ndarray:
        values = np.array(target.tolist(), np.float64)
        wrong = target[~(np.isfinite(values).all(1) & (values[:, 1] > 0))]
        if len(wrong):
            columns: Any = target.name
            raise DataError(
                f"target {', '.join(columns)}: expected claims, and years above 0, found "
                f"{in_rows(wrong.index, wrong)}; correct these rows, or leave them out"
            )
        return values

    def encode(self, target: pd.Series) -> Tensor:
        return torch.from_numpy(self._values(target).astype(np.float32))

    def unknown(self, rows: int) -> Tensor:
        return torch.full((rows, 2), math.nan)

    def known(self, y: Tensor) -> Tensor:
        return (y == y).all(1)

    @property
    def outputs(self) -> int:
        return 1

    @property
    def output_names(self) -> tuple[str, ...]:
        return ("claims",)

    @property
    def described(self) -> dict[str, Any]:
        return {"classes": [], "task": self.name, "mean": self.mean}

    @property
    def alike(self) -> tuple[str, float]:
        return self.name, self.mean

    def loss(
        self, outputs: Tensor, y: Tensor, weight: Tensor | None = None, rows: Tensor | None = None
    ) -> Tensor:
        logarithm = outputs[:, 0] + math.log(self.mean) + y[:, 1].log()
        return weighted_mean(logarithm.exp() - y[:, 0] * logarithm, rows)

    def predict(self, outputs: Tensor) -> Tensor:
        rate = outputs.double().exp() * self.mean
        return torch.cat([rate, -torch.expm1(-rate)], 1)

    def _scorer(self, predictions: Tensor, y: Tensor) -> Scorer:
        row_loss: Any = self.outcome.row_loss(y.cpu().numpy())
        losses = 2 * row_loss(predictions.cpu().double().numpy())
        each = torch.from_numpy(losses)
        years = y[:, 1].cpu().double()

        def score(counts: Tensor | None) -> dict[str, Tensor]:
            times = torch.ones_like(each) if counts is None else counts.cpu().double()
            return {"claims_deviance": (times * each).sum() / (times * years).sum()}

        return score

    def written(self, y: Tensor) -> dict[str, Any]:
        claims, years = y.numpy().T
        return {"target_claims": claims, "target_years": years}

    def read(self, frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
        names = ["predicted", "predicted_any"], ["target_claims", "target_years"]
        predictions, y = (
            torch.tensor(frame[list(own)].astype("float64").to_numpy()) for own in names
        )
        return self, predictions, y
