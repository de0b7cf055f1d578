"""What a task is: what is predicted of a row, what is minimised, and by which scores it is judged."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

__all__ = ["Score", "Task"]


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

    def gain(self, first: Any, second: Any) -> Any:
        """How much better the first is than the second: positive where it is better."""
        return first - second if self.higher_is_better else second - first

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


class Task(ABC):
    """What is predicted of a client's rows. A task belongs to a client; clients of one federation may have different
    ones around a shared core.

    Attributes:
        name: as configurations call it.
        scores: by which predictions are judged, the main one first; ``loss`` is among them.
    """

    name: ClassVar[str]
    scores: ClassVar[tuple[Score, ...]]

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Width of what a network puts out for a row."""

    @property
    @abstractmethod
    def output_names(self) -> tuple[str, ...]:
        """What each output is called, for people."""

    @property
    @abstractmethod
    def predicted(self) -> int:
        """Width of what is predicted of a row (probabilities of all classes, or a value)."""

    @abstractmethod
    def encode(self, target: pd.Series) -> Tensor:
        """Labels as a tensor (n,), in whatever type ``loss`` takes."""

    @abstractmethod
    def known(self, y: Tensor) -> Tensor:
        """Of which rows the label is one that can be predicted: (n,) bool."""

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """What is minimised: the mean over rows, a scalar."""

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """What is predicted, (n, predicted) float32, in the units that people read."""

    @abstractmethod
    def evaluate(self, predictions: Tensor, y: Tensor, counts: Tensor | None = None) -> dict[str, Tensor]:
        """Scores by name, exact.

        Args:
            predictions: (n, predicted) float.
            y: (n,) as ``encode`` gives them.
            counts: (n,) int64, how often each row counts; once if None. Of ones they give the same bits as None.

        Returns:
            Scalars; NaN where a score is not defined.
        """

    @abstractmethod
    def frame(self, row: np.ndarray, y: Tensor, predictions: Tensor) -> pd.DataFrame:
        """Predictions as people read them, one row per row: ``row``, ``target``, what is predicted, ``predicted``."""

    @classmethod
    def score(cls, name: str) -> Score:
        """The score of a name."""
        return next(score for score in cls.scores if score.name == name)


def by_name(scores: Iterable[Score]) -> dict[str, Score]:
    """Scores by their names."""
    return {score.name: score for score in scores}
