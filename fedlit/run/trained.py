"""One client of a run that was trained before, found by the run's folder or name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import ConfigError
from fedlit.run.folders import find_trained, used
from fedlit.run.served import find_client
from fedlit.show.shown import say
from fedlit.train.manifest import Manifest, read_checkpoint

if TYPE_CHECKING:
    from fedlit.run.run import Run

__all__ = ["open_run"]


def open_run(run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False) -> tuple[Run, Path]:
    """A trained run that has a client of this name, and its checkpoint; see
    :func:`fedlit.mixture.served.load_run`.
    """
    folder, path = find_trained(run, str(checkpoint), "score")
    if not quiet:
        say(used(path))
    header = read_checkpoint(path, resumable=False)
    Manifest.read(header)
    find_client(header, client)  # before Lightning is imported
    config = folder / "config.yaml"
    if not config.is_file():
        raise ConfigError(
            f"{folder}: expected the run's config.yaml, which says how networks are built, found none (a run that was "
            "made in Python has none); there, use run.client(name)"
        )
    from fedlit.run.arguments import read
    from fedlit.run.load import parse

    loaded, _ = parse(read("describe", ["--config", str(config)], of_run=True))
    return loaded, path
