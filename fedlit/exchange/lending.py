"""Memory that idle clients share until they are drawn for a round."""

from collections.abc import Iterable

from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.sharing import State


class Lending:
    """Lets idle clients share the memory of what they received: a thousand of them then hold one federated part."""

    def __init__(self) -> None:
        self._lent: dict[str, dict[str, Tensor]] = {}

    def lend(self, client: FederatedClient, received: State, sent: set[int]) -> State:
        """Let the tensors of an idle client use the memory of what it received, without a copy.

        Args:
            client: the idle client.
            received: named tensors.
            sent: addresses of tensors that clients sent; these stay theirs.

        Returns:
            The tensors that must be copied after all.
        """
        kept = {}
        for name, value in received.items():
            tensor = None if client._federated.is_slice(name) else client._federated.get(name)
            if tensor is None or value.dtype != tensor.dtype or value.data_ptr() in sent or not value.is_contiguous():
                kept[name] = value
            else:
                tensor.data = value.detach()
                self._lent.setdefault(client.spec.name, {})[name] = tensor
        return kept

    def return_to(self, clients: Iterable[str]) -> None:
        """Copy the shared tensors of some clients into separate memory."""
        for name in clients:
            for tensor in self._lent.pop(name, {}).values():
                tensor.data = tensor.data.clone()

    def return_all(self) -> None:
        """Copy the shared tensors of all clients into separate memory."""
        self.return_to(list(self._lent))
