"""The loggers of a run's scalars: TensorBoard, other loggers of Lightning, or several."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

from fedlit.errors import ConfigError
from fedlit.run.config import listed
from fedlit.train.logger import BoardSettings, FederatedTensorBoardLogger


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
