"""Lightning's Trainer of a run: checks the user's options, refuses those that a federation cannot
support, and sets the others, such as the loggers; what is said of it before training begins.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, told_as
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.transport import Transport
from fedlit.run.config import listed
from fedlit.run.keys import REFUSED
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO
from fedlit.train.checkpoint_file import CheckpointContent
from fedlit.train.logger import BoardSettings, FederatedTensorBoardLogger
from fedlit.train.loop import FederatedLoop

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


class TrainedRun(Protocol):
    """The parts of a run (:class:`~fedlit.run.assembly.Assembly`) that its Trainer needs."""

    loop: FederatedLoop
    data: FederatedData
    folder: Path | None
    board: BoardSettings
    trainer_options: dict[str, Any]

    @property
    def group(self) -> Transport:
        """The processes among which the clients are divided."""

    @property
    def exchange(self) -> Exchange:
        """The exchange of the clients."""


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
        # Names of clients may be as long as a picture is wide.
        ".*constrained_layout not applied",
        # A run may end before anything is scored; Run.fit reports it.
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
    run: TrainedRun,
    callbacks: Sequence[Callback],
    *,
    log: bool = True,
    purge_step: int | None = None,
) -> Trainer:
    """Make the Trainer of a run that has a folder.

    Args:
        run: the run. Its options that are None or ``auto`` are left to
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
    if len(bars) > 1:  # The user's progress bar takes the place of fedlit's.
        callbacks.remove(bars[0])
    clients_here: Callable[[], Collection[str]] | None = None
    if group.size > 1:
        loop.build(run.data)  # Otherwise Lightning would read all tables at each rank.
        # Without it, Lightning would take the ranks for devices of one module.
        plugins.append(LightningEnvironment())
        options["devices"] = _device_of(group.local, options)
        clients_here = loop.federation.clients.keys
    tune = loop.federation.training.tune
    # The user's max_epochs counts the epochs of the federation only.
    if tune is not None and (options.get("max_epochs") or -1) > 0:
        options["max_epochs"] += tune.epochs
    loggers: list[Logger] = []
    if log and group.rank == 0:
        loggers = make_loggers(options.get("logger"), run.folder, run.board, purge_step)
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
            if longest is not None:  # The timer that Lightning makes would end within an epoch.
                callbacks.append(Timer(longest, interval="epoch"))
            return Trainer(**{**DEFAULTS, **options, **decided})
        except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
            raise ConfigError(
                f"trainer: expected options that Lightning's Trainer accepts, found: {error}"
            ) from error


def _device_of(local: int, options: Mapping[str, Any]) -> int | list[int]:
    """Return the option ``devices`` of a rank. Ranks share a GPU if there are fewer than ranks."""
    if str(options.get("accelerator")).lower() == "cpu":
        return 1
    devices = torch.cuda.device_count()
    return [local % devices] if devices else 1


def opening(
    folder: Path, trainer: Trainer, checkpoint: Path | None, saved: CheckpointContent, ranks: int
) -> list[str]:
    """Describe where the run is kept, what it continues, and whether anything is left to train.

    Args:
        folder: the folder of the run.
        trainer: the trainer.
        checkpoint: the checkpoint that is continued.
        saved: the content of that checkpoint; empty for a new run.
        ranks: the number of ranks.
    """
    source = ""
    if checkpoint:
        source = f", continued from {checkpoint.name} (epoch {saved['epoch'] + 1})"
    lines = [f"\nRun folder: {folder}{source}"]
    if ranks > 1:
        lines.append(f"{ranks} ranks, each with a block of clients")
    if checkpoint and _has_ended(saved, trainer.max_epochs or 0):
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


def _has_ended(saved: CheckpointContent, max_epochs: int) -> bool:
    """Return whether a run had reached its end when its checkpoint was written."""
    ending = saved["fedlit"]["ending"]
    if saved["fedlit"]["personal"].get("done") or (ending["asked"] and ending["reason"]):
        return True
    return saved["epoch"] + 1 >= max_epochs > 0


# ---------------------------------------------------------------------- loggers


class LoggerOf(Protocol):
    """Builds a logger that writes to a folder. A logger class of Lightning is suitable."""

    def __call__(self, *, save_dir: Path) -> Logger:
        """Return the logger."""


# The parser tries these types in their order, also when it writes config.yaml. It takes anything for
# a callable, so that the callable comes late.
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

    with told_as(refused):  # The logger may not be installed, or may not be able to write.
        arguments = {"save_dir": folder, **getattr(choice, "keywords", {})}
        logger = choice if isinstance(choice, Logger) else choice(**arguments)
        getattr(logger, "experiment", None)  # This opens its files, or connects to its server.
    if not isinstance(logger, Logger):
        raise ConfigError(
            "trainer.logger: expected a logger of Lightning, a class of one, or a list, found "
            f"{choice!r}"
        )
    return logger
