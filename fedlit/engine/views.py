"""Parameters and buffers of several clients as slices of one tensor for each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.stacks import base_of


def join(clients: Sequence[FederatedClient]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Let the parameters and buffers of clients be slices of one tensor for each name. Return the
    tensors, of parameters and of buffers. Tensors that are slices of one already stay where they
    are.
    """
    parameters = [dict(client.named_parameters()) for client in clients]
    buffers = [dict(client.named_buffers()) for client in clients]
    return _joined(parameters), _joined(buffers)


def _joined(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    joined = {}
    for name in states[0]:
        tensors = [state[name] for state in states]
        base = base_of(tensors)
        if base is None:
            base = torch.stack([tensor.detach() for tensor in tensors])
            for tensor, part in zip(tensors, base.unbind(), strict=True):
                tensor.data = part
        joined[name] = base
    return joined


class Entry(NamedTuple):
    """Where a module of a client holds a tensor.

    Attributes:
        tensors: the module's parameters or buffers by name.
        name: the tensor's name.
        tensor: the tensor.
        address: its address in the stack.
        trained: whether it had a gradient when the clients were stacked.
    """

    tensors: dict[str, Any]
    name: str
    tensor: Tensor
    address: int
    trained: bool


def entries_of(client: FederatedClient) -> list[Entry]:
    """Return where a client's tensors are held."""
    entries = []
    for module in client.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    address = tensor.data_ptr()
                    entries.append(Entry(tensors, name, tensor, address, tensor.requires_grad))
    return entries
