"""The content of a checkpoint as few objects: plain data as one text, and tensors of one form as one
tensor. torch would otherwise write some thousand objects for each client, one by one.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor

from fedlit.stacks import alone

PACKED: Final = "packed"
STACKS: Final = "stacks"
REST: Final = "rest"
"""The entries of a packed content: the plain data as JSON, whose bytes are a tensor, because torch
would copy a text three times; the stacked tensors; and what is neither."""

_TENSOR = "~tensor"
_REST = "~rest"
_TUPLE = "~tuple"
_MAP = "~map"
_CONSTANT = "~constant"
_TAGS = {_TENSOR, _REST, _TUPLE, _MAP, _CONSTANT}

# Quotes within a text are escaped, so that only the packer writes this.
_PLACE = re.compile(rb'\{"~constant": (\d+)\}')

_ATOMS = {type(None), bool, int, float, str}

_Form = tuple[torch.dtype, torch.Size, torch.device]


class Constant(Mapping[str, Any]):
    """A part of a content that is the same in every checkpoint of a run. Its text is made once and
    kept; the part itself is made again for whoever reads it.

    Args:
        make: makes the part.

    Example:
        >>> bins = Constant(lambda: {"edges": (0.5, 1.5)})
        >>> unpacked(packed({"encoder": bins})) == {"encoder": {"edges": (0.5, 1.5)}}
        True
    """

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    @cached_property
    def text(self) -> bytearray | None:
        """The part as JSON; None if it has more than plain data, such as tensors."""
        packer = _Packer()
        text = packer.text_of(self.made)
        return None if packer.stacks or packer.rest else text

    @property
    def made(self) -> dict[str, Any]:
        """The part, made again."""
        return dict(self._make())

    def __getitem__(self, key: str) -> Any:
        return self.made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)

    def __reduce__(self) -> tuple[type[OrderedDict[str, Any]], tuple[list[tuple[str, Any]]]]:
        # torch reads files of weights only with this class, also those that another program wrote.
        return OrderedDict, (list(self.made.items()),)


class _Packer:
    """Replaces tensors, constant parts, and what JSON cannot hold, by where they are kept."""

    def __init__(self) -> None:
        self.stacks: dict[_Form, tuple[int, list[Tensor]]] = {}
        self.constants: list[bytearray] = []
        self.rest: list[object] = []

    def plain(self, value: object) -> object:
        if type(value) in _ATOMS:
            return value
        if type(value) is list:
            return self._items(value)
        if type(value) is tuple:
            return {_TUPLE: self._items(value)}
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, Constant):
            return self._constant(value)
        if isinstance(value, Tensor) and value.layout is torch.strided:
            return {_TENSOR: self._tensor(value)}
        self.rest.append(value)
        return {_REST: len(self.rest) - 1}

    def text_of(self, value: Mapping[str, object]) -> bytearray:
        """Return a value as JSON, with constant parts in their places."""
        pieces: list[bytes | bytearray] = []
        pieces += _PLACE.split(json.dumps(self.plain(dict(value))).encode())
        pieces[1::2] = [self.constants[int(number)] for number in pieces[1::2]]
        return bytearray().join(pieces)

    def _constant(self, value: Constant) -> object:
        if value.text is None:
            return self._map(value.made)
        self.constants.append(value.text)
        return {_CONSTANT: len(self.constants) - 1}

    def _items(self, items: Sequence[object]) -> Sequence[object]:
        if _ATOMS.issuperset(map(type, items)):
            return items
        return [self.plain(item) for item in items]

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
    text = torch.frombuffer(packer.text_of(content), dtype=torch.uint8)
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

    text = content[PACKED].numpy().tobytes()
    original: dict[str, Any] = json.loads(text, object_hook=value_of)
    return original
