"""Computes stacked networks of any layers by ``vmap``: each operation is started once for all
clients of a stack.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from fedlit.client.client import FederatedClient
from fedlit.engine.layers import StackValues
from fedlit.nn.native.stacked import StackedDropout, StackedLinear, StackedNorm
from fedlit.seeding import GENERATORS, Draws

SIGNATURES = {
    func: inspect.signature(func) for func in (nn.functional.batch_norm, nn.functional.dropout)
}


class Stacked(TorchFunctionMode):
    """Computes the linear layers and normalisations of a stack by special kernels
    (:mod:`fedlit.nn.native`), and draws dropout for each client as it would be drawn for the client
    alone.
    """

    def __init__(self, compiled: bool, generators: Draws = ()) -> None:
        super().__init__()
        self.compiled = compiled
        self._generators = generators

    def __enter__(self) -> Stacked:
        self._token = GENERATORS.set(self._generators)
        entered: Stacked = super().__enter__()
        return entered

    def __exit__(self, *error: object) -> None:
        GENERATORS.reset(self._token)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.linear and not kwargs:
            x, weight, *rest = args
            bias = rest[0] if rest else None
            if not torch.is_autocast_enabled(x.device.type):
                return StackedLinear.apply(x, weight, bias, self.compiled)
        if func is nn.functional.batch_norm and self.compiled:
            arguments = _arguments(func, args, kwargs)
            if StackedNorm.fits(*arguments[:5]):
                return StackedNorm.apply(*arguments)[0]
        if func is nn.functional.dropout and self._generators:
            x, share, training, _ = _arguments(func, args, kwargs)
            if training and 0 < share < 1:
                return StackedDropout.apply(x, share, self._generators)[0]
        return func(*args, **kwargs)


def _arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments of a call in the order of the function's signature, including
    defaults.
    """
    bound = SIGNATURES[func].bind(*args, **kwargs)
    bound.apply_defaults()
    return list(bound.arguments.values())


class VmappedNetwork:
    """The network and the objective of clients that share a stack, whatever layers they have.

    Args:
        client: one of the clients.
        compiled: whether compiled kernels may be used.

    Attributes:
        draws: whether a layer may draw random numbers.
    """

    draws = True

    def __init__(self, client: FederatedClient, compiled: bool) -> None:
        self.compiled = compiled
        self._client = client
        # `functional_call` puts the stack's tensors into the copy's modules, because a client's
        # modules may be in use on another thread. So may the copy, which therefore has a lock.
        self._template = with_separate_modules(client)
        self._lock = threading.Lock()

    @contextmanager
    def _lending(self) -> Iterator[FederatedClient]:
        with self._lock:
            modules = zip(self._template.modules(), self._client.modules(), strict=True)
            for module, client_module in modules:
                module.training = client_module.training
            yield self._template

    def outputs(self, x: Tensor, stack: StackValues) -> Tensor:
        """Return the outputs (clients, rows, outputs), given rows (clients, rows, features)."""

        def client_outputs(tensors: dict[str, Tensor], rows: Tensor) -> Tensor:
            logits: Tensor = functional_call(template, tensors, (rows,))
            return logits

        with self._lending() as template, Stacked(self.compiled, stack.generators):
            outputs: Tensor = vmap(client_outputs)(stack.tensors, x)
            return outputs

    def losses(self, x: Tensor, y: Tensor, stack: StackValues) -> Tensor:
        """Return the objective of each client, (clients,)."""

        def client_loss(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            loss: Tensor = functional_call(objective, tensors, (x, y))
            return loss

        tensors = {f"client.{name}": value for name, value in stack.tensors.items()}
        with self._lending() as template, Stacked(self.compiled, stack.generators):
            objective = _Objective(template)
            losses: Tensor = vmap(client_loss)(tensors, x, y)
            return losses


def with_separate_modules(client: FederatedClient) -> FederatedClient:
    """Return the client with separate modules; everything else is shared."""
    twin = copy.copy(client)
    twin._modules = copy.deepcopy(client._modules)
    return twin


class _Objective(nn.Module):
    """A client's objective as a module, so that an objective that reads tensors of the client
    (class weights) reads each client's.
    """

    def __init__(self, client: FederatedClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.client.objective(x, y)
