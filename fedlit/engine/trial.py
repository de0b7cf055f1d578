"""Tries whether clients can be stepped as one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.devices import runs_ahead
from fedlit.engine.layers import StackValues
from fedlit.engine.stack import network_of
from fedlit.engine.vmapped import with_separate_modules
from fedlit.seeding import Draws, draws_of, isolated_rng


def why_not(clients: Sequence[FederatedClient], batch: Batch, compiled: bool = False) -> str:
    """Try a step on copies, stacked and one by one. Return why the stack cannot be used; empty if
    it can.
    """
    parameters = _stacked([dict(client.named_parameters()) for client in clients])
    buffers = _stacked([dict(client.named_buffers()) for client in clients])
    for name, parameter in clients[0].named_parameters():
        parameters[name].requires_grad_(parameter.requires_grad)
    x = batch.x.expand(len(clients), *batch.x.shape).contiguous()
    y = batch.y.expand(len(clients), *batch.y.shape).contiguous()
    try:
        copies = [with_separate_modules(client) for client in clients]
        generators: Draws = ()
        without_dropout: AbstractContextManager[object] = nullcontext()
        if runs_ahead(batch.x.device):
            without_dropout = _WithoutDropout()  # A stack drops other units there.
        else:
            generators = draws_of([0] * len(copies), batch.x.device)
        values = StackValues(parameters | buffers, generators)
        with torch.enable_grad(), without_dropout:
            losses = network_of(clients[0], compiled).losses(x, y, values)
            losses.sum().backward()
    except Exception as error:
        lines = str(error).strip().splitlines()
        first_line = lines[0] if lines else ""
        return f"{type(error).__name__}: {first_line}"
    results = _results(losses, buffers, parameters)
    for position, client in enumerate(copies):
        client.zero_grad()
        with torch.enable_grad(), isolated_rng(0), without_dropout:
            loss = client.objective(batch.x, batch.y)
            loss.backward()
        expected = _results(loss, dict(client.named_buffers()), dict(client.named_parameters()))
        actual = {name: stacked[position] for name, stacked in results.items()}
        different = _different(expected, actual)
        if different:
            return f"a trial gave another {different} than each alone"
    return ""


class _WithoutDropout(TorchFunctionMode):
    """Leaves out dropout."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.dropout:
            return args[0]
        return func(*args, **(kwargs or {}))


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    stacked = {}
    for name in states[0]:
        stacked[name] = torch.stack([state[name].detach() for state in states])
    return stacked


def _results(
    loss: Tensor, buffers: dict[str, Tensor], parameters: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return the loss, the buffers and the gradients of a step by name."""
    results = {"loss": loss, **buffers}
    for name, w in parameters.items():
        results[f"gradient of {name}"] = torch.zeros_like(w) if w.grad is None else w.grad
    return results


def _different(expected: dict[str, Tensor], actual: dict[str, Tensor]) -> str:
    """Return the name of the first tensor that is not close to the expected one; empty if all
    are.
    """
    sizes = [
        float(value.detach().float().abs().max()) for value in expected.values() if value.numel()
    ]
    tolerance = 1e-4 * (1 + max(sizes))
    for name, value in expected.items():
        if not torch.allclose(actual[name].float(), value.float(), rtol=1e-2, atol=tolerance):
            return name
    return ""
