"""Checks that all ranks of a job were started with the same settings."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from fedlit.errors import ConfigError
from fedlit.run.config import flatten
from fedlit.show.text import shorten


def check_alike(run: Any, command: str, checkpoint: Any = None) -> None:
    """Compare the settings of all ranks before any of them reads data.

    Args:
        run: this rank's :class:`~fedlit.run.run.Run`.
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
        "checkpoint": checkpoint and str(checkpoint),
        "seed": run.seed,
        "name": run.name,
        "folder of runs": str(run.root),
        **(run.settings or {}),
    }
    requests = run.group.gather(
        "what is asked for", {key: json.dumps(value) for key, value in flatten(request)}
    )
    for rank, of_rank in enumerate(requests):
        if wrong := [
            key for key in {**requests[0], **of_rank} if requests[0].get(key) != of_rank.get(key)
        ]:
            differences = [
                f"{key}: {requests[0].get(key)} at rank 0, {of_rank.get(key)} at rank {rank}"
                for key in wrong
            ]
            raise ConfigError(
                f"expected the same on all ranks, found {shorten(differences)}; start all with one "
                "configuration, one command and the same versions"
            )
