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
    from fedlit.score.scorer import Scorer

__all__ = ["load_run", "open_run"]


def load_run(run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False) -> Scorer:
    """One client of a trained run. The tables that it was trained on need not be there.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        client: its name.
        checkpoint: ``last``, ``best`` or a file.
        quiet: do not say which checkpoint is used.

    Raises:
        ConfigError: no such run, checkpoint or client, or a run whose networks nobody can build.
    """
    loaded, path = open_run(run, client, checkpoint, quiet=quiet)
    return loaded.client(client, path)


def open_run(run: str | Path, client: str, checkpoint: str | Path = "last", *, quiet: bool = False) -> tuple[Run, Path]:
    """A trained run that has a client of this name, and its checkpoint; see :func:`load_run`."""
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
