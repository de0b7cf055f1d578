"""Tables that a run writes while it grows, and pictures of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from lightning.pytorch import Trainer

from fedlit.files import write_text
from fedlit.train.logger import boards
from fedlit.train.whole import spared

__all__ = ["append", "draw", "truncate"]

_log = logging.getLogger(__name__)


def append(path: Path, rows: pd.DataFrame, lost: str, *, anew: bool = False) -> None:
    """Write rows behind those that a file has, or in their place; a full disk ends no training.

    Args:
        path: a CSV file.
        rows: with the file's columns; nothing is written where there are none.
        lost: what there will not be where it cannot be written.
        anew: whether the file has these alone.
    """
    if len(rows):
        with spared(path, lost):
            if anew:
                write_text(rows.to_csv(index=False), path)
            else:
                rows.to_csv(path, mode="a", header=not path.is_file(), index=False)


def truncate(path: Path, before: pd.DataFrame, lost: str) -> None:
    """Keep the rows that a resumed run does not write again."""
    with spared(path, lost):
        write_text(before.to_csv(index=False), path)


def draw(trainer: Trainer, what: str, figures: Callable[[], Mapping[str, Any]]) -> None:
    """Pictures by tag, in TensorBoard's run of the federation; what goes wrong is said, for no picture is worth a
    training.
    """
    try:
        for logger in boards(trainer):
            for tag, figure in figures().items():
                logger.draw(tag, figure, trainer.global_step)
    except Exception as error:
        _log.warning("%s: no picture: %s: %s", what, type(error).__name__, error)
