"""Memory that idle clients share with each other until they are drawn."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.sharing import State

__all__ = ["Lending"]


class Lending:
    """Lets idle clients share the memory of what they received: a thousand of them then hold one federated part."""

    def __init__(self) -> None:
        self._lent: dict[str, dict[str, Tensor]] = {}

    def lend(self, client: FederatedClient, received: State, sent: set[int]) -> State:
        """Let an idle client have what it received without a copy.

        Args:
            client: it.
            received: named tensors.
            sent: places in memory of what clients sent, which belongs to them.

        Returns:
            What has to be copied after all.
        """
        kept = {}
        for name, value in received.items():
            own = None if client._federated.is_slice(name) else client._federated.get(name)
            if own is None or value.dtype != own.dtype or value.data_ptr() in sent or not value.is_contiguous():
                kept[name] = value
            else:
                own.data = value.detach()
                self._lent.setdefault(client.spec.name, {})[name] = own
        return kept

    def return_to(self, clients: Iterable[str]) -> None:
        """Give clients memory of their own again."""
        for name in clients:
            for tensor in self._lent.pop(name, {}).values():
                tensor.data = tensor.data.clone()

    def return_all(self) -> None:
        """Give everybody memory of their own again."""
        self.return_to(list(self._lent))
