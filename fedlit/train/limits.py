"""What Lightning's Trainer has to say about the end of a training: its limits, and callbacks that
stop it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping, Timer

from fedlit.errors import ConfigError, expect
from fedlit.train.stop import CALLBACK, EPOCHS, STEPS, TIME, Ending


def limit_of(trainer: Trainer, epochs: int) -> str:
    """Return which limit of the Trainer ends the run now; an empty text if none does.

    Args:
        trainer: the trainer.
        epochs: the number of epochs that are done.
    """
    if trainer.global_step == trainer.max_steps:
        return STEPS
    # Lightning goes on to these, whoever wants to stop
    least = epochs >= (trainer.min_epochs or 0) and trainer.global_step >= (trainer.min_steps or 0)
    if trainer.should_stop and least:
        return TIME if time_is_up(trainer) else CALLBACK
    return EPOCHS if epochs == trainer.max_epochs else ""


def last_step(trainer: Trainer, epochs: int | None) -> int | None:
    """Return the number of aligned steps with which a federation is planned to end; None if it is
    not known.

    Args:
        trainer: the trainer.
        epochs: the number of its epochs, if it is known.
    """
    steps = [] if epochs is None else [epochs * int(trainer.num_training_batches)]
    if trainer.max_steps >= 0:
        steps.append(trainer.max_steps)
    return min(steps, default=None)


def time_is_up(trainer: Trainer) -> bool:
    """Return whether ``max_time`` has passed."""
    timers = [callback for callback in trainer.callbacks if isinstance(callback, Timer)]  # type: ignore[attr-defined]
    remaining = [timer.time_remaining() for timer in timers]
    return any(seconds is not None and seconds <= 0 for seconds in remaining)


def check_stops(trainer: Trainer, ending: Ending) -> None:
    """Refuse what would end the run beside fedlit's own decision, without regard for what follows
    the federation.

    Args:
        trainer: the trainer.
        ending: fedlit's decision.

    Raises:
        ConfigError: there is Lightning's EarlyStopping beside ``model.then``, ``keep`` or
            ``average``, or what :func:`check_least` refuses.
    """
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    if ending.personal.wanted and any(
        isinstance(callback, EarlyStopping) for callback in callbacks
    ):
        raise ConfigError(
            "trainer.callbacks: expected no EarlyStopping beside model.then, keep or average, "
            "which it would cut off, found one; set model.stop: {monitor: val/loss, patience: 30}"
        )
    if ending.stop is not None:
        check_least({"min_epochs": trainer.min_epochs, "min_steps": trainer.min_steps})


def check_least(options: Mapping[str, Any]) -> None:
    """Refuse a least number of epochs or steps of the Trainer beside ``model.stop``: Lightning
    would not tell whether a stop before it still holds.

    Args:
        options: options of the Trainer, by name.

    Raises:
        ConfigError: there is one.
    """
    for name in ("min_epochs", "min_steps"):
        least = options.get(name) or 0
        expect(
            least <= 1,
            f"trainer.{name}",
            "none beside model.stop",
            least,
            "set model.stop.min_epochs",
        )
