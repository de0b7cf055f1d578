"""Whether all ranks of a job were asked for the same."""

from __future__ import annotations

import difflib
import json
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import torch

from fedlit.errors import ConfigError
from fedlit.run.config import flatten

__all__ = ["asked_of", "check_alike", "differences"]

_EXCHANGE = ("federated", "every", "rate", "buffers", "minimum", "by_name", "optimizer_state", "participation", "rule")
_MOST = 8
"""Lines that a message shows."""


def check_alike(run: Any, command: str, checkpoint: Any = None) -> None:
    """Compare what each rank is asked for, before any of them reads data.

    Args:
        run: this rank's :class:`~fedlit.run.run.Run`.
        command: what is done with it.
        checkpoint: from which.

    Raises:
        ConfigError: they differ in versions, command, seed or settings.
    """
    if run.group.size == 1:
        return
    text = asked_of(run, command, checkpoint)
    hashes = run.group.gather("what is asked for", sha256(text.encode()).hexdigest())
    if len(set(hashes)) == 1:
        return
    texts = run.group.gather("each rank's settings", text)
    other = next(rank for rank, own in enumerate(hashes) if own != hashes[0])
    raise ConfigError(
        f"expected the same on all ranks, found at rank 0 (-) and at rank {other} (+): "
        f"{differences(texts[0], texts[other])}; start all with one configuration, one command and the same versions"
    )


def asked_of(run: Any, command: str, checkpoint: Any = None) -> str:
    """All that ranks must agree in, a line for each key; of a run that was made in Python its arguments."""
    told = {
        "version of fedlit": version("fedlit"),
        "version of torch": torch.__version__.partition("+")[0],
        "command": command,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "seed": run.seed,
        "name": run.name,
        "folder of runs": str(run.root),
        "trainer": run.trainer_options,
    }
    if run.settings is not None:
        told |= dict(run.settings)
    else:
        exchange = run._untouched_exchange  # what rules remember, rank 0 alone remembers
        told |= {"loop": dict(run.loop.arguments), "data": dict(run.data.arguments)}
        told |= {"exchange": {key: getattr(exchange, key) for key in _EXCHANGE}, "exchange.rule": vars(exchange.rule)}
    return "\n".join(f"{key}: {json.dumps(value, default=_plain, skipkeys=True)}" for key, value in flatten(told))


def _plain(value: Any) -> Any:
    """What can be compared: of an object its class, for its text may hold where it lies in memory."""
    if isinstance(value, partial):
        return {"of": value.func, **value.keywords}
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def differences(one: str, other: str) -> str:
    """The lines in which two texts differ.

    Example:
        >>> differences("seed: 1", "seed: 2")
        '- seed: 1; + seed: 2'
    """
    found = [line for line in difflib.ndiff(one.splitlines(), other.splitlines()) if line[0] in "-+"]
    return "; ".join(found[:_MOST]) + (f"; and {len(found) - _MOST} lines more" if len(found) > _MOST else "")
