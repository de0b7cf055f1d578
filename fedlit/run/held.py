"""The folder that a run writes to: held against others, made again where it was removed, tidied behind what was
refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.files import advice, clear_partials, reason, write_text
from fedlit.locks import Lock, exclusive
from fedlit.run.folders import CHECKPOINTS
from fedlit.show.shown import say

__all__ = ["begin", "hold", "make_again", "tidy"]

CONFIG = "config.yaml"


def hold(folder: Path, held: ExitStack) -> Lock:
    """Keep others out of a run's folder, and clear what a process that was killed has left there."""
    do = "wait for it or end it; without --ckpt_path a new run begins, in a folder of its own"
    lock = held.enter_context(exclusive(folder / ".lock", f"{folder}: expected no other process that writes there", do))
    clear_partials(folder / CHECKPOINTS, ours=True)
    clear_partials(folder, ours=False)
    return lock


def tidy(folder: Path) -> None:
    """Take away a folder in which nothing was written, for the run was refused."""
    with suppress(OSError):  # something is there
        folder.rmdir()


def make_again(folder: Path, lock: Lock, text: str | None, loggers: Iterable[Any]) -> None:
    """Make a folder again where somebody removed it: what is kept from now on is kept.

    Args:
        folder: of the run.
        lock: on it.
        text: of the run's configuration.
        loggers: that write there.

    Raises:
        RunError: another process writes there now.
    """
    if lock.held:
        return
    gone = not (folder / CHECKPOINTS).is_dir()
    lock.renew()
    if not gone:
        return
    say(f"{folder} was removed while it was written to; it is made again, with what is kept from now on")
    (folder / CHECKPOINTS).mkdir(exist_ok=True)
    if text is not None:
        write_text(text, folder / CONFIG)
    for logger in loggers:
        logger.finalize("")  # they would go on writing to files without a name


def begin(folder: Path, text: str | None, step: int) -> None:
    """Mark a folder as a run's and write its configuration, now that any checkpoint has been accepted.

    A resumed run that changes the configuration keeps the earlier one beside it.

    Args:
        folder: of the run.
        text: of its configuration.
        step: aligned steps behind it.

    Raises:
        ConfigError: nothing can be written there.
    """
    try:
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        if text is not None:
            _write(folder, text, step)
    except OSError as error:
        raise ConfigError(
            f"{folder}: expected a folder that can be written to, found: {reason(error)}; nothing of this training "
            f"could be kept; {advice(error)}, or set trainer.default_root_dir"
        ) from error


def _write(folder: Path, text: str, step: int) -> None:
    path, kept = folder / CONFIG, None
    if path.exists() and path.read_text(encoding="utf-8") != text:
        number = 0
        while (kept := folder / f"config_{number}_until_step_{step}.yaml").exists():
            number += 1
    write_text(text, path, before=kept)
