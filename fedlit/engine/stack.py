"""Computes clients of the same structure as one: their tensors are stacked, and their matrix
products are batched.

A small network's step is mostly the cost of starting its operations, not of their arithmetic; a
stack starts each operation once for all its clients.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.layers import PlainNetwork, StackValues
from fedlit.nn.native.stacked import StackedDropout, StackedLinear, StackedNorm
from fedlit.seeding import GENERATORS, isolated_rng
from fedlit.stacks import base_of

SIGNATURES = {
    func: inspect.signature(func) for func in (nn.functional.batch_norm, nn.functional.dropout)
}


Seed = Callable[[], int]
"""Computes a seed. Few networks draw, and for thousands of clients this takes time."""


class Stacked(TorchFunctionMode):
    """Computes the linear layers and normalisations of a stack by special kernels
    (:mod:`fedlit.nn.native`), and draws dropout for each client as it would be drawn for the client
    alone.
    """

    def __init__(self, compiled: bool, seeds: Sequence[Seed] = ()) -> None:
        super().__init__()
        self.compiled = compiled
        self._generators = _generators(seeds)

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

    def __init__(
        self,
        clients: Sequence[FederatedClient],
        compiled: bool = False,
        tensors: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None,
    ) -> None:
        self.clients = list(clients)
        self.compiled = compiled
        self.network = PlainNetwork.of_client(clients[0])
        # `functional_call` puts the stack's tensors into the copy's modules, because a client's
        # modules may be in use on another thread. So may the copy, which therefore has a lock.
        self._template = _copy(clients[0])
        self._lock = threading.Lock()
        self.parameters, self.buffers = tensors or join(clients)
        for name, parameter in clients[0].named_parameters():
            self.parameters[name].requires_grad_(parameter.requires_grad)
        self._take_gradients()
        self._entries = [_entries(client) for client in clients]
        for client in clients:
            client.stacked = True
        self._optimizer: Optimizer | None = None
        self._shared = 0  # the number of parameters whose optimizer's state the clients have
        self._losses: list[Tensor] = []  # one for each step that was not reported

    def _take_gradients(self) -> None:
        """Take the gradients of batches that were accumulated before the clients were stacked."""
        parameters = [dict(client.named_parameters()) for client in self.clients]
        for name, stacked in self.parameters.items():
            gradients = [of_client[name].grad for of_client in parameters]
            if any(gradient is not None for gradient in gradients):
                zeros = torch.zeros_like(stacked[0], requires_grad=False)
                stacked.grad = torch.stack([zeros if g is None else g for g in gradients])

    @staticmethod
    def why_not(clients: Sequence[FederatedClient], batch: Batch, compiled: bool = False) -> str:
        """Try a step on copies, stacked and one by one. Return why the stack cannot be used; empty
        if it can.
        """
        parameters = _stacked([dict(client.named_parameters()) for client in clients])
        buffers = _stacked([dict(client.named_buffers()) for client in clients])
        for name, parameter in clients[0].named_parameters():
            parameters[name].requires_grad_(parameter.requires_grad)
        x = batch.x.expand(len(clients), *batch.x.shape).contiguous()
        y = batch.y.expand(len(clients), *batch.y.shape).contiguous()
        network = PlainNetwork.of_client(clients[0])
        try:
            copies = [_copy(client) for client in clients]
            seeds = [int] * len(copies)  # 0 for each
            with torch.enable_grad():
                if network is None:
                    with Stacked(compiled, seeds):
                        losses = _losses(_copy(clients[0]), parameters, buffers, x, y)
                else:
                    values = StackValues(parameters | buffers, _generators(seeds))
                    losses = network.losses(x, y, values)
                losses.sum().backward()
        except Exception as error:
            lines = str(error).strip().splitlines()
            first_line = lines[0] if lines else ""
            return f"{type(error).__name__}: {first_line}"
        results = _results(losses, buffers, parameters)
        for position, client in enumerate(copies):
            client.zero_grad()
            with torch.enable_grad(), isolated_rng(0):
                loss = client.objective(batch.x, batch.y)
                loss.backward()
            expected = _results(loss, dict(client.named_buffers()), dict(client.named_parameters()))
            actual = {name: stacked[position] for name, stacked in results.items()}
            different = _different(expected, actual)
            if different:
                return f"a trial gave another {different} than each alone"
        return ""

    def release(self) -> None:
        """Give each client separate tensors again, if it still has the stack's. The stack cannot be
        used afterwards.
        """
        self.report()
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
                    for key, value in state.items():
                        if isinstance(value, Tensor):
                            state[key] = value.clone()

    @contextmanager
    def _lending(self) -> Iterator[FederatedClient]:
        with self._lock:
            modules = zip(self._template.modules(), self.clients[0].modules(), strict=True)
            for module, client_module in modules:
                module.training = client_module.training
            yield self._template

    # ------------------------------------------------------------------ a step

    def step(
        self, rows: Batch, accumulate: int = 1, update: bool = True, seeds: Sequence[Seed] = ()
    ) -> None:
        """Take one step of every client.

        Args:
            rows: the clients' batches, of equal length, one after another.
            seeds: compute the seed of each client's dropout in this step.
            accumulate: the number of batches per optimizer step.
            update: whether the optimizers step now.
        """
        x = rows.x.view(len(self.clients), -1, *rows.x.shape[1:])
        y = rows.y.view(len(self.clients), -1, *rows.y.shape[1:])
        losses = self._objectives(x, y, seeds)
        # The sum's gradient with respect to each client is that of its own loss.
        total = losses.sum()
        if accumulate > 1:
            total = total / accumulate
        total.backward()
        self._losses.append(losses.detach())
        if update:
            self._update()

    def _objectives(self, x: Tensor, y: Tensor, seeds: Sequence[Seed]) -> Tensor:
        if self.network is None:
            with self._lending() as template, Stacked(self.compiled, seeds):
                return _losses(template, self.parameters, self.buffers, x, y)
        generators = _generators(seeds) if self.network.draws else ()
        values = StackValues(self.parameters | self.buffers, generators)
        return self.network.losses(x, y, values)

    def report(self) -> None:
        """Record the losses of the steps since the last report with each client."""
        if not self._losses:
            return
        of_clients = torch.stack(self._losses, 1).unbind()
        self._losses = []
        for client, losses in zip(self.clients, of_clients, strict=True):
            client.log("loss", losses)

    @torch.no_grad()
    def _update(self) -> None:
        limit = self.clients[0].gradient_clip_val
        if limit:
            for names in self.clients[0].clipped_apart():
                self._clip(names, limit)
        client_optimizer = self.clients[0]._optimizers[0]
        if self._optimizer is not None and self._optimizer.state and not client_optimizer.state:
            self._optimizer = None  # An exchange has reset it.
        optimizer = self._optimizer or self._build_optimizer()
        groups = zip(client_optimizer.param_groups, optimizer.param_groups, strict=True)
        for client_group, group in groups:
            # A schedule may have changed the settings.
            settings = {key: value for key, value in client_group.items() if key != "params"}
            group.update(settings)
        optimizer.step()
        optimizer.zero_grad()
        for client in self.clients:
            # Schedules warn if they step before their optimizer.
            client._optimizers[0]._opt_called = True  # type: ignore[attr-defined]
        # A parameter that is no longer frozen has its first state.
        if self._optimizer is None or len(optimizer.state) != self._shared:
            self._optimizer = optimizer
            self._share_state()

    def _clip(self, names: Sequence[str], limit: float) -> None:
        """Clip each client's gradients of some parameters, as ``torch.nn.utils.clip_grad_norm_``
        does.
        """
        gradients = [g for name in names if (g := self.parameters[name].grad) is not None]
        if not gradients:
            return
        norms = [g.reshape(len(self.clients), -1).norm(dim=1) for g in gradients]
        norm = torch.stack(norms).norm(dim=0)
        scale = (limit / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))

    # ------------------------------------------------------------------ the optimizers

    @property
    def consistent(self) -> bool:
        """Whether the clients' optimizers still agree: they have the same settings, all or none of
        them have state, and no parameter has been frozen or unfrozen since.
        """
        optimizers = [client._optimizers[0] for client in self.clients]
        settings = list(map(_settings, optimizers))
        if any(groups != settings[0] for groups in settings):
            return False
        if len({bool(optimizer.state) for optimizer in optimizers}) > 1:
            return False
        return all(tensor.requires_grad == had for _, _, tensor, _, had in chain(*self._entries))

    @property
    def replaced(self) -> list[FederatedClient]:
        """The clients with a tensor that is no longer the stack's, because somebody has put another
        one in its place.
        """
        clients = []
        for client, entries in zip(self.clients, self._entries, strict=True):
            for tensors, name, tensor, address, _ in entries:
                if tensors.get(name) is not tensor or tensor.data_ptr() != address:
                    clients.append(client)
                    break
        return clients

    def _build_optimizer(self) -> Optimizer:
        """Return the clients' optimizer over the stacked parameters, with their state if they have
        any.
        """
        client_optimizer = self.clients[0]._optimizers[0]
        stacked_of = {
            id(w): self.parameters[name] for name, w in self.clients[0].named_parameters()
        }
        groups = []
        for group in client_optimizer.param_groups:
            stacked_parameters = [stacked_of[id(w)] for w in group["params"]]
            groups.append({**group, "params": stacked_parameters})
        # Only the base class requires defaults.
        optimizer: Optimizer = type(client_optimizer)(groups)  # type: ignore[call-arg]
        if client_optimizer.state:
            parameters = [dict(client.named_parameters()) for client in self.clients]
            for name, stacked in self.parameters.items():
                states = [
                    client._optimizers[0].state.get(client_parameters[name], {})
                    for client, client_parameters in zip(self.clients, parameters, strict=True)
                ]
                if states[0]:
                    optimizer.state[stacked] = _stacked_state(states, stacked.shape[1:])
            self._optimizer = optimizer
            self._share_state()
        return optimizer

    def _share_state(self) -> None:
        """Let each client's optimizer hold views of the stack's state."""
        assert self._optimizer is not None
        self._shared = len(self._optimizer.state)
        for position, client in enumerate(self.clients):
            parameters = dict(client.named_parameters())
            for name, stacked in self.parameters.items():
                if stacked not in self._optimizer.state:
                    continue  # The parameter is frozen, or not one of the optimizer's.
                state = dict(self._optimizer.state[stacked])
                for key, value in state.items():
                    if _by_number(key, value, stacked.shape):
                        state[key] = value[position]
                client._optimizers[0].state[parameters[name]] = state

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
        """Return the result of each client's ``evaluate`` for its batch. All batches have the same
        length.
        """
        x = torch.stack([batch.x for batch in batches])

        def outputs(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor
        ) -> Tensor:
            logits: Tensor = functional_call(template, (parameters, buffers), (rows,))
            return logits

        if self.network is not None:
            values = StackValues(self.parameters | self.buffers)
            stacked_logits = self.network.outputs(x, values).contiguous()
        else:
            with self._lending() as template, Stacked(self.compiled):
                stacked_logits = vmap(outputs)(self.parameters, self.buffers, x)
        return [
            client.score(logits, batch)
            for client, logits, batch in zip(self.clients, stacked_logits, batches, strict=True)
        ]


class _Entry(NamedTuple):
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


def _entries(client: FederatedClient) -> list[_Entry]:
    """Return where a client's tensors are held."""
    entries = []
    for module in client.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    address = tensor.data_ptr()
                    entries.append(_Entry(tensors, name, tensor, address, tensor.requires_grad))
    return entries


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


def _generators(seeds: Sequence[Seed]) -> tuple[torch.Generator, ...]:
    return tuple(torch.Generator().manual_seed(seed()) for seed in seeds)


def _settings(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the settings of an optimizer's groups."""
    return [{**group, "params": None} for group in optimizer.param_groups]


def _by_number(key: str, value: object, shape: torch.Size) -> bool:
    """Return whether an entry of an optimizer's state has a value for each number of a parameter.
    An optimizer may keep the number of steps as a tensor, too.
    """
    return key != "step" and isinstance(value, Tensor) and value.shape == shape


def _stacked_state(states: Sequence[dict[str, Any]], shape: torch.Size) -> dict[str, Any]:
    """Return the optimizer's state of a stacked parameter, given the clients' states of theirs."""
    stacked = dict(states[0])
    for key, value in stacked.items():
        if _by_number(key, value, shape):
            stacked[key] = torch.stack([state[key] for state in states])
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


def _copy(client: FederatedClient) -> FederatedClient:
    """Return the client with separate modules; everything else is shared."""
    twin = copy.copy(client)
    twin._modules = copy.deepcopy(client._modules)
    return twin


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    stacked = {}
    for name in states[0]:
        stacked[name] = torch.stack([state[name].detach() for state in states])
    return stacked


def _losses(
    client: FederatedClient,
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    x: Tensor,
    y: Tensor,
) -> Tensor:
    """Return each client's loss. ``client`` lends its modules."""
    objective = _Objective(client)

    def client_loss(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = functional_call(objective, tensors, (x, y))
        return loss

    tensors = {f"client.{name}": value for name, value in (parameters | buffers).items()}
    losses: Tensor = vmap(client_loss)(tensors, x, y)
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
