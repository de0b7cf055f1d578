"""What methods have in common that hold a client to what the last exchange gave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.sharing import State

__all__ = ["Anchored", "as_buffers", "by_name"]


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
        own = dict(self.named_parameters())
        self.received = as_buffers({name: torch.zeros_like(own[name]) for name in (own if names is None else names)})

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Say where there is nothing to be held to."""
        if self.federated or not hasattr(self, "received"):
            return []
        return [f"{type(self).__name__} holds a client to what is federated, which is nothing; see exchange.federated"]

    def on_receive(self, received: State) -> None:
        """Remember it; what was not received stays where it was."""
        if not hasattr(self, "received"):
            return
        live, buffers = self._federated, by_name(self.received)
        for name in live:
            if name in received and live.tensor_of(name) in buffers:
                live.pick(buffers, name).copy_(received[name])

    def pairs(self, parameters: Mapping[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """(w, w_t) of each federated name.

        Args:
            parameters: w, under the names that the federated parameters have: the client's own, or those of another
                copy of its network.
        """
        live, received = self._federated, by_name(self.received)
        names = [name for name in live if live.tensor_of(name) in parameters]
        return [(live.pick(parameters, name), live.pick(received, name)) for name in names]

    def pulled(self, loss: Tensor, strength: float, parameters: Mapping[str, Tensor]) -> Tensor:
        """Loss + strength/2 · ‖w − w_t‖² over the federated names; the loss itself where the strength is 0."""
        away = [(w - w_t).square().sum() for w, w_t in self.pairs(parameters)] if strength else []
        return loss + strength / 2 * torch.stack(away).sum() if away else loss


def as_buffers(values: Mapping[str, Tensor]) -> nn.Module:
    """A module whose buffers are these, under names that a module allows (``core/weight`` for ``core.weight``)."""
    module = nn.Module()
    for name, value in values.items():
        module.register_buffer(name.replace(".", "/"), value)
    return module


def by_name(module: nn.Module) -> dict[str, Tensor]:
    """The buffers of :func:`as_buffers` by the names that were given."""
    return {name.replace("/", "."): value for name, value in module.named_buffers()}
