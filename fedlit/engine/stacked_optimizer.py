"""The optimizers of clients that share a stack, as one over the stacked parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedlit.client.client import FederatedClient
from fedlit.stacks import parts_of


class StackedOptimizer:
    """Steps the parameters of several clients by one optimizer, whose state the clients' optimizers
    hold views of.

    Args:
        clients: the clients, each with one optimizer that treats each number by itself.
        parameters: their stacked parameters, by name.
    """

    def __init__(
        self, clients: Sequence[FederatedClient], parameters: Mapping[str, Tensor]
    ) -> None:
        self.clients = clients
        self.parameters = parameters
        self._optimizer: Optimizer | None = None
        self._shared = 0  # the number of parameters whose optimizer's state the clients have
        self._trained = list(_trained(clients))
        self._shared_state: list[object] = []

    @torch.no_grad()
    def step(self) -> None:
        """Clip gradients and update the parameters as each client's optimizer would."""
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

    @property
    def consistent(self) -> bool:
        """Whether the clients' optimizers still agree: they have the same settings, all clip at the
        same limit, all or none of them have state, and nobody has put other parameters or another
        state in the place of theirs.
        """
        if len({client.gradient_clip_val for client in self.clients}) > 1:
            return False
        optimizers = [client._optimizers[0] for client in self.clients]
        numbers = {len(optimizer.param_groups) for optimizer in optimizers}
        if len(numbers) > 1:
            return False
        for position, group in enumerate(optimizers[0].param_groups):
            settings_of = itemgetter(*(key for key in group if key != "params"))
            groups = [optimizer.param_groups[position] for optimizer in optimizers]
            if list(map(settings_of, groups)) != [settings_of(group)] * len(groups):
                return False
        if not _are_same(_trained(self.clients), self._trained):
            return False
        with_state = {bool(optimizer.state) for optimizer in optimizers}
        if with_state == {True} and self._shared_state:
            return _are_same(_state_of(self.clients), self._shared_state)
        return len(with_state) == 1

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
        parameters = [dict(client.named_parameters()) for client in self.clients]
        for name, stacked in self.parameters.items():
            if stacked not in self._optimizer.state:
                continue  # The parameter is frozen, or not one of the optimizer's.
            state = self._optimizer.state[stacked]
            parts = {
                key: parts_of(value)
                for key, value in state.items()
                if _by_number(key, value, stacked.shape)
            }
            for position, client in enumerate(self.clients):
                of_client = {key: values[position] for key, values in parts.items()}
                client._optimizers[0].state[parameters[position][name]] = {**state, **of_client}
        self._shared_state = list(_state_of(self.clients))

    def separate(self) -> None:
        """Give each client's optimizer a state of its own again."""
        for client in self.clients:
            for optimizer in client._optimizers:
                for state in optimizer.state.values():
                    for key, value in state.items():
                        if isinstance(value, Tensor):
                            state[key] = value.clone()


def _trained(clients: Sequence[FederatedClient]) -> Iterator[object]:
    """Yield the parameters of the clients' optimizers."""
    optimizers = [client._optimizers[0] for client in clients]
    groups = chain.from_iterable(map(attrgetter("param_groups"), optimizers))
    return chain.from_iterable(map(itemgetter("params"), groups))


def _state_of(clients: Sequence[FederatedClient]) -> Iterator[object]:
    """Yield the values in the state of the clients' optimizers."""
    states = [client._optimizers[0].state for client in clients]
    of_parameters = chain.from_iterable(map(dict.values, states))
    return chain.from_iterable(map(dict.values, of_parameters))


def _are_same(values: Iterable[object], others: Sequence[object]) -> bool:
    """Return whether values are the same objects as others."""
    current = list(values)
    return len(current) == len(others) and all(map(is_, current, others))


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
