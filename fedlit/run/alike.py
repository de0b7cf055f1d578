"""Checks that all ranks of a job were started with the same settings."""

from __future__ import annotations

import difflib
import json
from functools import partial
from importlib.metadata import version
from typing import Any

from fedlit.errors import ConfigError
from fedlit.run.config import flatten

_EXCHANGE = ("federated", "every", "rate", "buffers", "minimum", "by_name", "optimizer_state", "participation", "rule")
_MOST = 8
"""Lines that a message shows."""


def check_alike(run: Any, command: str, checkpoint: Any = None) -> None:
    """Compare the settings of all ranks before any of them reads data.

    Args:
        run: this rank's :class:`~fedlit.run.run.Run`.
        command: the command that is executed.
        checkpoint: the checkpoint that it uses.

    Raises:
        ConfigError: ranks differ in versions, command, seed or settings.
    """
    texts = run.group.gather("what is asked for", asked_of(run, command, checkpoint)) if run.group.size > 1 else []
    for rank, text in enumerate(texts):
        if text != texts[0]:
            raise ConfigError(
                f"expected the same on all ranks, found at rank 0 (-) and at rank {rank} (+): "
                f"{differences(texts[0], text)}; start all with one configuration, one command and the same versions"
            )


def asked_of(run: Any, command: str, checkpoint: Any = None) -> str:
    """Return everything in which ranks must agree, one line for each key; for a run that was made in Python, its
    arguments.
    """
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
        **({"exchange": {key: getattr(exchange, key) for key in _EXCHANGE}, **made} if run.settings is None else {}),
        **(run.settings or {}),
    }
    return "\n".join(f"{key}: {json.dumps(value, default=_plain, skipkeys=True)}" for key, value in flatten(told))


def _plain(value: Any) -> Any:
    """Return a value that can be compared. For an object this is its class, because its text may contain a memory
    address.
    """
    if isinstance(value, partial):
        return {"of": value.func, **value.keywords}
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def differences(one: str, other: str) -> str:
    """Return the lines in which two texts differ.

    Example:
        >>> differences("seed: 1", "seed: 2")
        '- seed: 1; + seed: 2'
    """
    found = [line for line in difflib.ndiff(one.splitlines(), other.splitlines()) if line[0] in "-+"]
    return "; ".join(found[:_MOST]) + (f"; and {len(found) - _MOST} lines more" if len(found) > _MOST else "")
