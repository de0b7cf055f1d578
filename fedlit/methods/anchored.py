"""The base of methods that hold a client to what the last exchange gave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.sharing import State

__all__ = ["Anchored", "by_name", "pull", "zero_buffers"]


class Anchored(FederatedClient):
    """Remembers what the last exchange gave, in buffers that are in the checkpoint and never travel.

    A subclass calls :meth:`anchor` in its ``__init__``, and reads :meth:`pairs` or :meth:`pulled` in its loss. One that
    needs no anchor (its coefficient is 0) leaves that out, and is a plain client bit for bit.

    Attributes:
        received: w_t, a buffer for each parameter; which of them are federated is not known before training.
    """

    private: tuple[str, ...] = ("received",)
    received: nn.Module

    def anchor(self, names: Iterable[str] | None = None) -> None:
        """Make room for what exchanges give.

        Args:
            names: of parameters; all that the client has by now if None.
        """
        parameters = dict(self.named_parameters())
        self.received = zero_buffers({name: parameters[name] for name in (parameters if names is None else names)})

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that there is nothing to hold the client to, if nothing is federated."""
        if self.federated or not hasattr(self, "received"):
            return []
        return [f"{type(self).__name__} holds a client to what is federated, which is nothing; see exchange.federated"]

    def on_receive(self, received: State) -> None:
        """Remember it; what was not received stays where it was."""
        if not hasattr(self, "received"):
            return
        for name, w_t in self._federated.of(by_name(self.received)).items():
            if name in received:
                w_t.copy_(received[name])

    def pairs(self, parameters: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Federated name → (w, w_t).

        Args:
            parameters: w, under the names that the federated parameters have: the client's own, or those of another
                copy of its network.
        """
        received = self._federated.of(by_name(self.received))
        return {name: (w, received[name]) for name, w in self._federated.of(parameters).items()}

    def pulled(self, loss: Tensor, strength: float, parameters: Mapping[str, Tensor]) -> Tensor:
        """Loss + strength/2 · ‖w − w_t‖² over the federated names; the loss itself where the strength is 0."""
        return pull(loss, strength, self.pairs(parameters).values()) if strength else loss


def pull(loss: Tensor, strength: float, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Loss + strength/2 · ‖a − b‖² over the pairs (a, b); the loss itself where there are none."""
    squares = [(a - b).square().sum() for a, b in pairs]
    return loss + strength / 2 * torch.stack(squares).sum() if squares else loss


def zero_buffers(like: Mapping[str, Tensor]) -> nn.Module:
    """A module whose buffers are zeros like these, under names that a module allows (``core/weight`` for
    ``core.weight``).
    """
    module = nn.Module()
    for name, value in like.items():
        module.register_buffer(name.replace(".", "/"), torch.zeros_like(value))
    return module


def by_name(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of :func:`zero_buffers` by the names that were given."""
    return {name.replace("/", "."): value for name, value in module.named_buffers()}
