"""What a hostile side of a federation says: a message of a real one in which something is changed.
The same number always gives the same lie.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 7, 2**31, 2**63, 10**400, -0.5, 0.5, 1e300, float("nan"), float("inf"), "", "x",
    "round:0", "float32", "../../x", "\u202e\x1b[2J", "y" * 100_000, [], [[]], [1, "a"], ["float32", [2]],
    ["float32", [-1]], ["float32", [2**40, 2**40]], [7, [2]], ["float32", [[2]]], ["no_such", []], {}, {"a": {}},
    {"a": [None]}, {"north": 1}, torch.ones(3), torch.full((2,), float("nan")), torch.zeros(0), torch.tensor(3e38),
    torch.ones(2, 2, 2, dtype=torch.int64), torch.ones(2, dtype=torch.bool),
]  # fmt: skip
"""What stands in the place of something else."""

KEYS = (
    "done", "at:0", "at:1", "at:-1", "at:99", "round:0", "round:1", "round:-1", "round:99", "round:0/0", "round:0/7",
    "share:settings", "share:values", "share:federated", "share:meaning", "share:zzz", "", ":", "round:", "round:0/-1",
)  # fmt: skip

Path = tuple[Any, ...]


def places(value: Any, path: Path = ()) -> list[Path]:
    """Return the paths to all parts of a message, with that of the whole first."""
    found = [path]
    if isinstance(value, dict):
        for key, part in value.items():
            found += places(part, (*path, key))
    if isinstance(value, list):
        for place, part in enumerate(value[:20]):
            found += places(part, (*path, place))
    return found


def replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a message in which the part at a path is changed."""
    if not path:
        return change(value)
    first, *rest = path
    if isinstance(value, dict):
        return {
            key: replaced(part, tuple(rest), change) if key == first else part
            for key, part in value.items()
        }
    return [
        replaced(part, tuple(rest), change) if place == first else part
        for place, part in enumerate(value)
    ]


def changed_tensor(tensor: Tensor, drawn: random.Random) -> Tensor:
    """Return a tensor of another dtype, shape or size of its values, or with values that are no
    numbers.
    """
    changes: list[Callable[[Tensor], Tensor]] = [
        lambda value: value.to(torch.float64),
        lambda value: value.to(torch.int64),
        lambda value: value.reshape(-1)[:-1],
        lambda value: value[None],
        lambda value: torch.full_like(value, 3) * 10**18,
        lambda value: -value,
        lambda value: torch.zeros_like(value),
        lambda value: torch.full(value.shape, float("nan")),
        lambda value: torch.full(value.shape, float("inf")),
        lambda value: torch.full(value.shape, 3e38),
    ]
    return drawn.choice(changes)(tensor)


def changed(message: Any, drawn: random.Random) -> Any:
    """Return a message of which one part is another one, is missing, or is new."""
    path = drawn.choice(places(message)[1:] or [()])

    def change(value: Any) -> Any:
        if isinstance(value, Tensor) and drawn.random() < 0.7:
            return changed_tensor(value, drawn)
        if isinstance(value, dict) and value and drawn.random() < 0.5:
            key = drawn.choice(list(value))
            if drawn.random() < 0.5:
                return {other: part for other, part in value.items() if other != key}
            return {**value, f"{key}2": value[key]}
        if type(value) is int and drawn.random() < 0.5:
            return value + drawn.choice((-1, 1, 10**6, 10**12))
        return drawn.choice(VALUES)

    return replaced(message, path, change)


def garbled(content: bytes, drawn: random.Random) -> bytes:
    """Return bytes that are a message no more, or another one."""
    place = drawn.randrange(len(content))
    flipped = bytearray(content)
    flipped[place] ^= 1 << drawn.randrange(8)
    nested = b"[" * 5000
    choices = [
        b"",
        content[:place],
        content + b"x",
        bytes(flipped),
        drawn.randbytes(200),
        struct.pack(">Q", 2**62) + content,
        struct.pack(">Q", len(nested)) + nested,
    ]
    return drawn.choice(choices)


def lie(content: bytes, drawn: random.Random, before: Mapping[str, bytes]) -> list[bytes]:
    """Return what arrives instead of a message.

    Args:
        content: the message.
        drawn: draws the lie.
        before: earlier messages of the same sender, by key.
    """
    from fedlit.exchange.wire import pack, unpack

    kind = drawn.choice(("garbled", "earlier", "key", *["changed"] * 7))
    if kind == "garbled":
        return [garbled(content, drawn)]
    if kind == "earlier" and before:
        return [drawn.choice(list(before.values())), *([content] if drawn.random() < 0.5 else [])]
    message = unpack(content)
    if kind == "key":
        name = "key" if "key" in message else "to"
        return [pack({**message, name: drawn.choice(KEYS)})]
    return [pack(changed(message, drawn))]
