"""Where a run's scalars go: TensorBoard, other loggers of Lightning, or several."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Protocol

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

from fedlit.errors import ConfigError
from fedlit.run.options import listed
from fedlit.train.logger import BoardSettings, FederatedTensorBoardLogger

__all__ = ["LoggerChoice", "LoggerOf", "RunTrainer", "make_loggers"]


class LoggerOf(Protocol):
    """Makes a logger that writes below a folder: a class of Lightning's will do."""

    def __call__(self, *, save_dir: Path) -> Logger:
        """The logger."""


# in the order in which the parser tries them, also when it writes config.yaml: it takes anything for a callable
LoggerChoice = bool | list[LoggerOf | Logger] | LoggerOf | Logger | None


class RunTrainer(Trainer):
    """Lightning's Trainer, whose ``logger`` need not say where it writes: it is the command line's list of options, and
    no one is ever made.

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
    """The loggers of a run.

    Args:
        choice: none if False; the run's own TensorBoard if None or True; else a logger, what makes one from the run's
            folder, or a list of these. :class:`~fedlit.train.logger.FederatedTensorBoardLogger` without a folder is
            the run's own.
        folder: of the run.
        board: what TensorBoard shows.
        purge_step: when a run is resumed, drop TensorBoard's events after this step.

    Raises:
        ConfigError: something that is no logger, or cannot be made.

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
    made = []
    for one in listed(choice):
        logger = one if isinstance(one, Logger) else _make(one, folder)
        if isinstance(logger, FederatedTensorBoardLogger):
            if Path(logger.save_dir) == folder:
                logger = own
            if logger.shown == BoardSettings():
                logger.shown = board
            logger.purge_step = purge_step if logger.purge_step is None else logger.purge_step
        made.append(logger)
    return made


def _make(maker: LoggerOf, folder: Path) -> Logger:
    expected = "trainer.logger: expected a logger of Lightning, a class of one, or a list of these"
    if not callable(maker):
        raise ConfigError(f"{expected}, found {maker!r}")
    parts = (maker, *getattr(maker, "args", ()))  # a class, or a class with some of its arguments
    name = next((own.__name__ for own in parts if inspect.isclass(own)), repr(maker))
    given = {"save_dir": folder, **getattr(maker, "keywords", {})}
    try:
        logger = maker(**given)
    except Exception as error:  # it is not installed, say
        raise ConfigError(f"trainer.logger: {name} cannot be made ({type(error).__name__}: {error})") from error
    if not isinstance(logger, Logger):
        raise ConfigError(f"{expected}, found {name}, which makes a {type(logger).__name__}")
    return logger
