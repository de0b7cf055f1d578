"""Whether all ranks of a job were asked for the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch

from fedlit.errors import ConfigError
from fedlit.exchange.transport import Group

__all__ = ["asked_of", "check_alike", "differences"]

_EXCHANGE = ("federated", "every", "rate", "buffers", "minimum", "by_name", "optimizer_state", "participation", "rule")
_MOST = 8
"""Keys that a message names."""


class Configured(Protocol):
    """The parts of which a :class:`~fedlit.run.run.Run` was made."""

    name: str
    root: Path
    settings: Any
    loop: Any
    data: Any
    trainer_options: Any
    _untouched_exchange: Any

    @property
    def group(self) -> Group:
        """The ranks."""

    @property
    def seed(self) -> int:
        """The run's."""


def check_alike(run: Configured, command: str, checkpoint: Any = None) -> None:
    """Compare what each rank is asked for, before any of them reads data.

    Args:
        run: this rank's.
        command: what is done with it.
        checkpoint: from which.

    Raises:
        ConfigError: they differ in versions, command, seed or settings.
    """
    if run.group.size > 1:
        told = run.group.gather("what is asked for", asked_of(run, command, checkpoint))
        if wrong := differences(told):
            raise ConfigError(
                f"expected the same on all ranks, found {wrong}; start all with one configuration, one command and "
                "the same versions"
            )


def asked_of(run: Configured, command: str, checkpoint: Any = None) -> dict[str, Any]:
    """Key → value of all that ranks must agree in, as JSON. A run that was made in Python is told by its arguments."""
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
        told |= {"loop": run.loop.arguments, "data": run.data.arguments}
        exchange = run._untouched_exchange  # what rules remember, rank 0 alone remembers
        told |= {"exchange": {key: getattr(exchange, key) for key in _EXCHANGE}, "exchange.rule": vars(exchange.rule)}
    leaves: dict[str, Any] = {}
    for key, value in told.items():
        leaves |= _leaves(key, value)
    return leaves


def differences(told: list[Mapping[str, Any]]) -> str:
    """Return the keys in which ranks differ, with the values of each; empty if there are none.

    Args:
        told: by rank, see :func:`asked_of`.

    Example:
        >>> differences([{"seed": 1}, {"seed": 1, "lr": 0.1}, {"seed": 2}])
        'seed: 1 at ranks 0, 1, 2 at rank 2; lr: nothing at ranks 0, 2, 0.1 at rank 1'
    """
    found = []
    for key in dict.fromkeys(key for own in told for key in own):
        ranks: dict[str, list[int]] = {}
        for rank, own in enumerate(told):
            ranks.setdefault(json.dumps(own[key])[:120] if key in own else "nothing", []).append(rank)
        if len(ranks) > 1:
            found.append(f"{key}: " + ", ".join(f"{value} at {_named(own)}" for value, own in ranks.items()))
    more = [f"and {len(found) - _MOST} keys more"] if len(found) > _MOST else []
    return "; ".join(found[:_MOST] + more)


def _named(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:6])) + (" …" if len(ranks) > 6 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _leaves(key: str, value: Any) -> dict[str, Any]:
    """What can be compared; an object is told by its class, for its text may hold where it lies in memory."""
    if isinstance(value, Mapping):
        return {name: leaf for own, part in value.items() for name, leaf in _leaves(f"{key}.{own}", part).items()}
    if isinstance(value, partial):
        return _leaves(key, value.func) | _leaves(key, value.keywords)
    return {} if value is None else {key: _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
