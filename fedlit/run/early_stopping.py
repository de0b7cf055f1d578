"""Reads Lightning's EarlyStopping in a configuration as ``model.stop``, which can end a phase and
not only the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlit.errors import ConfigError, expect
from fedlit.run.config import listed
from fedlit.tasks import SCORES

_KEY = "trainer.callbacks: EarlyStopping"
_PATHS = ("", "lightning.pytorch.callbacks", "lightning.pytorch.callbacks.early_stopping")
_TAKEN = ("monitor", "patience", "min_delta", "mode")
_PATIENCE = 3
"""Lightning's default."""


def with_stop(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which an EarlyStopping of Lightning is ``model.stop``.

    Args:
        content: the whole configuration, nested.

    Raises:
        ConfigError: there are several, or ``model.stop`` too, or an argument has no counterpart.

    Example:
        >>> stopping = {"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss", "patience": 5}}
        >>> with_stop({"trainer": {"callbacks": [stopping]}})
        {'trainer': {'callbacks': None}, 'model': {'stop': {'monitor': 'val/loss', 'patience': 5}}}
    """
    trainer = content.get("trainer")
    if not isinstance(trainer, Mapping):
        return dict(content)
    model = content.get("model") or {}
    callbacks = listed(trainer.get("callbacks"))
    stops = [callback for callback in callbacks if _is_early_stopping(callback)]
    if not stops:
        return dict(content)
    expect(len(stops) == 1, _KEY, "one", len(stops), "set model.stop")
    stop = model.get("stop") if isinstance(model, Mapping) else None
    expect(stop in (None, "null"), _KEY, "none beside model.stop", stop, "leave out the callback")
    remaining = [callback for callback in callbacks if callback is not stops[0]]
    return {
        **content,
        "trainer": {**trainer, "callbacks": remaining or None},
        "model": {**model, "stop": _stop_of(stops[0])},
    }


def _is_early_stopping(callback: object) -> bool:
    path = callback.get("class_path") if isinstance(callback, Mapping) else callback
    if not isinstance(path, str):
        return False
    module, _, name = path.rpartition(".")
    return name == "EarlyStopping" and module in _PATHS


def _stop_of(callback: object) -> dict[str, object]:
    """Return the settings of ``model.stop`` that mean the same."""
    arguments: dict[str, object] = {}
    if isinstance(callback, Mapping):
        arguments |= callback.get("init_args") or {}
    for name in arguments:
        expect(
            name in _TAKEN,
            f"{_KEY}: {name}",
            "none",
            arguments[name],
            "set model.stop, which has no such key",
        )
    monitor = arguments.get("monitor")
    if not isinstance(monitor, str):
        raise ConfigError(f"{_KEY}: monitor: expected a score such as val/loss, found {monitor!r}")
    _check_mode(monitor, arguments.pop("mode", None))
    return {"monitor": monitor, "patience": _PATIENCE, **arguments}


def _check_mode(monitor: str, mode: object) -> None:
    """Refuse a mode other than that of the score."""
    if mode is None:
        return
    score = SCORES.get(monitor.rpartition("/")[2])
    if score is None:
        raise ConfigError(
            f"{_KEY}: mode: expected none, because it follows from the score {monitor}, found "
            f"{mode!r}; leave it out"
        )
    better = "max" if score.higher_is_better else "min"
    expect(
        mode == better,
        f"{_KEY}: mode",
        f"{better}, which follows from {monitor}",
        mode,
        "leave it out",
    )
