"""Optimizers and schedulers of another class start from that class's own defaults.

jsonargparse keeps what a class before took, where the new one takes an argument of that name, too: SGD would inherit
the weight decay of AdamW. A method's file that asks for the class that there is already leaves its learning rate alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fedlit.run.catalogue import METHODS
from fedlit.run.config import parse_yaml, read_yaml

__all__ = ["own_defaults"]

_KEYS = ("model.optimizer", "model.scheduler")


def own_defaults(config: Any, args: Iterable[str]) -> None:
    """Put back to its class's default whatever no layer has given since the class was last changed.

    Args:
        config: what jsonargparse made of the arguments; changed in place.
        args: ``--config FILE`` and ``--key=value``, in their order.
    """
    layers = list(_layers(list(args)))
    for key in _KEYS:
        found = config.get(key)
        if not found or "class_path" not in found or "init_args" not in found:
            continue
        name, given, kept = "", dict[str, Any](), False
        for layer, of_method in layers:
            path, own = _said(layer, key)
            if path and path.rpartition(".")[2] != name:
                name, given = path.rpartition(".")[2], {}
            elif of_method and "lr" in given and "lr" in own:
                own["lr"], kept = given["lr"], True
            given |= own
        if kept and "lr" in given:
            found["init_args"]["lr"] = float(given["lr"])
        if name:  # else it is the class that nobody chose
            _reset(found, set(given))


def _layers(args: list[str]) -> Iterable[tuple[Mapping[str, Any], bool]]:
    """Return the given settings, and whether a method's file gives them."""
    for place, arg in enumerate(args):
        flag, equals, value = arg.partition("=")
        if flag in ("--config", "-c"):
            file = Path(value if equals else args[place + 1])
            yield read_yaml(file), file.parent.name == METHODS
        elif equals and flag.startswith(tuple(f"--{key}" for key in _KEYS)):
            content: Any = parse_yaml(value, flag)
            for part in reversed(flag.removeprefix("--").split(".")):
                content = {part: content}
            yield content, False


def _said(layer: Mapping[str, Any], key: str) -> tuple[str, dict[str, Any]]:
    """The class that a layer names, and the arguments that it gives."""
    own: Any = layer
    for part in key.split("."):
        own = own.get(part) if isinstance(own, Mapping) else None
    if isinstance(own, str):
        return own, {}
    if not isinstance(own, Mapping):
        return "", {}
    args = own.get("init_args")
    plain = {name: value for name, value in own.items() if name not in ("class_path", "init_args", "dict_kwargs")}
    return str(own.get("class_path") or ""), plain | dict(args if isinstance(args, Mapping) else {})


def _reset(found: Any, given: set[str]) -> None:
    module, _, name = found["class_path"].rpartition(".")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters
    for argument in list(found["init_args"].keys()):
        parameter = parameters.get(argument)
        if argument not in given and parameter is not None and parameter.default is not parameter.empty:
            found["init_args"][argument] = parameter.default
