"""The content of a checkpoint as few objects: plain data as one text, and tensors of one form as one
tensor. torch would otherwise write some thousand objects for each client, one by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from fedlit.stacks import alone

PACKED: Final = "packed"
STACKS: Final = "stacks"
REST: Final = "rest"
"""The entries of a packed content: the plain data as JSON, the stacked tensors, and what is neither."""

_TENSOR = "~tensor"
_REST = "~rest"
_TUPLE = "~tuple"
_MAP = "~map"
_TAGS = {_TENSOR, _REST, _TUPLE, _MAP}

_Form = tuple[torch.dtype, torch.Size, torch.device]


class _Packer:
    """Replaces tensors, and what JSON cannot hold, by where they are kept."""

    def __init__(self) -> None:
        self.stacks: dict[_Form, tuple[int, list[Tensor]]] = {}
        self.rest: list[object] = []

    def plain(self, value: object) -> object:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return [self.plain(item) for item in value]
        if type(value) is tuple:
            return {_TUPLE: [self.plain(item) for item in value]}
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, Tensor) and value.layout is torch.strided:
            return {_TENSOR: self._tensor(value)}
        self.rest.append(value)
        return {_REST: len(self.rest) - 1}

    def _map(self, value: Mapping[Any, object]) -> object:
        if all(type(key) is str for key in value) and not value.keys() & _TAGS:
            return {key: self.plain(item) for key, item in value.items()}
        return {_MAP: [[self.plain(key), self.plain(item)] for key, item in value.items()]}

    def _tensor(self, value: Tensor) -> list[int]:
        form = (value.dtype, value.shape, value.device)
        number, tensors = self.stacks.setdefault(form, (len(self.stacks), []))
        tensors.append(value.detach())
        return [number, len(tensors) - 1]


def packed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content as one text, one tensor for all tensors of a type and shape, and what is
    neither; :func:`unpacked` is the inverse.

    Args:
        content: plain data and tensors; a dictionary of any class comes back as a plain one.

    Example:
        >>> content = {"epoch": 2, "w": [torch.zeros(3), torch.ones(3)]}
        >>> [stack.shape for stack in packed(content)["stacks"]]
        [torch.Size([2, 3])]
        >>> unpacked(packed(content))
        {'epoch': 2, 'w': [tensor([0., 0., 0.]), tensor([1., 1., 1.])]}
    """
    packer = _Packer()
    text = json.dumps(packer.plain(dict(content)))
    stacks = []
    for _, tensors in packer.stacks.values():
        stacks.append(torch.stack(tensors) if len(tensors) > 1 else alone(tensors[0])[None])
    return {PACKED: text, STACKS: stacks, REST: packer.rest}


def unpacked(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was :func:`packed`; a content that is not packed stays as it is.

    Each tensor is a part of a stack, which is read when it is used.
    """
    if PACKED not in content:
        return dict(content)
    rows = [stack.unbind() for stack in content[STACKS]]
    rest = content[REST]

    def value_of(item: dict[str, Any]) -> object:
        if len(item) == 1:
            (tag, value), *_ = item.items()
            if tag == _TENSOR:
                return rows[value[0]][value[1]]
            if tag == _REST:
                return rest[value]
            if tag == _TUPLE:
                return tuple(value)
            if tag == _MAP:
                return dict(value)
        return item

    original: dict[str, Any] = json.loads(content[PACKED], object_hook=value_of)
    return original
