"""What a score is, and which scores and local baselines are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlit.tasks.go_alone import GoAlone


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

    @property
    def may_decide(self) -> bool:
        """Whether models may be chosen by it."""
        return not (self.test_only or self.context)

    def gain(self, first: Any, second: Any) -> Any:
        """Return by how much the first value is better than the second, positive if it is better.
        Both are numbers, or arrays, tensors or series of numbers.
        """
        if self.higher_is_better:
            return first - second
        return second - first

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
        if self.percent:
            return matters / 100
        return matters / 100 * abs(value)

    def best(self, values: Mapping[str, float]) -> str | None:
        """Return the name with the best value, the first among equals; None if no value is a
        number.
        """
        numbers = {name: value for name, value in values.items() if not math.isnan(value)}
        choose = max if self.higher_is_better else min
        return choose(numbers, key=numbers.__getitem__, default=None)

    def worst(self, values: Mapping[str, float]) -> str | None:
        """Return the name with the worst value, the first among equals; None if no value is a
        number.
        """
        numbers = {name: value for name, value in values.items() if not math.isnan(value)}
        choose = min if self.higher_is_better else max
        return choose(numbers, key=numbers.__getitem__, default=None)

    def text(self, value: float, *, signed: bool = False) -> str:
        """Return the number as text for the user: percentages with two decimals, all others with
        four significant digits.
        """
        if not math.isfinite(value):
            return "–"
        sign = "+" if signed else ""
        if self.percent:
            return f"{100 * value + 0.0:{sign}.2f}"
        return f"{value + 0.0:{sign}.4g}"


LOSS = Score("loss", "Loss", higher_is_better=False, percent=False)


SCORES: dict[str, Score] = {}
"""The scores of all tasks that ship with fedlit or whose modules have been imported, by name."""


COMPARED: dict[str, Score] = {}
"""The scores by which models of different kinds can be compared."""


BASELINES: dict[str, None] = {}
"""The names of these tasks' local baselines, each once."""


def add_task(scores: Iterable[Score], go_alone: Mapping[str, GoAlone]) -> None:
    """Add a task's scores and local baselines to those that are known; the first one counts if
    names are equal.
    """
    for score in scores:
        SCORES.setdefault(score.name, score)
        if score.name != LOSS.name and not score.context:
            COMPARED.setdefault(score.name, score)
    BASELINES.update(dict.fromkeys(go_alone))


def by_name(scores: Iterable[Score]) -> dict[str, Score]:
    """Return scores by their names; the first one counts if names are equal."""
    named: dict[str, Score] = {}
    for score in scores:
        named.setdefault(score.name, score)
    return named
