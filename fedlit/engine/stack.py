"""Computes clients of the same structure as one: their tensors are stacked, and their matrix
products are batched.

A small network's step is mostly the cost of starting its operations, not of their arithmetic; a
stack starts each operation once for all its clients.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.nn.native.stacked import StackedDropout, StackedLinear, StackedNorm
from fedlit.seeding import GENERATORS, isolated_rng

SIGNATURES = {
    func: inspect.signature(func) for func in (nn.functional.batch_norm, nn.functional.dropout)
}


class Stacked(TorchFunctionMode):
    """Computes the linear layers and normalisations of a stack by special kernels
    (:mod:`fedlit.nn.native`), and draws dropout for each client as it would be drawn for the client
    alone.
    """

    def __init__(self, compiled: bool, seeds: Sequence[int] = ()) -> None:
        super().__init__()
        self.compiled = compiled
        self._generators = tuple(torch.Generator().manual_seed(seed) for seed in seeds)

    def __enter__(self) -> Stacked:
        self._token = GENERATORS.set(self._generators)
        entered: Stacked = super().__enter__()
        return entered

    def __exit__(self, *error: object) -> None:
        GENERATORS.reset(self._token)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (
            func is nn.functional.linear
            and not kwargs
            and not torch.is_autocast_enabled(args[0].device.type)
        ):
            return StackedLinear.apply(
                args[0], args[1], args[2] if len(args) > 2 else None, self.compiled
            )
        if func is nn.functional.batch_norm and self.compiled:
            arguments = _arguments(func, args, kwargs)
            if StackedNorm.fits(*arguments[:5]):
                return StackedNorm.apply(*arguments)[0]
        if func is nn.functional.dropout and self._generators:
            x, share, training, _ = _arguments(func, args, kwargs)
            if training and 0 < share < 1 and x.device.type == "cpu":
                return StackedDropout.apply(x, share, self._generators)[0]
        return func(*args, **kwargs)


def _arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments of a call in the order of the function's signature, including
    defaults.
    """
    bound = SIGNATURES[func].bind(*args, **kwargs)
    bound.apply_defaults()
    return list(bound.arguments.values())


class Stack:
    """Several clients of the same structure, stepped and evaluated as one.

    Their parameters and buffers become views of stacked tensors, and so does the state of their
    optimizers: an exchange or a checkpoint reads and writes each client's tensors as before.

    Args:
        clients: clients that share a :func:`~fedlit.engine.stacked.stack_key`.
        compiled: whether compiled kernels may be used.
    """

    def __init__(self, clients: Sequence[FederatedClient], compiled: bool = False) -> None:
        self.clients = list(clients)
        self.compiled = compiled
        # Lends its modules to `functional_call`, which puts the stack's tensors into them: a
        # client's own may be in use on another thread, and so may the copy.
        self._template = _copy(clients[0])
        self._lock = threading.Lock()
        parameters: list[dict[str, Tensor]] = [
            dict(client.named_parameters()) for client in clients
        ]
        buffers: list[dict[str, Tensor]] = [dict(client.named_buffers()) for client in clients]
        self.parameters = _stacked(parameters)
        self.buffers = _stacked(buffers)
        for stacked, states in ((self.parameters, parameters), (self.buffers, buffers)):
            for position, state in enumerate(states):
                for name, tensor in state.items():
                    tensor.data = stacked[name][position]
        for name, parameter in parameters[0].items():
            joint = self.parameters[name].requires_grad_(parameter.requires_grad)
            gradients = [own[name].grad for own in parameters]
            if any(gradient is not None for gradient in gradients):  # accumulated so far
                joint.grad = torch.stack(
                    [torch.zeros_like(parameter) if g is None else g for g in gradients]
                )
        self._twins = [
            (self.parameters[name], own) for mine in parameters for name, own in mine.items()
        ]
        for client in clients:
            client.stacked = True
        self._optimizer: Optimizer | None = None
        self._shared = 0  # parameters whose optimizer's state the clients have

    @staticmethod
    def why_not(clients: Sequence[FederatedClient], batch: Batch, compiled: bool = False) -> str:
        """Try a step on copies, stacked and one by one. Return why the stack cannot be used; empty
        if it can.
        """
        parameters = _stacked([dict(client.named_parameters()) for client in clients])
        buffers = _stacked([dict(client.named_buffers()) for client in clients])
        for name, parameter in clients[0].named_parameters():
            parameters[name].requires_grad_(parameter.requires_grad)
        x, y = (
            value.expand(len(clients), *value.shape).contiguous() for value in (batch.x, batch.y)
        )
        try:
            copies = [_copy(client) for client in clients]
            with torch.enable_grad():
                with Stacked(compiled, [0] * len(copies)):
                    losses = _losses(_copy(clients[0]), parameters, buffers, x, y)
                losses.sum().backward()
        except Exception as error:
            reason = str(error).strip().splitlines()
            return f"{type(error).__name__}: {reason[0] if reason else ''}"
        for position, alone in enumerate(copies):
            alone.zero_grad()
            with torch.enable_grad(), isolated_rng(0):
                loss = alone.objective(batch.x, batch.y)
                loss.backward()
            found = {
                "loss": losses[position],
                **{name: value[position] for name, value in buffers.items()},
            }
            expected = {"loss": loss, **dict(alone.named_buffers())}
            for name, parameter in alone.named_parameters():
                gradient = parameters[name].grad
                expected[f"gradient of {name}"] = (
                    torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                )
                found[f"gradient of {name}"] = (
                    torch.zeros_like(parameter) if gradient is None else gradient[position]
                )
            largest = max(
                float(value.detach().float().abs().max())
                for value in expected.values()
                if value.numel()
            )
            for name, value in expected.items():
                if not torch.allclose(
                    found[name].float(), value.float(), rtol=1e-2, atol=1e-4 * (1 + largest)
                ):
                    return f"a trial gave another {name} than each alone"
        return ""

    def release(self) -> None:
        """Give each client separate tensors again, if it still has the stack's. The stack cannot be
        used afterwards.
        """
        shared = {
            value.untyped_storage().data_ptr()
            for value in (*self.parameters.values(), *self.buffers.values())
        }
        for position, client in enumerate(self.clients):
            client.stacked = False
            for name, parameter in client.named_parameters():
                accumulated = self.parameters[name].grad
                parameter.grad = None if accumulated is None else accumulated[position].clone()
            for tensor in (*client.parameters(), *client.buffers()):
                if tensor.untyped_storage().data_ptr() in shared:
                    tensor.data = tensor.data.clone()
            for optimizer in client._optimizers:
                for state in optimizer.state.values():
                    state.update(
                        {
                            key: value.clone()
                            for key, value in state.items()
                            if isinstance(value, Tensor)
                        }
                    )

    @contextmanager
    def _lending(self) -> Iterator[FederatedClient]:
        with self._lock:
            for own, module in zip(
                self.clients[0].modules(), self._template.modules(), strict=True
            ):
                module.training = own.training
            yield self._template

    # ------------------------------------------------------------------ a step

    def step(
        self, rows: Batch, accumulate: int = 1, update: bool = True, seeds: Sequence[int] = ()
    ) -> None:
        """Take one step of every client.

        Args:
            rows: the clients' batches, of equal length, one after another.
            seeds: the seed of each client's dropout in this step.
            accumulate: the number of batches per optimizer step.
            update: whether the optimizers step now.
        """
        x, y = (value.view(len(self.clients), -1, *value.shape[1:]) for value in (rows.x, rows.y))
        with self._lending() as template, Stacked(self.compiled, seeds):
            losses = _losses(template, self.parameters, self.buffers, x, y)
        # The sum's gradient with respect to each client is that of its own loss.
        (losses.sum() / accumulate if accumulate > 1 else losses.sum()).backward()
        for client, loss in zip(self.clients, losses.detach().unbind(), strict=True):
            client.log("loss", loss)
        if update:
            self._update()

    @torch.no_grad()
    def _update(self) -> None:
        limit = self.clients[0].gradient_clip_val
        if limit:
            for names in self.clients[0].clipped_apart():
                gradients = [g for name in names if (g := self.parameters[name].grad) is not None]
                if not gradients:
                    continue
                norms = torch.stack(
                    [g.reshape(len(self.clients), -1).norm(dim=1) for g in gradients]
                ).norm(dim=0)
                scale = (limit / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
                for gradient in gradients:
                    gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
        if not self.clients[0]._optimizers[0].state:
            self._optimizer = None  # none yet, or an exchange has reset it
        optimizer = self._optimizer or self._build_optimizer()
        own = self.clients[0]._optimizers[0]
        for group, mine in zip(own.param_groups, optimizer.param_groups, strict=True):
            # a schedule may change them
            mine.update({key: value for key, value in group.items() if key != "params"})
        optimizer.step()
        optimizer.zero_grad()
        for client in self.clients:
            client._optimizers[0]._opt_called = True  # type: ignore[attr-defined]  # schedules warn otherwise
        # what was frozen has its first state
        if self._optimizer is None or len(optimizer.state) != self._shared:
            self._optimizer = optimizer
            self._share_state()

    # ------------------------------------------------------------------ the optimizers

    @property
    def consistent(self) -> bool:
        """Whether the clients' optimizers still agree: they have the same settings, all or none of
        them have state, and no parameter has been frozen or unfrozen since.
        """
        groups = [
            [{**g, "params": None} for g in client._optimizers[0].param_groups]
            for client in self.clients
        ]
        states = [bool(client._optimizers[0].state) for client in self.clients]
        same = all(group == groups[0] for group in groups) and len(set(states)) == 1
        return same and all(joint.requires_grad == own.requires_grad for joint, own in self._twins)

    def _build_optimizer(self) -> Optimizer:
        """Return the clients' optimizer over the stacked parameters, with their state if they have
        any.
        """
        own = self.clients[0]._optimizers[0]
        names = {id(parameter): name for name, parameter in self.clients[0].named_parameters()}
        groups = [
            {
                **group,
                "params": [self.parameters[names[id(parameter)]] for parameter in group["params"]],
            }
            for group in own.param_groups
        ]
        optimizer: Optimizer = type(own)(groups)  # type: ignore[call-arg]  # the base class alone asks for defaults
        if own.state:
            parameters = [dict(client.named_parameters()) for client in self.clients]
            for name, stacked in self.parameters.items():
                states = [
                    client._optimizers[0].state.get(mine[name], {})
                    for client, mine in zip(self.clients, parameters, strict=True)
                ]
                if not states[0]:
                    continue
                optimizer.state[stacked] = {
                    key: torch.stack([state[key] for state in states])
                    if key != "step"
                    and isinstance(value, Tensor)
                    and value.shape == stacked.shape[1:]
                    else value
                    for key, value in states[0].items()
                }
            self._optimizer = optimizer
            self._share_state()
        return optimizer

    def _share_state(self) -> None:
        """Let each client's optimizer hold views of the stack's state."""
        assert self._optimizer is not None
        self._shared = len(self._optimizer.state)
        for position, client in enumerate(self.clients):
            mine = dict(client.named_parameters())
            for name, stacked in self.parameters.items():
                if stacked not in self._optimizer.state:
                    continue  # frozen, or not the optimizer's
                client._optimizers[0].state[mine[name]] = {
                    key: value[position]
                    if key != "step" and isinstance(value, Tensor) and value.shape == stacked.shape
                    else value
                    for key, value in self._optimizer.state[stacked].items()
                }

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
        """Return the result of each client's ``evaluate`` for its batch. All batches have the same
        length.
        """
        x = torch.stack([batch.x for batch in batches])

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor) -> Tensor:
            logits: Tensor = functional_call(template, (parameters, buffers), (rows,))
            return logits

        with self._lending() as template, Stacked(self.compiled):
            logits = vmap(one)(self.parameters, self.buffers, x)
        return [
            client.score(own, batch)
            for client, own, batch in zip(self.clients, logits, batches, strict=True)
        ]


def _copy(client: FederatedClient) -> FederatedClient:
    """Return the client with separate modules; everything else is shared."""
    twin = copy.copy(client)
    twin._modules = copy.deepcopy(client._modules)
    return twin


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}


def _losses(
    client: FederatedClient,
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    x: Tensor,
    y: Tensor,
) -> Tensor:
    """Return each client's loss. ``client`` lends its modules."""
    objective = _Objective(client)

    def one(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = functional_call(objective, tensors, (x, y))
        return loss

    tensors = {f"client.{name}": value for name, value in (parameters | buffers).items()}
    losses: Tensor = vmap(one)(tensors, x, y)
    return losses


class _Objective(nn.Module):
    """A client's objective as a module, so that an objective that reads tensors of the client
    (class weights) reads each client's.
    """

    def __init__(self, client: FederatedClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.client.objective(x, y)
