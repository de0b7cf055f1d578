"""Where a module holds its parts, so that a part that somebody has replaced is noticed."""

from __future__ import annotations

from operator import is_
from typing import Any

from torch import Tensor, nn


class Held:
    """The modules, parameters and buffers of a module, and of the modules in it, as they are now.

    Args:
        module: the module.

    Attributes:
        tensors: its parameters and buffers.

    Example:
        >>> import torch
        >>> layer = nn.Linear(2, 1)
        >>> held = Held(layer)
        >>> held.intact
        True
        >>> layer.bias = nn.Parameter(torch.zeros(1))
        >>> held.intact
        False
    """

    def __init__(self, module: nn.Module) -> None:
        self.tensors: list[Tensor] = []
        self._holders: list[dict[str, Any]] = []
        # holder, key and value of each part
        self._dicts: list[dict[str, Any]] = []
        self._keys: list[str] = []
        self._values: list[Any] = []
        for part in module.modules():
            for holder in (part._modules, part._parameters, part._buffers):
                self._holders.append(holder)
                for key, value in holder.items():
                    self._dicts.append(holder)
                    self._keys.append(key)
                    self._values.append(value)
                    if isinstance(value, Tensor):
                        self.tensors.append(value)
        self._sizes = list(map(len, self._holders))

    @property
    def intact(self) -> bool:
        """Whether no part was replaced, added or removed."""
        if list(map(len, self._holders)) != self._sizes:
            return False
        return all(map(is_, map(dict.get, self._dicts, self._keys), self._values))
