"""Where modules hold their parts, so that a part that somebody has replaced is noticed."""

from __future__ import annotations

from itertools import pairwise
from operator import is_
from typing import Any

from torch import Tensor, nn


class Held:
    """The modules, parameters and buffers in some modules, as they are now.

    It is asked in every step about thousands of modules, so their parts are compared as lists,
    without a loop over modules.

    Args:
        modules: the modules.

    Attributes:
        tensors: the parameters and buffers of each module.

    Example:
        >>> import torch
        >>> first, second = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> held = Held(first, second)
        >>> held.intact, held.changed
        (True, [])
        >>> second.bias = nn.Parameter(torch.zeros(1))
        >>> held.intact, held.changed
        (False, [1])
    """

    def __init__(self, *modules: nn.Module) -> None:
        self.tensors: list[list[Tensor]] = []
        self._holders: list[dict[str, Any]] = []
        # holder, key and value of each part
        self._dicts: list[dict[str, Any]] = []
        self._keys: list[str] = []
        self._values: list[Any] = []
        # where each module's holders and parts begin, and where the last one's end
        self._holders_at = [0]
        self._parts_at = [0]
        for module in modules:
            tensors: list[Tensor] = []
            for part in module.modules():
                for holder in (part._modules, part._parameters, part._buffers):
                    self._holders.append(holder)
                    self._dicts += [holder] * len(holder)
                    self._keys += holder.keys()
                    self._values += holder.values()
                    tensors += [value for value in holder.values() if isinstance(value, Tensor)]
            self.tensors.append(tensors)
            self._holders_at.append(len(self._holders))
            self._parts_at.append(len(self._keys))
        self._sizes = list(map(len, self._holders))

    @property
    def intact(self) -> bool:
        """Whether no part was replaced, added or removed."""
        return self._are_intact(slice(None), slice(None))

    @property
    def changed(self) -> list[int]:
        """The positions of the modules in which a part was replaced, added or removed."""
        ranges = zip(pairwise(self._holders_at), pairwise(self._parts_at), strict=True)
        return [
            position
            for position, (holders, parts) in enumerate(ranges)
            if not self._are_intact(slice(*holders), slice(*parts))
        ]

    def _are_intact(self, holders: slice, parts: slice) -> bool:
        if list(map(len, self._holders[holders])) != self._sizes[holders]:
            return False
        values = map(dict.get, self._dicts[parts], self._keys[parts])
        return all(map(is_, values, self._values[parts]))
