"""Parameters and buffers of several clients as slices of one tensor for each name, and whether the
clients are still what a stack computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice, product
from operator import attrgetter, itemgetter
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer

from fedlit.client.client import FederatedClient
from fedlit.client.hooks import NoteOfSteps
from fedlit.held import Held
from fedlit.stacks import base_of, parts_of

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""The attributes by which a module holds what runs beside its ``forward``."""

HOOKS_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The attributes by which a parameter holds what runs when its gradient is computed."""

STEP_METHODS = (
    "forward",
    "objective",
    "loss",
    "training_step",
    "descend",
    "clipped_apart",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "optimizers",
)
"""The methods whose work a stack does. A class says whether it may (``stackable``); a client with
such a method of its instance is stepped alone."""


Scalar = bool | int | float | str | None

_OTHER_ATTRIBUTES = frozenset(vars(LightningModule())) | {
    "accumulate",
    "fine_tunes",
    "gradient_clip_val",
    "row_weight",
    "scheduler_factory",
    "scheduler_interval",
    "skipped",
    "stacked",
    "steps_now",
    "steps_taken",
}
"""Attributes of a client, and of any module, that do not change what it computes for a batch."""

_SIZES = frozenset({"in_features", "num_features", "out_features"})
"""Attributes of torch's layers that the shapes of their tensors tell."""


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
            for tensor, part in zip(tensors, parts_of(base), strict=True):
                tensor.data = part
        joined[name] = base
    return joined


def has_hooks(client: FederatedClient) -> bool:
    """Return whether a module, a parameter or an optimizer of the client has hooks."""
    of_modules = [getattr(module, hooks) for module, hooks in product(client.modules(), HOOKS)]
    of_parameters = [
        getattr(parameter, hooks)
        for parameter, hooks in product(client.parameters(), HOOKS_OF_TENSORS)
    ]
    of_optimizers = map(_has_step_hooks, client._optimizers)
    return any(of_modules) or any(of_parameters) or any(of_optimizers)


def _has_step_hooks(optimizer: Optimizer) -> bool:
    if optimizer._optimizer_step_pre_hooks:
        return True
    hooks = optimizer._optimizer_step_post_hooks.values()
    return not all(isinstance(hook, NoteOfSteps) for hook in hooks)


def scalars_of(module: nn.Module) -> dict[str, Scalar]:
    """Return the numbers, words and switches that were set on a module, such as the share of a
    dropout or a client's coefficient, by name.

    Example:
        >>> scalars_of(nn.Dropout(0.2))
        {'p': 0.2, 'inplace': False}
    """
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Scalar) and name not in _OTHER_ATTRIBUTES and name not in _SIZES
    }


class Watch:
    """Notices when clients are no longer what their stack computes.

    It is asked before each step, so the facts about all clients are compared as lists, without a
    loop over clients.

    Args:
        clients: the clients, as they are stacked.

    Attributes:
        tensors: the parameters and buffers of each client.
    """

    def __init__(self, clients: Sequence[FederatedClient]) -> None:
        self._clients = clients
        self._parts = Held(*clients)
        self.tensors = self._parts.tensors
        self._flat = list(chain.from_iterable(self.tensors))
        self._addresses = _addresses(self._flat)
        self._trained = list(map(attrgetter("requires_grad"), self._flat))
        modules = list(chain.from_iterable(client.modules() for client in clients))
        self._attributes = list(map(vars, modules))
        self._numbers = list(map(len, self._attributes))  # of attributes
        self._hooks = [getattr(module, hooks) for module, hooks in product(modules, HOOKS)]
        # attributes, name and value of each setting
        self._set_on: list[dict[str, Any]] = []
        self._settings: list[str] = []
        self._set_to: list[Scalar] = []
        for module in modules:
            scalars = scalars_of(module)
            self._set_on += [vars(module)] * len(scalars)
            self._settings += scalars.keys()
            self._set_to += scalars.values()

    @property
    def replaced(self) -> list[FederatedClient]:
        """The clients with a module or a tensor that is no longer the stack's, because somebody has
        put another one in its place.
        """
        if self._parts.intact and _addresses(self._flat) == self._addresses:
            return []
        changed = set(self._parts.changed)
        addresses = iter(self._addresses)
        for position, tensors in enumerate(self.tensors):
            if _addresses(tensors) != list(islice(addresses, len(tensors))):
                changed.add(position)
        return [self._clients[position] for position in sorted(changed)]

    @property
    def as_stacked(self) -> bool:
        """Whether no client has hooks, methods that were replaced on the instance, a module in
        another mode than the others' (training or evaluation), a setting that was changed, or a
        parameter that was frozen or unfrozen.
        """
        if any(self._hooks) or self._has_methods():
            return False
        if list(map(dict.get, self._set_on, self._settings)) != self._set_to:
            return False
        for hooks in HOOKS_OF_TENSORS:
            if any(map(attrgetter(hooks), self._flat)):
                return False
        modes = list(map(itemgetter("training"), self._attributes))
        if modes != modes[: len(modes) // len(self._clients)] * len(self._clients):
            return False
        return list(map(attrgetter("requires_grad"), self._flat)) == self._trained

    def _has_methods(self) -> bool:
        """Return whether a client or a module of one has methods of its instance."""
        numbers = list(map(len, self._attributes))
        if numbers == self._numbers:
            return False  # There are no new attributes.
        if any("forward" in attributes for attributes in self._attributes):
            return True
        if any(has_methods(client) for client in self._clients):
            return True
        self._numbers = numbers
        return False


def has_methods(client: FederatedClient) -> bool:
    """Return whether a method whose work a stack does was replaced on the client itself."""
    return not vars(client).keys().isdisjoint(STEP_METHODS)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return list(map(Tensor.data_ptr, tensors))
