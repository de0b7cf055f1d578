"""The fine-tuning that follows a federation, as it is configured."""

from dataclasses import dataclass
from typing import Literal

from fedlit.errors import ConfigError


@dataclass
class FineTune:
    """Each client trains all its tensors further on its own rows, from the best of its epochs; nothing is exchanged.

    Attributes:
        epochs: the largest number of epochs; they follow the ``trainer.max_epochs`` epochs of the federation.
        patience: the number of scored epochs without an improvement on its validation rows after which a client stops.
        lr: the learning rate; that of ``model.optimizer`` if None. Schedules do not change it.
        average: the share of the average over epochs that is kept in each epoch (see ``model.average``).

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> FineTune(epochs=10, lr=0.001).patience
        5
    """

    epochs: int = 25
    patience: int = 5
    lr: float | None = None
    average: float = 0.0

    def __post_init__(self) -> None:
        wrong = [f"{name} {getattr(self, name)}" for name in ("epochs", "patience") if getattr(self, name) < 1]
        wrong += [f"lr {self.lr}"] if self.lr is not None and not self.lr > 0 else []
        if wrong:
            raise ConfigError(
                "model.then.fine_tune: expected epochs and patience of at least 1 and lr above 0, found "
                f"{', '.join(wrong)}"
            )
        check_share("model.then.fine_tune.average", self.average)


@dataclass
class Then:
    """The fine-tuning that follows the federation.

    Attributes:
        fine_tune: how clients are fine-tuned; not at all if None.
    """

    fine_tune: FineTune | None = None


def then_of(then: Then | Literal["fine_tune"] | None) -> FineTune | None:
    """Return the fine-tuning that a configuration asks for; None if it asks for none."""
    return FineTune() if then == "fine_tune" else then.fine_tune if isinstance(then, Then) else None


def check_share(key: str, value: float) -> None:
    """Refuse a value that is not a share in [0, 1)."""
    if not 0 <= value < 1:
        raise ConfigError(f"{key}: expected a share in [0, 1), found {value}; 0 for no average")
