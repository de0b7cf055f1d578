"""Lightning's Trainer of a run: checks the user's options, refuses those that a federation cannot support, and sets the
others, such as the loggers; what is said of it before training begins.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar, Timer
from lightning.pytorch.loggers import Logger

from fedlit.errors import ConfigError
from fedlit.exchange.transport import Transport
from fedlit.run.config import listed
from fedlit.train.callbacks.checkpoint import AtomicCheckpointIO
from fedlit.train.logger import BoardSettings, FederatedTensorBoardLogger
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


def opening(
    folder: Path,
    options: Mapping[str, Any],
    trainer: Trainer,
    checkpoint: Path | None,
    header: Mapping[str, Any],
    places: Sequence[str],
) -> list[str]:
    """Describe where the run is kept, what it continues, and which options make it shorter than it may seem.

    Args:
        folder: the folder of the run.
        options: the options of the trainer, as the user gave them.
        trainer: the trainer built from these options.
        checkpoint: the checkpoint that is continued.
        header: the header of that checkpoint.
        places: the clients, host and device of each rank.
    """
    source = f", continued from {checkpoint.name} (epoch {header['epoch'] + 1})" if checkpoint else ""
    lines = [f"\nRun folder: {folder}{source}"]
    if len(places) > 1:
        lines.append(f"{len(places)} ranks: {'; '.join(places)}. Tensors travel between them by the CPU.")
    for key, what in (
        ("limit_train_batches", "epochs are shorter than the plan says"),
        ("max_steps", "training may end within an epoch, which is scored as it is then"),
    ):
        if is_part(limit := options.get(key)) and limit != -1:
            lines.append(f"trainer.{key} is {limit}: {what}")
    if header.get("fedlit", {}).get("personal", {}).get("done"):
        lines.append("Nothing is left to train: each client ended with the best of its epochs (model.keep)")
    elif checkpoint and header["epoch"] + 1 >= (trainer.max_epochs or 0) > 0:
        lines.append(f"Nothing is left to train: trainer.max_epochs is {trainer.max_epochs}")
    if 0 in (trainer.max_epochs, trainer.max_steps):
        lines.append("Nothing is trained: trainer.max_epochs or max_steps is 0; the scores are of untrained clients")
    return lines


# ---------------------------------------------------------------------- loggers


class LoggerOf(Protocol):
    """Builds a logger that writes to a folder. A logger class of Lightning is suitable."""

    def __call__(self, *, save_dir: Path) -> Logger:
        """Return the logger."""


# in the order in which the parser tries them, also when it writes config.yaml: it takes anything for a callable
LoggerChoice = bool | list[LoggerOf | Logger] | LoggerOf | Logger | None


class RunTrainer(Trainer):
    """Lightning's Trainer, with a ``logger`` that writes into the run's folder.

    It lists the options of the command line, and is never instantiated.

    Args:
        logger: TensorBoard if left out; none if false; any of Lightning's, or a list of them. One that is given no
            ``save_dir`` writes into the run's folder.
        **options: of Lightning's Trainer.
    """

    def __init__(self, logger: LoggerChoice = None, **options: object) -> None:
        super().__init__(logger=logger, **options)  # type: ignore[arg-type]


def make_loggers(
    choice: LoggerChoice, folder: Path, board: BoardSettings, purge_step: int | None = None
) -> list[Logger]:
    """Return the loggers of a run.

    Args:
        choice: no loggers if False; the run's TensorBoard logger if None or True; otherwise a logger, a function that
            builds one from the run's folder, or a list of these.
            :class:`~fedlit.train.logger.FederatedTensorBoardLogger` without a folder stands for the run's logger.
        folder: the folder of the run.
        board: what TensorBoard shows.
        purge_step: the step after which TensorBoard's events are dropped, if a run is resumed.

    Raises:
        ConfigError: something is not a logger, or cannot be built.

    Example:
        >>> from lightning.pytorch.loggers import CSVLogger
        >>> [own.save_dir for own in make_loggers(CSVLogger, Path("runs"), BoardSettings())]
        ['runs']
    """
    if choice is False:
        return []
    own = FederatedTensorBoardLogger(folder.parent.parent, folder.parent.name, folder.name, purge_step, board)
    if choice is None or choice is True:
        return [own]
    made = [one if isinstance(one, Logger) else _make(one, folder) for one in listed(choice)]
    for place, logger in enumerate(made):
        if isinstance(logger, FederatedTensorBoardLogger):
            if Path(logger.save_dir) == folder:
                made[place] = logger = own
            logger.shown = board if logger.shown == BoardSettings() else logger.shown
            logger.purge_step = purge_step if logger.purge_step is None else logger.purge_step
    return made


def _make(maker: LoggerOf, folder: Path) -> Logger:
    try:
        logger = maker(**{"save_dir": folder, **getattr(maker, "keywords", {})})
    except Exception as error:  # it is not installed, say
        raise ConfigError(f"trainer.logger: {maker} cannot be made ({type(error).__name__}: {error})") from error
    if not isinstance(logger, Logger):
        raise ConfigError(f"trainer.logger: expected a logger of Lightning, a class of one, or a list, found {maker!r}")
    return logger
