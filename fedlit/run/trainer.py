"""Lightning's Trainer of a run: checks the user's options, refuses those that a federation cannot
support, and sets the others, such as the loggers; what is said of it before training begins.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    Checkpoint,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    ProgressBar,
    StochasticWeightAveraging,
    Timer,
    WeightAveraging,
)
from lightning.pytorch.callbacks.spike import SpikeDetection
from lightning.pytorch.loggers import Logger

from fedlit.errors import ConfigError, expect, told_as
from fedlit.run.config import listed
from fedlit.run.keys import REFUSED
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO
from fedlit.train.logger import BoardSettings, FederatedTensorBoardLogger

DEFAULTS = {
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "devices": 1,
    "log_every_n_steps": 1,
}
"""Options that differ from Lightning's where the user gives none."""
_CALLBACKS = {
    StochasticWeightAveraging: "does not reach the clients; set model.average, which averages each "
    "client's weights",
    WeightAveraging: "does not reach the clients; set model.average, which averages each client's "
    "weights",
    GradientAccumulationScheduler: "does not reach the clients; set model.accumulate",
    BatchSizeFinder: "sets no client's batch size; set data.batches or data.batch_size",
    LearningRateFinder: "sets no client's learning rate; set model.optimizer.lr, or search it with "
    "fedlit compare",
    BaseFinetuning: "does not reach the clients; write what is frozen into the client's class",
    SpikeDetection: "does not see the clients' losses; leave it out",
    ModelPruning: "does not reach the clients; leave it out",
}
"""Lightning's callbacks that change how one module is trained → why a federation refuses them, and
what it has."""
_ONE_SCALE = (
    "16-mixed scales all clients' losses by one factor, so that one client's overflow would halve "
    "everyone's; use bf16-mixed or 32-true"
)


def check_options(options: Mapping[str, Any], ranks: int = 1) -> None:
    """Refuse, in a single message, all options that a federation of several optimizers cannot
    support.
    """
    usual = inspect.signature(Trainer).parameters
    problems = {
        key: why
        for key, why in REFUSED.items()
        if str(options.get(key)) not in ("None", str(usual[key].default), str(DEFAULTS.get(key)))
    }
    if options.get("limit_train_batches") == 0:
        problems["limit_train_batches"] = "0 would train nothing; leave it out"
    if str(options.get("precision")) in ("16", "16-mixed"):
        problems["precision"] = _ONE_SCALE
    if ranks > 1 and options.get("max_time"):
        problems["max_time"] = (
            "each rank has a clock of its own; set trainer.max_epochs or max_steps"
        )
    for callback in listed(options.get("callbacks")):
        problems |= {
            f"callbacks: {type(callback).__name__}": why
            for kind, why in _CALLBACKS.items()
            if isinstance(callback, kind)
        }
    if problems:
        raise ConfigError("\n".join(f"trainer.{key}: {why}" for key, why in problems.items()))


@contextmanager
def without_hints() -> Iterator[None]:
    """Leave out Lightning's hints that do not apply to a federation in memory, whose run folder
    fedlit chooses itself.
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
        # the run ended before anything was scored, which Run.fit says
        ".*could not find the monitored key",
        ".*precision=bf16. is supported for historical reasons",
    )
    try:
        with warnings.catch_warnings():
            for hint in hints:
                warnings.filterwarnings("ignore", hint)
            yield
    finally:
        logger.setLevel(level)


def make_trainer(
    run: Any, callbacks: Sequence[Callback], *, log: bool = True, purge_step: int | None = None
) -> Trainer:
    """Make the Trainer of a run that has a folder.

    Args:
        run: the :class:`~fedlit.run.run.Run`. Its options that are None or ``auto`` are left to
            Lightning.
        callbacks: fedlit's callbacks, which come before the user's.
        log: whether anything is logged.
        purge_step: the step after which TensorBoard's events are dropped, if a run is resumed.

    Raises:
        ConfigError: Lightning refuses an option.
    """
    assert run.folder is not None
    loop = run.loop
    group = run.group
    options = {
        key: value
        for key, value in run.trainer_options.items()
        if value is not None and value != "auto"
    }
    callbacks = [run.exchange, *callbacks, *listed(options.pop("callbacks", None))]
    longest = options.pop("max_time", None)
    plugins = [*listed(options.pop("plugins", None))]
    bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
    if len(bars) > 1:  # the user's own takes the place of ours
        callbacks.remove(bars[0])
    clients_here = None if group.size == 1 else lambda: set(loop.federation.clients)
    if group.size > 1:
        loop.build(run.data)  # before Lightning reads all tables
        # Lightning would take the ranks for devices of one module
        plugins.append(LightningEnvironment())
        on_cpu = str(options.get("accelerator")).lower() == "cpu" or not (
            devices := torch.cuda.device_count()
        )
        # several share one where there are fewer
        options["devices"] = 1 if on_cpu else [group.local % devices]
    tune = loop.federation.training.tune
    # the user counts the federation's epochs only
    if tune is not None and (options.get("max_epochs") or -1) > 0:
        options["max_epochs"] += tune.epochs
    loggers = (
        make_loggers(options.get("logger"), run.folder, run.board, purge_step)
        if log and group.rank == 0
        else []
    )
    decided = {
        "default_root_dir": run.folder,
        "enable_progress_bar": bool(bars),
        "enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks),
        "logger": loggers or False,
        "plugins": [*plugins, AtomicCheckpointIO(group, clients_here)],
        "callbacks": callbacks,
    }
    with without_hints():
        try:
            if longest is not None:  # Lightning's own timer would end an epoch in its middle
                callbacks.append(Timer(longest, interval="epoch"))
            return Trainer(**{**DEFAULTS, **options, **decided})
        except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
            raise ConfigError(
                f"trainer: expected options that Lightning's Trainer accepts, found: {error}"
            ) from error


def opening(
    folder: Path, trainer: Trainer, checkpoint: Path | None, header: Mapping[str, Any], ranks: int
) -> list[str]:
    """Describe where the run is kept, what it continues, and whether anything is left to train.

    Args:
        folder: the folder of the run.
        trainer: the trainer.
        checkpoint: the checkpoint that is continued.
        header: the header of that checkpoint.
        ranks: the number of ranks.
    """
    source = (
        f", continued from {checkpoint.name} (epoch {header['epoch'] + 1})" if checkpoint else ""
    )
    lines = [f"\nRun folder: {folder}{source}"]
    if ranks > 1:
        lines.append(f"{ranks} ranks, each with a block of clients")
    saved = header.get("fedlit", {})
    ending = saved.get("ending", {})
    done = saved.get("personal", {}).get("done") or (ending.get("asked") and ending.get("reason"))
    if done or (checkpoint and header["epoch"] + 1 >= (trainer.max_epochs or 0) > 0):
        lines.append(
            "Nothing is left to train: the run has reached its end (trainer.max_epochs, model.stop "
            "or keep)"
        )
    if 0 in (trainer.max_epochs, trainer.max_steps):
        lines.append(
            "Nothing is trained: trainer.max_epochs or max_steps is 0; the scores are of untrained "
            "clients"
        )
    return lines


# ---------------------------------------------------------------------- loggers


class LoggerOf(Protocol):
    """Builds a logger that writes to a folder. A logger class of Lightning is suitable."""

    def __call__(self, *, save_dir: Path) -> Logger:
        """Return the logger."""


# in the order in which the parser tries them, also when it writes config.yaml: it takes anything
# for a callable
LoggerChoice = bool | list[LoggerOf | Logger] | LoggerOf | Logger | None


class RunTrainer(Trainer):
    """Lightning's Trainer, with a ``logger`` that writes into the run's folder.

    It lists the options of the command line, and is never instantiated.

    Args:
        logger: none if false; otherwise TensorBoard, and beside it any of Lightning's loggers, or a
            list of them. One that is given no ``save_dir`` writes into the run's folder.
        **options: of Lightning's Trainer.
    """

    def __init__(self, logger: LoggerChoice = None, **options: object) -> None:
        super().__init__(logger=logger, **options)  # type: ignore[arg-type]


def make_loggers(
    choice: LoggerChoice, folder: Path, board: BoardSettings, purge_step: int | None = None
) -> list[Logger]:
    """Return the loggers of a run.

    Args:
        choice: no loggers if False; otherwise the run's TensorBoard logger, and beside it a logger,
            a function that builds one from the run's folder, or a list of these.
        folder: the folder of the run.
        board: what TensorBoard shows.
        purge_step: the step after which TensorBoard's events are dropped, if a run is resumed.

    Raises:
        ConfigError: something is not a logger, or cannot be built.

    Example:
        >>> from lightning.pytorch.loggers import CSVLogger
        >>> [type(own).__name__ for own in make_loggers(CSVLogger, Path("runs/a/version_0"), BoardSettings())]
        ['FederatedTensorBoardLogger', 'CSVLogger']
    """
    if choice is False:
        return []
    board_logger = FederatedTensorBoardLogger(
        folder.parent.parent, folder.parent.name, folder.name, purge_step, board
    )
    return [board_logger, *(_made(one, folder) for one in listed(choice) if one is not True)]


def _made(choice: LoggerOf | Logger, folder: Path) -> Logger:
    kinds = [part for part in (choice, *getattr(choice, "args", ())) if isinstance(part, type)]
    name = (kinds or [type(choice)])[0].__name__

    def refused(error: Exception) -> ConfigError:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return ConfigError(
            f"trainer.logger: {name}: expected a logger that can be made, found {reason}"
        )

    with told_as(refused):  # it is not installed, say, or cannot write
        arguments = {"save_dir": folder, **getattr(choice, "keywords", {})}
        logger = choice if isinstance(choice, Logger) else choice(**arguments)
        getattr(logger, "experiment", None)  # which opens its files, or reaches its server
    expect(
        isinstance(logger, Logger),
        "trainer.logger",
        "a logger of Lightning, a class of one, or a list",
        choice,
    )
    return logger
