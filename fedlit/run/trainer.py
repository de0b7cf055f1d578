"""Lightning's Trainer of a run: checks the user's options, refuses those that a federation cannot support, and sets the
others.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar, Timer

from fedlit.errors import ConfigError
from fedlit.exchange.transport import Transport
from fedlit.run.config import listed
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO
from fedlit.train.loop import FederatedLoop

DEFAULTS = {"enable_model_summary": False, "num_sanity_val_steps": 0, "devices": 1, "log_every_n_steps": 1}
"""Options that differ from Lightning's where the user gives none."""


def is_part(limit: Any) -> bool:
    """Return whether a limit of batches of the trainer leaves some out: 1 is one batch, 1.0 is all.

    Example:
        >>> is_part(1), is_part(0.5), is_part(1.0), is_part(None)
        (True, True, False, False)
    """
    return limit not in (None, 1.0) or isinstance(limit, int)


_DEVICES = (
    "a process trains its clients on one device; leave it out. To deal clients to several processes, each with a "
    "device: torchrun --nproc-per-node N -m fedlit fit …"
)
_PART = "would score a part as the whole; leave it out"
_REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "devices": (lambda value: value not in ("auto", 1, "1"), _DEVICES),
    "strategy": (lambda value: value != "auto", _DEVICES),
    "barebones": (bool, "leaves out what a run needs (checkpoints, logs); leave it out"),
    "fast_dev_run": (
        bool,
        "keeps nothing; set trainer.max_epochs: 1 and trainer.limit_train_batches: 2, which is as short",
    ),
    "limit_val_batches": (is_part, _PART),
    "limit_test_batches": (is_part, _PART),
    "limit_predict_batches": (is_part, _PART),
    "overfit_batches": (bool, f"{_PART}, or set trainer.limit_train_batches to train on fewer batches"),
    "limit_train_batches": (lambda value: value == 0, "0 would train nothing; leave it out"),
    "gradient_clip_val": (bool, "clips one module; set model.gradient_clip_val, which clips each client"),
    "accumulate_grad_batches": (lambda value: value != 1, "does not reach the clients; set model.accumulate"),
    "precision": (
        lambda value: str(value) in ("16", "16-mixed"),
        "16-mixed scales all clients' losses by one factor, so that one client's overflow would halve everyone's; use "
        "bf16-mixed or 32-true",
    ),
}
"""Option of the Trainer → which values a federation of several optimizers refuses, and why."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse, in a single message, all options that a federation of several optimizers cannot support."""
    given = {key: options.get(key) for key in _REFUSED if options.get(key) is not None}
    if problems := [f"trainer.{key}: {_REFUSED[key][1]}" for key, value in given.items() if _REFUSED[key][0](value)]:
        raise ConfigError("\n".join(problems))


def check_clocks(options: Mapping[str, Any]) -> None:
    """Refuse options that depend on the clock if clients are on several ranks, because each rank has its own clock, and
    all must do the same at the same step.
    """
    found = ["trainer.max_time"] if options.get("max_time") else []
    for callback in listed(options.get("callbacks")):
        if isinstance(callback, Timer):
            found.append("trainer.callbacks: Timer")
        elif getattr(callback, "_train_time_interval", None) is not None:
            found.append(f"trainer.callbacks: train_time_interval of {type(callback).__name__}")
    if found:
        raise ConfigError(
            f"{', '.join(found)}: expected what goes by epochs or steps, for ranks have clocks of their own; set "
            "trainer.max_epochs or max_steps, and checkpoint.seconds, which all ranks keep to together"
        )


@contextmanager
def without_hints() -> Iterator[None]:
    """Leave out Lightning's hints that do not apply to a federation in memory, whose run folder fedlit chooses
    itself.
    """
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    hints = (
        "The `srun` command",
        ".*does not have many workers",
        ".*Checkpoint directory .* exists and is not empty",
        "Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
        "The dirpath has changed from",
        ".*LeafSpec.* is deprecated",
        ".*constrained_layout not applied",  # names of clients may be as long as a picture is wide
        ".*could not find the monitored key",  # the run ended before anything was scored, which Run.fit says
        ".*precision=bf16. is supported for historical reasons",
    )
    try:
        with warnings.catch_warnings():
            for hint in hints:
                warnings.filterwarnings("ignore", hint)
            yield
    finally:
        logger.setLevel(level)


def with_tuning(options: Mapping[str, Any], loop: FederatedLoop) -> dict[str, Any]:
    """Return a Trainer's options in which ``max_epochs``, which counts the federation's epochs, also includes those of
    fine-tuning.
    """
    tune = loop.federation.training.tune
    if tune is None or (options.get("max_epochs") or -1) <= 0:
        return dict(options)
    return {**options, "max_epochs": options["max_epochs"] + tune.epochs}


def make_trainer(
    options: Mapping[str, Any],
    callbacks: Sequence[Callback],
    loggers: Sequence[Any],
    io: AtomicCheckpointIO,
    folder: Path,
    loop: FederatedLoop,
    group: Transport,
) -> Trainer:
    """Make the Trainer.

    Args:
        options: the options that the user gave; those that are None or ``auto`` are left to Lightning.
        callbacks: fedlit's callbacks, which come before the user's.
        loggers: none, one or several.
        io: the object that writes checkpoints.
        folder: the folder of the run.
        loop: the loop whose clients are trained.
        group: the processes to which clients are dealt.

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
        on_cpu = str(given.get("accelerator")).lower() == "cpu" or not (devices := torch.cuda.device_count())
        given["devices"] = 1 if on_cpu else [group.local % devices]  # several share one where there are fewer
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
