"""Lightning's Trainer of a run: what the user asked for, with what is decided here."""

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

__all__ = ["make_trainer"]


def make_trainer(
    options: Mapping[str, Any],
    callbacks: Sequence[Callback],
    loggers: Sequence[Any],
    io: AtomicCheckpointIO,
    *,
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
    given = {key: value for key, value in options.items() if key not in ("callbacks", "logger", "plugins")}
    callbacks = [*callbacks, *listed(options.get("callbacks"))]
    own_bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
    if len(own_bars) > 1:  # one that the user brought takes the place of ours
        callbacks.remove(own_bars[0])
    plugins = [*listed(options.get("plugins")), io]
    decided = {
        "default_root_dir": folder,
        "enable_progress_bar": bool(own_bars),
        "enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks),
    }
    defaults: dict[str, Any] = {
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "devices": 1,
        "log_every_n_steps": 1,
    }
    if group.size > 1:  # Lightning would have the ranks be devices of one module
        plugins.append(LightningEnvironment())
        defaults["devices"] = own_device(group, given.get("accelerator"))
        given.pop("devices", None)
    given = with_tuning({key: value for key, value in given.items() if value is not None and value != "auto"}, loop)
    with without_hints():
        try:
            return Trainer(
                **{**defaults, **given, **decided},
                logger=list(loggers) or False,
                plugins=plugins,
                callbacks=callbacks,
            )
        except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
            raise ConfigError(f"trainer: expected options that Lightning's Trainer accepts, found: {error}") from error
