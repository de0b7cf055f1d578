"""Clients that are alike as one computation: their tensors stacked, their matrix products batched.

A small network's step is mostly the cost of starting its operations, not of their arithmetic; a stack starts each
operation once for all its clients.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.func import functional_call, vmap
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.nn.native.build import stack_first
from fedlit.nn.native.linear import StackedLinear
from fedlit.nn.native.norm import StackedNorm
from fedlit.seeding import GENERATORS, isolated_rng

__all__ = ["MAX_ROWS", "Stack", "Stacked", "stack_key"]

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
_STEP_HOOKS = ("on_after_backward", "on_before_optimizer_step", "on_before_zero_grad", "optimizers")


def stack_key(client: FederatedClient, batch: Batch) -> Hashable | None:
    """What clients have in common that may share a stack; None for a client that may not.

    A client qualifies if it is a plain :class:`FederatedClient`, or of a class that says ``stackable = True`` itself
    (its ``forward``, ``loss`` and ``objective`` use nothing of the client but its modules), with one optimizer that
    treats numbers one by one. Clients match if their tasks have the same loss and their networks
    the same modules, shapes and settings.
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
            settings = {key: value for key, value in vars(module).items() if key not in _MODULE or key == "training"}
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


class Stack:
    """Several alike clients, stepped and evaluated as one.

    Their parameters and buffers become views of stacked tensors, and so does the state of their optimizers: an
    exchange or a checkpoint reads and writes each client's own as before.

    Args:
        clients: that share a :func:`stack_key`.
        compiled: whether compiled kernels may be used.
    """

    def __init__(self, clients: Sequence[FederatedClient], compiled: bool = False) -> None:
        self.clients, self.compiled = list(clients), compiled
        # Lends its modules to `functional_call`, which puts the stack's tensors into them: a client's own may be in use
        # on another thread, and so may the copy.
        self._template = _copy(clients[0])
        self._lock = threading.Lock()
        parameters: list[dict[str, Tensor]] = [dict(client.named_parameters()) for client in clients]
        buffers: list[dict[str, Tensor]] = [dict(client.named_buffers()) for client in clients]
        self.parameters, self.buffers = _stacked(parameters), _stacked(buffers)
        for stacked, states in ((self.parameters, parameters), (self.buffers, buffers)):
            for position, state in enumerate(states):
                for name, tensor in state.items():
                    tensor.data = stacked[name][position]
        for name, parameter in parameters[0].items():
            joint = self.parameters[name].requires_grad_(parameter.requires_grad)
            gradients = [own[name].grad for own in parameters]
            if any(gradient is not None for gradient in gradients):  # accumulated so far
                joint.grad = torch.stack([torch.zeros_like(parameter) if g is None else g for g in gradients])
        self._twins = [(self.parameters[name], own) for mine in parameters for name, own in mine.items()]
        for client in clients:
            client.stacked = True
        self._optimizer: Optimizer | None = None

    @staticmethod
    def why_not(clients: Sequence[FederatedClient], batch: Batch, compiled: bool = False) -> str:
        """Tries a step on copies, stacked and one by one: why the stack cannot be used, empty if it can."""
        parameters = _stacked([dict(client.named_parameters()) for client in clients])
        buffers = _stacked([dict(client.named_buffers()) for client in clients])
        for name, parameter in clients[0].named_parameters():
            parameters[name].requires_grad_(parameter.requires_grad)
        x, y = (value.expand(len(clients), *value.shape).contiguous() for value in (batch.x, batch.y))
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
            found = {"loss": losses[position], **{name: value[position] for name, value in buffers.items()}}
            expected = {"loss": loss, **dict(alone.named_buffers())}
            for name, parameter in alone.named_parameters():
                gradient = parameters[name].grad
                expected[f"gradient of {name}"] = (
                    torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                )
                found[f"gradient of {name}"] = torch.zeros_like(parameter) if gradient is None else gradient[position]
            largest = max(float(value.detach().float().abs().max()) for value in expected.values() if value.numel())
            for name, value in expected.items():
                if not torch.allclose(found[name].float(), value.float(), rtol=1e-2, atol=1e-4 * (1 + largest)):
                    return f"a trial gave another {name} than each alone"
        return ""

    def release(self) -> None:
        """Give each client tensors of its own again, where it still has the stack's; the stack is of no use then."""
        shared = {value.untyped_storage().data_ptr() for value in (*self.parameters.values(), *self.buffers.values())}
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
                    state.update({key: value.clone() for key, value in state.items() if isinstance(value, Tensor)})

    @contextmanager
    def _lending(self) -> Iterator[FederatedClient]:
        with self._lock:
            for own, module in zip(self.clients[0].modules(), self._template.modules(), strict=True):
                module.training = own.training
            yield self._template

    # ------------------------------------------------------------------ a step

    def step(self, rows: Batch, accumulate: int = 1, update: bool = True, seeds: Sequence[int] = ()) -> None:
        """One step of every client.

        Args:
            rows: the clients' batches, of equal length, one after another.
            seeds: of each client's dropout in this step.
            accumulate: batches per optimizer step.
            update: whether the optimizers step now.
        """
        x, y = (value.view(len(self.clients), -1, *value.shape[1:]) for value in rows)
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
                norms = torch.stack([g.reshape(len(self.clients), -1).norm(dim=1) for g in gradients]).norm(dim=0)
                scale = (limit / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
                for gradient in gradients:
                    gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
        if not self.clients[0]._optimizers[0].state:
            self._optimizer = None  # none yet, or an exchange has reset it
        optimizer = self._optimizer or self._build_optimizer()
        own = self.clients[0]._optimizers[0]
        for group, mine in zip(own.param_groups, optimizer.param_groups, strict=True):
            mine.update({key: value for key, value in group.items() if key != "params"})  # a schedule may change them
        optimizer.step()
        optimizer.zero_grad()
        for client in self.clients:
            client._optimizers[0]._opt_called = True  # type: ignore[attr-defined]  # schedules warn otherwise
        if self._optimizer is None:
            self._optimizer = optimizer
            self._share_state()

    # ------------------------------------------------------------------ the optimizers

    @property
    def consistent(self) -> bool:
        """Whether the clients' optimizers still agree, with the same settings and none that has lost its state, and
        no parameter has been frozen or freed since.
        """
        groups = [[{**g, "params": None} for g in client._optimizers[0].param_groups] for client in self.clients]
        states = [bool(client._optimizers[0].state) for client in self.clients]
        same = all(group == groups[0] for group in groups) and len(set(states)) == 1
        return same and all(joint.requires_grad == own.requires_grad for joint, own in self._twins)

    def _build_optimizer(self) -> Optimizer:
        """The clients' optimizer over the stacked parameters, with their state if they have any."""
        own = self.clients[0]._optimizers[0]
        names = {id(parameter): name for name, parameter in self.clients[0].named_parameters()}
        groups = [
            {**group, "params": [self.parameters[names[id(parameter)]] for parameter in group["params"]]}
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
                    if key != "step" and isinstance(value, Tensor) and value.shape == stacked.shape[1:]
                    else value
                    for key, value in states[0].items()
                }
            self._optimizer = optimizer
            self._share_state()
        return optimizer

    def _share_state(self) -> None:
        """Each client's optimizer holds views of the stack's state."""
        assert self._optimizer is not None
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
        """What each client's ``evaluate`` gives for its batch, all of one length."""
        x = torch.stack([batch.x for batch in batches])

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor) -> Tensor:
            logits: Tensor = functional_call(template, (parameters, buffers), (rows,))
            return logits

        with self._lending() as template, Stacked(self.compiled):
            logits = vmap(one)(self.parameters, self.buffers, x)
        return [client.score(own, batch) for client, own, batch in zip(self.clients, logits, batches, strict=True)]


def _copy(client: FederatedClient) -> FederatedClient:
    """The client with modules of its own; all else is shared."""
    twin = copy.copy(client)
    twin._modules = copy.deepcopy(client._modules)
    return twin


def _stacked(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}


def _losses(
    client: FederatedClient, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor
) -> Tensor:
    """Each client's loss; ``client`` lends its modules."""
    objective = _Objective(client)

    def one(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = functional_call(objective, tensors, (x, y))
        return loss

    tensors = {f"client.{name}": value for name, value in (parameters | buffers).items()}
    losses: Tensor = vmap(one)(tensors, x, y)
    return losses


class _Objective(nn.Module):
    """A client's objective as a module, so that one which reads the client's tensors (class weights) reads its own."""

    def __init__(self, client: FederatedClient) -> None:
        super().__init__()
        self.client = client

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.client.objective(x, y)


class Stacked(TorchFunctionMode):
    """Has linear layers and normalisations of a stack computed by kernels of its own (:mod:`fedlit.nn.native`), and
    dropout drawn for each client as it would be drawn alone.
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
        if func is nn.functional.linear and not kwargs and not torch.is_autocast_enabled(args[0].device.type):
            return StackedLinear.apply(args[0], args[1], args[2] if len(args) > 2 else None, self.compiled)
        if func is nn.functional.batch_norm and self.compiled:
            arguments = _batch_norm(*args, **kwargs)
            if StackedNorm.fits(*arguments[:5]):
                return StackedNorm.apply(*arguments)[0]
        if func is nn.functional.dropout and self._generators:
            x, share, training = _dropout(*args, **kwargs)
            if training and 0 < share < 1 and x.device.type == "cpu":
                return StackedDropout.apply(x, share, self._generators)[0]
        return func(*args, **kwargs)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> tuple[Tensor, float, bool]:
    """What matters of the arguments of ``torch.nn.functional.dropout``."""
    return input, p, training


class StackedDropout(Function):
    """Under ``vmap`` it takes the place of ``torch.nn.functional.dropout``, with a generator for each of the stack.

    The numbers are those that PyTorch draws for one client after :func:`fedlit.seeding.isolated_rng` (on the CPU).
    """

    @staticmethod
    def forward(x: Tensor, p: float, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
        """(stack, …) → what remains of it, and by how much each number was multiplied."""
        kept = torch.empty_like(x, memory_format=torch.contiguous_format)
        for own, generator in zip(kept, generators, strict=True):
            own.bernoulli_(1 - p, generator=generator)
        kept.div_(1 - p)
        return x * kept, kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what backward needs."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradient of x."""
        (kept,) = ctx.saved_tensors
        return gradients[0] * kept, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, p: float, generators: Any) -> tuple[Any, Any]:
        """The stack is the first dimension."""
        return StackedDropout.apply(stack_first(info.batch_size, x, in_dims[0]), p, generators), (0, 0)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Any, ...]:
    """The arguments of ``torch.nn.functional.batch_norm`` in their order."""
    return input, running_mean, running_var, weight, bias, training, momentum, eps
