"""Checks that all ranks of a job were started with the same settings."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from typing import Any

from fedlit.errors import ConfigError
from fedlit.run.config import flatten
from fedlit.show.text import shorten

_EXCHANGE = ("federated", "every", "rate", "buffers", "minimum", "by_name", "optimizer_state", "participation", "rule")


def check_alike(run: Any, command: str, checkpoint: Any = None) -> None:
    """Compare the settings of all ranks before any of them reads data.

    Args:
        run: this rank's :class:`~fedlit.run.run.Run`.
        command: the command that is executed.
        checkpoint: the checkpoint that it uses.

    Raises:
        ConfigError: ranks differ in versions, command, seed or settings.
    """
    told = run.group.gather("what is asked for", asked_of(run, command, checkpoint)) if run.group.size > 1 else []
    for rank, own in enumerate(told):
        if wrong := [key for key in {**told[0], **own} if told[0].get(key) != own.get(key)]:
            found = [f"{key}: {told[0].get(key)} at rank 0, {own.get(key)} at rank {rank}" for key in wrong]
            raise ConfigError(
                f"expected the same on all ranks, found {shorten(found)}; start all with one configuration, one "
                "command and the same versions"
            )


def asked_of(run: Any, command: str, checkpoint: Any = None) -> dict[str, str]:
    """Return everything in which ranks must agree, as key → JSON; for a run that was made in Python, its arguments."""
    exchange = run._untouched_exchange  # what rules remember, rank 0 alone remembers
    made = {"loop": dict(run.loop.arguments), "data": dict(run.data.arguments), "exchange.rule": vars(exchange.rule)}
    told = {
        "versions": {name: version(name).partition("+")[0] for name in ("fedlit", "torch")},
        "command": command,
        "checkpoint": checkpoint and str(checkpoint),
        "seed": run.seed,
        "name": run.name,
        "folder of runs": str(run.root),
        "trainer": run.trainer_options,
        **(run.settings or {"exchange": {key: getattr(exchange, key) for key in _EXCHANGE}, **made}),
    }
    return {key: json.dumps(value, default=_plain, skipkeys=True) for key, value in flatten(told)}


def _plain(value: Any) -> Any:
    """Return a value that can be compared. For an object this is its class, because its text may contain a memory
    address.
    """
    if isinstance(value, partial):
        return {"of": value.func, **value.keywords}
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
