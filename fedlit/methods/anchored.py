"""The base of methods that hold a client to what the last exchange gave it."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.sharing import State


class Anchored(FederatedClient):
    """Remembers the result of the last exchange, in buffers that are saved in the checkpoint and never sent.

    A subclass calls :meth:`anchor` in its ``__init__``, and reads :meth:`pairs` or :meth:`pulled` in its loss. A
    subclass that needs no anchor (its coefficient is 0) does not call it, and is a plain client bit for bit.

    Attributes:
        received: w_t, a buffer for each parameter, because it is not known before training which of them are federated.
    """

    private: tuple[str, ...] = ("received",)
    received: nn.Module

    def anchor(self, names: Iterable[str] | None = None) -> None:
        """Create the buffers for what exchanges give.

        Args:
            names: the names of parameters; all that the client has so far if None.
        """
        parameters = dict(self.named_parameters())
        self.received = zero_buffers({name: parameters[name] for name in (parameters if names is None else names)})

    def on_plan(self, every: str | Mapping[str, int]) -> list[str]:
        """Note that there is nothing to hold the client to, if nothing is federated."""
        if self.federated or not hasattr(self, "received"):
            return []
        return [f"{type(self).__name__} holds a client to what is federated, which is nothing; see exchange.federated"]

    def on_receive(self, received: State) -> None:
        """Remember what was received. Tensors that were not received keep their remembered values."""
        if not hasattr(self, "received"):
            return
        for name, w_t in self._federated.of(by_name(self.received)).items():
            if name in received:
                w_t.copy_(received[name])

    def pairs(self, parameters: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Map each federated name to (w, w_t).

        Args:
            parameters: w, under the names of the federated parameters: the client's own, or those of another copy of
                its network.
        """
        received = self._federated.of(by_name(self.received))
        return {name: (w, received[name]) for name, w in self._federated.of(parameters).items()}

    def pulled(self, loss: Tensor, strength: float, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return loss + strength/2 · ‖w − w_t‖² over the federated names; the loss itself if the strength is 0."""
        return pull(loss, strength, self.pairs(parameters).values()) if strength else loss


def pull(loss: Tensor, strength: float, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """Return loss + strength/2 · ‖a − b‖² over the pairs (a, b); the loss itself if there are no pairs."""
    squares = [(a - b).square().sum() for a, b in pairs]
    return loss + strength / 2 * torch.stack(squares).sum() if squares else loss


def zero_buffers(like: Mapping[str, Tensor]) -> nn.Module:
    """Return a module whose buffers are zeros of the given shapes, under names that a module allows (``core/weight``
    for ``core.weight``).
    """
    module = nn.Module()
    for name, value in like.items():
        module.register_buffer(name.replace(".", "/"), torch.zeros_like(value))
    return module


def by_name(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers of :func:`zero_buffers` by the names that were given."""
    return {name.replace("/", "."): value for name, value in module.named_buffers()}
