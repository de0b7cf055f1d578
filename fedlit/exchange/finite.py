"""Clients whose state is not finite: left out of a round, repaired, named and counted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.exchange.aggregation import Minimum, least, require
from fedlit.exchange.members import Members
from fedlit.sharing import named_tensors

__all__ = ["NotFinite", "recover"]

_log = logging.getLogger(__name__)


class NotFinite:
    """Counts who was left out. On an accelerator it counts there, and is read once an epoch.

    Attributes:
        counts: client → how often.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._on_device: dict[str, Tensor] = {}
        self._fewest: Tensor | None = None
        self._of = 0
        self._initial: dict[str, dict[str, Tensor]] = {}

    def name(self, members: Members, lost: Iterable[str], where: str, before: str = "", times: int = 1) -> None:
        """Say who was lost, and who may be at fault for it."""
        for client in lost:
            self.counts[client] = self.counts.get(client, 0) + times
            if client in members.clients:
                members.record({f"{client}/exchange/not_finite": float(self.counts[client])})
            _log.warning(
                f"{where}: client {client!r} was left out, its state is not finite; it received the aggregate{before}"
            )

    def count(self, finite: Mapping[str, Tensor], usable: Mapping[str, Tensor]) -> None:
        """Count on the device: whether each client is finite, and whether its update counts, booleans there."""
        for name, flag in finite.items():
            lost = (~flag).long()
            self._on_device[name] = self._on_device[name] + lost if name in self._on_device else lost
        remaining, self._of = torch.stack(list(usable.values())).sum(), len(usable)
        self._fewest = remaining if self._fewest is None else torch.minimum(self._fewest, remaining)

    def report(self, members: Members, minimum: Minimum, far: Sequence[str], where: str, before: str = "") -> None:
        """Read what was counted on the device, in one transfer; ``far`` were left out by the guard."""
        if self._fewest is None:
            return
        fewest, *counts = torch.stack([self._fewest, *self._on_device.values()]).tolist()
        lost = {name: count for name, count in zip(self._on_device, counts, strict=True) if count}
        self._on_device, self._fewest = {}, None
        for name, count in lost.items():
            self.name(members, [name], where, before, count)
        require(fewest, list(lost), far, least(minimum, self._of), where)

    def repair(self, members: Members, client: FederatedClient, finite: Tensor) -> None:
        """:func:`recover` where ``finite`` is false, without reading it."""
        name = client.spec.name
        if name not in self._initial:
            fresh = named_tensors(members.fresh(client.spec))
            self._initial[name] = {key: value.detach().to(members.device) for key, value in fresh.items()}
        for key, tensor in named_tensors(client).items():
            if tensor.is_floating_point():
                keep = finite | torch.isfinite(tensor).all()
                tensor.copy_(torch.where(keep, tensor, self._initial[name][key]))
        for optimizer in client._optimizers:
            for state in optimizer.state.values():
                for key, value in state.items():
                    # NOTE[DIFF]: alike clients in a stack share one count of steps, which goes on for all of them
                    own = key != "step" or not client.stacked
                    if own and isinstance(value, Tensor) and value.device == finite.device:
                        value.masked_fill_(~finite, 0)


def recover(members: Members, client: FederatedClient) -> None:
    """Empty a client's optimizers' state, and start again where a tensor is not finite: otherwise the client would be
    lost for good.
    """
    for optimizer in client._optimizers:
        optimizer.state.clear()
    initial = named_tensors(members.fresh(client.spec))
    for name, tensor in named_tensors(client).items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            tensor.copy_(initial[name])
