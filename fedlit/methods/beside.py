"""Tensors beside a client's parameters, as buffers of a module: in the checkpoint, and in stacks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

__all__ = ["as_buffers", "by_name"]


def as_buffers(values: Mapping[str, Tensor]) -> nn.Module:
    """A module whose buffers are these, under names that a module allows (``core/weight`` for ``core.weight``)."""
    module = nn.Module()
    for name, value in values.items():
        module.register_buffer(name.replace(".", "/"), value)
    return module


def by_name(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of :func:`as_buffers` by the names that were given."""
    return {name.replace("/", "."): value for name, value in module.named_buffers()}
