"""Checks that all ranks of a job were started with the same settings."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.run.assembly import Assembly
from fedlit.run.config import flatten
from fedlit.show.text import shorten


def check_alike(run: Assembly, command: str, checkpoint: str | Path | None = None) -> None:
    """Compare the settings of all ranks before any of them reads data.

    Args:
        run: the run of this rank.
        command: the command that is executed.
        checkpoint: the checkpoint that it uses.

    Raises:
        ConfigError: ranks differ in versions, command, seed or settings (of a run that was made in
            Python, these are not compared).
    """
    if run.group.size == 1:
        return
    request = {
        "versions": {name: version(name).partition("+")[0] for name in ("fedlit", "torch")},
        "command": command,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "seed": run.seed,
        "name": run.name,
        "folder of runs": str(run.root),
        **(run.settings or {}),
    }
    settings_here = {key: json.dumps(value) for key, value in flatten(request)}
    requests = run.group.gather("what is asked for", settings_here)
    first = requests[0]
    for rank, of_rank in enumerate(requests):
        differences = [
            f"{key}: {first.get(key)} at rank 0, {of_rank.get(key)} at rank {rank}"
            for key in {**first, **of_rank}
            if first.get(key) != of_rank.get(key)
        ]
        if differences:
            raise ConfigError(
                f"expected the same on all ranks, found {shorten(differences)}; start all with one "
                "configuration, one command and the same versions"
            )
