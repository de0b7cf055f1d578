"""How long a federation is planned to train, as far as the Trainer's options say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedlit.exchange.schedule import Every

_EPOCHS = 1000
"""What Lightning trains where no option limits a training."""


@dataclass(frozen=True)
class Length:
    """The planned length of a federation, without the fine-tuning that may follow it.

    Attributes:
        epochs: the number of epochs; None if only time or a callback ends the training.
        steps: the number of aligned steps of an epoch.
        most: the number of aligned steps after which the run ends; None if there is no such limit.

    Example:
        >>> length = Length(epochs=7, steps=4)
        >>> length.rounds({"epochs": 5}), length.left({"epochs": 5})
        (1, 8)
    """

    epochs: int | None
    steps: int
    most: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], steps: int) -> Length:
        """Return the length that options of the Trainer give.

        Args:
            options: the options by name.
            steps: the number of aligned steps that the data have in an epoch.
        """
        share = options.get("limit_train_batches")
        if isinstance(share, float):
            steps = int(steps * share)
        elif share is not None:
            steps = min(steps, share)
        most = _limit(options.get("max_steps"))
        epochs = _limit(options.get("max_epochs"))
        if options.get("max_epochs") is None and most is None and options.get("max_time") is None:
            epochs = _EPOCHS
        return cls(epochs, steps, most)

    @property
    def total(self) -> int | None:
        """The number of aligned steps in all; None if there is no limit."""
        limits = [] if self.most is None else [self.most]
        if self.epochs is not None:
            limits.append(self.epochs * self.steps)
        return min(limits, default=None)

    def rounds(self, every: Every, *, completes: bool = False) -> int | None:
        """Return the number of exchanges; None if there is no limit.

        Args:
            every: the schedule.
            completes: whether the last step is an exchange, whatever the schedule.
        """
        total = self.total
        period = self._period(every)
        if total is None or period == 0:
            return None
        whole_periods, rest = divmod(total, period)
        if completes and rest:
            return whole_periods + 1
        return whole_periods

    def left(self, every: Every) -> int | None:
        """Return how many aligned steps follow the last exchange of a schedule; None if there is no
        limit.
        """
        total = self.total
        period = self._period(every)
        if total is None or period == 0:
            return None
        return total % period

    def _period(self, every: Every) -> int:
        """Return the number of aligned steps between two exchanges."""
        if not isinstance(every, dict):
            return 1 if every == "step" else self.steps
        if "steps" in every:
            return every["steps"]
        return every["epochs"] * self.steps


def _limit(value: int | None) -> int | None:
    if value is None or value == -1:
        return None
    return int(value)
