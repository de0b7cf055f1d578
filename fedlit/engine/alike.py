"""Finds clients of the same structure, which may be stepped as one."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import nn

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch

MAX_ROWS = 256
"""Rows in a batch up to which stacking pays; beyond, the arithmetic dominates and threads do as well."""

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
_STEP_HOOKS = ("on_after_backward", "on_before_optimizer_step", "on_before_zero_grad", "optimizers")


def stack_key(client: FederatedClient, batch: Batch) -> Hashable | None:
    """Return the key of clients that may share a stack; None for a client that may not.

    A client qualifies if it is a plain :class:`FederatedClient`, or of a class that itself sets ``stackable = True``
    (its ``forward``, ``loss`` and ``objective`` use nothing of the client but its modules), with one optimizer that
    treats numbers one by one. Clients match if their tasks have the same loss and their networks the same modules,
    shapes and settings.
    """
    kind = type(client)
    own_step = kind.training_step is not FederatedClient.training_step
    if not vars(kind).get("stackable") or own_step or not client.automatic_optimization:
        return None
    if any(getattr(kind, hook) is not getattr(FederatedClient, hook) for hook in _STEP_HOOKS):
        return None
    if len(client._optimizers) != 1 or type(client._optimizers[0]) not in ELEMENTWISE or len(batch.y) > MAX_ROWS:
        return None
    optimizer = client._optimizers[0]
    groups = tuple((key, repr(g[key])) for g in optimizer.param_groups for key in g if key != "params")
    steps = {float(state["step"]) for state in optimizer.state.values() if "step" in state}
    age = (len(optimizer.state), *steps)  # one that has lost its state differs from the others from then on
    task = client.spec.task.alike
    structure: list[Any] = [kind, task, client.gradient_clip_val, batch.x.shape, type(optimizer), groups, age]
    for name, module in client.named_modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if any(hooks):
            return None
        if module is not client:
            # names of columns and classes change nothing that is computed
            settings = {key: value for key, value in vars(module).items() if key not in _SAME or key == "training"}
            structure.append((name, type(module), tuple((key, _plain(value)) for key, value in settings.items())))
    for parameter in client.parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return None
        structure.append(parameter.requires_grad)
    structure += [(name, value.shape, value.dtype) for name, value in client.state_dict().items()]
    return tuple(structure)


def _plain(value: Any) -> Hashable:
    return value if isinstance(value, bool | int | float | str | None) else repr(value) if _simple(value) else id(value)


def _simple(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(item, bool | int | float | str | None) for item in value)
