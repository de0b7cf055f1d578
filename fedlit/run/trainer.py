"""Lightning's Trainer of a run: the user's options, with what is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar

from fedlit.errors import ConfigError
from fedlit.exchange.transport import Group
from fedlit.run.options import listed, own_device, with_tuning, without_hints
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO
from fedlit.train.loop import FederatedLoop

__all__ = ["DEFAULTS", "make_trainer"]

DEFAULTS = {"enable_model_summary": False, "num_sanity_val_steps": 0, "devices": 1, "log_every_n_steps": 1}
"""Options that differ from Lightning's where the user gives none."""


def make_trainer(
    options: Mapping[str, Any],
    callbacks: Sequence[Callback],
    loggers: Sequence[Any],
    io: AtomicCheckpointIO,
    folder: Path,
    loop: FederatedLoop,
    group: Group,
) -> Trainer:
    """Make the Trainer.

    Args:
        options: as the user gave them; those that are None or ``auto`` are left to Lightning.
        callbacks: ours, which come before the user's.
        loggers: none, one or several.
        io: writes checkpoints.
        folder: the run's.
        loop: whose clients are trained.
        group: the processes that clients are dealt to.

    Raises:
        ConfigError: Lightning refuses an option.
    """
    given = {key: value for key, value in options.items() if value is not None and value != "auto"}
    callbacks = [*callbacks, *listed(given.pop("callbacks", None))]
    plugins = [*listed(given.pop("plugins", None)), io]
    bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
    if len(bars) > 1:  # the user's own takes the place of ours
        callbacks.remove(bars[0])
    if group.size > 1:  # Lightning would take the ranks for devices of one module
        plugins.append(LightningEnvironment())
        given["devices"] = own_device(group, given.get("accelerator"))
    decided = {
        "default_root_dir": folder,
        "enable_progress_bar": bool(bars),
        "enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks),
        "logger": list(loggers) or False,
        "plugins": plugins,
        "callbacks": callbacks,
    }
    with without_hints():
        try:
            return Trainer(**{**DEFAULTS, **with_tuning(given, loop), **decided})
        except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
            raise ConfigError(f"trainer: expected options that Lightning's Trainer accepts, found: {error}") from error
