"""Which clients may share a stack: those with the same key."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain, islice
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedlit.client.client import FederatedClient, has_hook
from fedlit.data.loader import Batch
from fedlit.devices import runs_ahead
from fedlit.engine.layers import PlainNetwork
from fedlit.engine.stack_sizes import MAX_ROWS
from fedlit.engine.views import Scalar, has_hooks, has_methods, scalars_of

ELEMENTWISE = frozenset(
    {
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.RMSprop,
    }
)
"""Optimizers that treat each number by itself, so that one of them serves stacked parameters."""

_MODULE = frozenset(vars(nn.Module()))
_SAME = _MODULE | {"axes"}
_STEP_HOOKS = (
    "training_step",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "optimizers",
)


class StackKey(NamedTuple):
    """What clients that share a stack have in common.

    Attributes:
        structure: the structure of the client, its batch and its optimizer.
        steps: how many parameters the optimizer has a state of, and the steps that it has taken. A
            client whose optimizer has lost its state differs from the others from then on.
    """

    structure: Hashable
    steps: Hashable


def stack_key(
    client: FederatedClient, batch: Batch, steps: Sequence[float] | None = None
) -> StackKey | None:
    """Return the key of clients that may share a stack; None for a client that may not.

    A client qualifies if it is a plain :class:`FederatedClient`, or of a class that itself sets
    ``stackable = True`` (its ``forward``, ``loss`` and ``objective`` use nothing of the client but
    its modules and settings), with one optimizer that treats numbers one by one. Clients match if
    their tasks have the same loss, they have the same settings, their networks the same modules,
    shapes and settings, and their optimizers the same parameters.

    Args:
        client: the client.
        batch: its batch.
        steps: the numbers of steps in the state of its optimizer; None to read them.
    """
    if not _has_plain_step(client, batch) or has_hooks(client):
        return None
    optimizer = client._optimizers[0]
    if steps is None:
        (steps,) = steps_taken([client])
    structure: list[object] = [
        type(client),
        client.training,
        client.spec.task.alike,
        client.gradient_clip_val,
        _shape(client, batch),
        type(optimizer),
        _optimizer_settings(optimizer, client),
        tuple(scalars_of(client).items()),
    ]
    for name, module in client.named_modules():
        if module is not client:
            structure.append((name, type(module), _module_settings(module)))
    structure += [parameter.requires_grad for parameter in client.parameters()]
    tensors = chain(client.named_parameters(), client.named_buffers())
    structure += [(name, value.shape, value.dtype) for name, value in tensors]
    return StackKey(tuple(structure), (len(optimizer.state), *steps))


def steps_taken(clients: Sequence[FederatedClient]) -> list[tuple[float, ...]]:
    """Return the different numbers of steps in the state of each client's optimizers. Those that
    are on a device are read at once.
    """
    of_clients = []
    for client in clients:
        states = chain.from_iterable(optimizer.state.values() for optimizer in client._optimizers)
        of_clients.append([state["step"] for state in states if "step" in state])
    counts = list(chain(*of_clients))
    if counts and all(isinstance(count, Tensor) and runs_ahead(count.device) for count in counts):
        counts = torch.stack(counts).tolist()
    numbers = map(float, counts)
    return [tuple(sorted(set(islice(numbers, len(counts))))) for counts in of_clients]


def _has_plain_step(client: FederatedClient, batch: Batch) -> bool:
    """Return whether a stack can take the client's step: one of the loop's own, on unweighted rows,
    with one optimizer, of the client's parameters alone, that treats numbers one by one.
    """
    kind = type(client)
    if not vars(kind).get("stackable") or not client.automatic_optimization:
        return False
    if any(has_hook(client, hook) for hook in _STEP_HOOKS):
        return False
    if has_methods(client):
        return False
    if batch.weight is not None:
        return False
    if len(batch.y) > MAX_ROWS and not runs_ahead(batch.x.device):
        return False
    if len(client._optimizers) != 1 or type(client._optimizers[0]) not in ELEMENTWISE:
        return False
    of_client = set(map(id, client.parameters()))
    groups = client._optimizers[0].param_groups
    return all(of_client.issuperset(map(id, group["params"])) for group in groups)


def _shape(client: FederatedClient, batch: Batch) -> torch.Size:
    """Return what must be equal of the shapes of clients' batches."""
    if runs_ahead(batch.x.device):
        network = PlainNetwork.of_client(client)
        if network is not None and network.by_rows:
            return batch.x.shape[1:]
    return batch.x.shape


def _optimizer_settings(optimizer: Optimizer, client: FederatedClient) -> Hashable:
    """Return the settings of each group, and the names of its parameters."""
    names = {id(parameter): name for name, parameter in client.named_parameters()}
    settings: list[Hashable] = []
    for group in optimizer.param_groups:
        settings += [(key, repr(value)) for key, value in group.items() if key != "params"]
        settings.append(tuple(names[id(parameter)] for parameter in group["params"]))
    return tuple(settings)


def _module_settings(module: nn.Module) -> Hashable:
    """Return the attributes of a module that change its results; names of columns and classes do
    not.
    """
    settings = []
    for key, value in vars(module).items():
        if key not in _SAME or key == "training":
            settings.append((key, _plain(value)))
    return tuple(settings)


def _plain(value: object) -> Hashable:
    """Return a value by which equal settings are recognised."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, tuple | list) and all(isinstance(item, Scalar) for item in value):
        return repr(value)
    return id(value)
