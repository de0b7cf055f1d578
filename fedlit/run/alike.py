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
    asked = {
        "versions": {name: version(name).partition("+")[0] for name in ("fedlit", "torch")},
        "command": command,
        "checkpoint": checkpoint and str(checkpoint),
        "seed": run.seed,
        "name": run.name,
        "folder of runs": str(run.root),
        **(run.settings or {}),
    }
    told = run.group.gather(
        "what is asked for", {key: json.dumps(value) for key, value in flatten(asked)}
    )
    for rank, own in enumerate(told):
        if wrong := [key for key in {**told[0], **own} if told[0].get(key) != own.get(key)]:
            found = [
                f"{key}: {told[0].get(key)} at rank 0, {own.get(key)} at rank {rank}"
                for key in wrong
            ]
            raise ConfigError(
                f"expected the same on all ranks, found {shorten(found)}; start all with one "
                "configuration, one command and the same versions"
            )
