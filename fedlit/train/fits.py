"""Whether a checkpoint's tensors, optimizers and rule are those of the run that is to go on with it.

What a run's configuration says is compared before (:meth:`fedlit.train.manifest.Manifest.refuse`); this is for runs
that were made in Python, whose classes are not known by name.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.rule import settings_of

__all__ = ["check_optimizers", "check_rule", "check_state", "check_tensors"]

_EITHER_WAY = ("fused", "foreach", "capturable", "initial_lr", "params")
"""Of an optimizer's settings: those by which no two kinds differ, and which an engine may change."""
_DECOUPLED = "decoupled_weight_decay"
"""By which torch tells Adam from AdamW."""


def check_tensors(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse tensors of another network.

    Args:
        saved: ``clients.<client>.<tensor>`` → as the checkpoint has it.
        own: as the run has it.

    Raises:
        ConfigError: of other shapes, or of other names; names the first client and tensor.
    """
    for key in [*saved, *own]:
        before, now = (tuple(side[key].shape) if key in side else None for side in (saved, own))
        if before != now:
            client, _, tensor = key.removeprefix("clients.").partition(".")
            raise ConfigError(
                f"client {client!r}: expected a checkpoint of its network, in which {tensor} is {_shape(now)}, found "
                f"that it is {_shape(before)}; set the network (width, depth) as it was, or start a new run"
            )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " × ".join(map(str, shape)) or "one number"


def check_optimizers(saved: Sequence[Mapping[str, Any]], own: Mapping[str, Sequence[Any]]) -> None:
    """Refuse the state of other optimizers, which torch would take for its own.

    Args:
        saved: of each optimizer, in the order of clients.
        own: client → its optimizers.

    Raises:
        ConfigError: of another number, or of other settings; names the client.
    """
    count = sum(map(len, own.values()))
    if len(saved) != count:
        raise ConfigError(
            f"checkpoint: expected {count} optimizers of {len(own)} clients, found {len(saved)}; set optimizers as "
            "they were, or start a new run"
        )
    states = iter(saved)
    for client, optimizers in own.items():
        for optimizer in optimizers:
            before, now = _settings(next(states)["param_groups"]), _settings(optimizer.param_groups)
            apart = set(before) - set(now) and set(now) - set(before)  # a later version of torch may only add some
            decoupled = [side.get(_DECOUPLED) for side in (before, now)]
            if apart or (None not in decoupled and decoupled[0] != decoupled[1]):
                raise ConfigError(
                    f"client {client!r}: expected a checkpoint of its optimizer ({type(optimizer).__name__}, with "
                    f"{_shown(now)}), found one of another kind (with {_shown(before)}); set the optimizer as it was, "
                    "or start a new run"
                )


def _settings(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for group in groups for key, value in group.items() if key not in _EITHER_WAY}


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" if key == _DECOUPLED else key for key, value in sorted(settings.items()))


def check_rule(checkpoint: Mapping[str, Any], exchange: Any) -> None:
    """Refuse to go on with another rule.

    Args:
        checkpoint: that is to be resumed.
        exchange: of the run; its rule is left as it is.

    Raises:
        ConfigError: says which, and how it was set.
    """
    saved = checkpoint.get("callbacks", {}).get(exchange.state_key, {})
    before, now = saved.get("rule_is"), settings_of(exchange.rule)
    if before not in (None, now):  # without exchanges nothing is said
        raise ConfigError(
            f"exchange.rule: expected a checkpoint of {now}, found one of {before}; set the rule as it was, or start a "
            "new run"
        )


_PLAIN = (type(None), bool, int, float, str, bytes, Tensor, torch.nn.Parameter)


def check_state(client: str, state: Mapping[str, Any]) -> None:
    """Refuse what a checkpoint could be written with, but not read back.

    Raises:
        ConfigError: a value is of a class that torch does not load from an untrusted file; names its key.
    """
    for key, value in state.items():
        if _is_plain(value):
            continue
        file = io.BytesIO()
        try:
            torch.save(value, file)
            file.seek(0)
            torch.load(file, weights_only=True)
        except Exception as error:
            raise ConfigError(
                f"client {client!r}: state[{key!r}]: expected tensors, numbers, strings, and lists, tuples, sets or "
                f"mappings of them, found {type(value).__name__}, which cannot be read back from a checkpoint; "
                "convert it, for instance by float(value) or torch.as_tensor(value)"
            ) from error


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) in _PLAIN and _is_plain(own) for key, own in value.items())
    return all(map(_is_plain, value)) if type(value) in (list, tuple) else type(value) in _PLAIN
