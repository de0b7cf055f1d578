"""A run that was trained before, from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import ConfigError
from fedlit.run.folders import CONFIG, find_trained, used
from fedlit.run.served import check_client
from fedlit.show.shown import say
from fedlit.train.manifest import Manifest, read_checkpoint

if TYPE_CHECKING:
    from fedlit.run.run import Run

__all__ = ["open_run", "run_of"]


def run_of(folder: Path) -> Run:
    """The run of a run's own configuration.

    Raises:
        ConfigError: it has none.
    """
    if not (folder / CONFIG).is_file():
        raise ConfigError(
            f"{folder}: expected the run's config.yaml, found none; a run that was made in Python has none: there, use "
            "run.client(name)"
        )
    from fedlit.run.load import load

    return load(folder / CONFIG, command="describe", of_run=True)


def open_run(run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False) -> tuple[Run, Path]:
    """A trained run that has a client of this name, and its checkpoint.

    Args:
        run: its folder, or the name of a configuration: its newest run.
        client: one of its clients.
        checkpoint: ``last``, ``best`` or a file.
        quiet: do not print which checkpoint is used.

    Raises:
        ConfigError: there is no such run or client, or the run has no configuration.
    """
    folder, path = find_trained(run, str(checkpoint), "score")
    if not quiet:
        say(used(path))
    header = read_checkpoint(path, resumable=False)
    Manifest.read(header)
    check_client(header, client)  # before Lightning is imported
    return run_of(folder), path
