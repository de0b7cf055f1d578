"""How clients take over what a round gives them."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.errors import RunError
from fedlit.exchange.columns import Columns, Updates
from fedlit.sharing import State, named_tensors
from fedlit.stacks import memory_of


@torch.no_grad()
def write_back(client: FederatedClient, received: State, rate: float) -> None:
    """Compute ω_k ← (1 − r) ω_k + r ω̄_k in place, on the device of the tensors.

    Args:
        client: the client k.
        received: what it received, ω̄_k; other tensors stay as they are.
        rate: the update rate r.
    """
    federated = client.federated
    names = [name for name in received if name in federated]
    if not names:
        return
    old = [federated[name] for name in names]
    new = [received[name].to(federated[name].dtype) for name in names]
    if rate == 1:
        torch._foreach_copy_(old, new)
    else:
        torch._foreach_lerp_(old, new, rate)


@torch.no_grad()
def apart(received: Mapping[str, State], updates: Updates) -> Mapping[str, State]:
    """Return what clients receive, with a copy of each tensor that lies in the memory of what a
    client sent: all of that is written while clients take over what they receive, so that a client
    could otherwise be given what another one has just received.

    Args:
        received: maps each client to what it receives.
        updates: the clients' own updates.
    """
    copies: dict[int, Tensor] = {}  # Most clients receive the same tensors.
    copied: dict[str, State] = {}
    for client, state in received.items():
        new = {}
        for name, value in state.items():
            if id(value) not in copies:
                copies[id(value)] = value
                if memory_of(value) in updates.memories:
                    copies[id(value)] = value.clone()
            new[name] = copies[id(value)]
        copied[client] = new
    return copied


@torch.no_grad()
def write_back_all(columns: Columns, received: Mapping[str, State], rate: float) -> None:
    """Compute ω_k ← (1 − r) ω_k + r ω̄_k in place for many clients (see :func:`write_back`).

    Args:
        columns: the clients' tensors, which are written.
        received: maps each client to what it received, ω̄_k, in other memory (see :func:`apart`);
            a client that is missing stays as it is.
        rate: the update rate r.
    """
    for column in columns:
        old: list[Tensor] = []
        new: list[Tensor] = []
        for row, tensor in zip(column.rows, column.tensors, strict=True):
            value = received.get(columns.clients[row], {}).get(column.name)
            if value is not None:
                old.append(tensor)
                new.append(value)
        run = column.run
        if rate != 1 and old:
            torch._foreach_lerp_(old, [value.to(old[0].dtype) for value in new], rate)
        elif run is not None and len(new) == len(run) and len(set(map(id, new))) == 1:
            run.copy_(new[0])
        elif old:
            torch._foreach_copy_(old, new)


@torch.no_grad()
def recover(client: FederatedClient, initial: State) -> None:
    """Clear the optimizer states of a client that was not finite, and reset each of its tensors
    that is not finite to its initial value. Otherwise the client would be lost for good.
    """
    for optimizer in client._optimizers:
        optimizer.state.clear()
    for name, tensor in named_tensors(client).items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            tensor.copy_(initial[name])


class Lending:
    """Lets idle clients share the memory of what they received: a thousand of them then hold one
    federated part.

    A client whose class may write to its tensors (``adapts``) gets copies. Any other client that
    writes to lent tensors would change those of all, so this is an error.
    """

    def __init__(self) -> None:
        self._lent: dict[str, dict[str, Tensor]] = {}
        self._versions: dict[str, dict[str, int]] = {}

    def lend(self, client: FederatedClient, received: State) -> State:
        """Let the tensors of an idle client use the memory of what it received, without a copy.

        Args:
            client: the idle client.
            received: named tensors, none of which a client holds (see :func:`apart`).

        Returns:
            The tensors that must be copied after all.
        """
        if client.adapts:
            return received
        copied = {}
        live = client._federated
        for name, value in received.items():
            tensor = None if live.is_slice(name) else live.get(name)
            if tensor is None or value.dtype != tensor.dtype or not value.is_contiguous():
                copied[name] = value
            else:
                tensor.data = value.detach()
                self._lent.setdefault(client.spec.name, {})[name] = tensor
                self._versions.setdefault(client.spec.name, {})[name] = tensor._version
        return copied

    def check(self, client: str) -> None:
        """Refuse what a client has written to lent tensors.

        Raises:
            RunError: a lent tensor was changed; the message names it.
        """
        versions = self._versions.get(client, {})
        for name, tensor in self._lent.get(client, {}).items():
            if tensor._version != versions[name]:
                raise RunError(
                    f"client {client!r}: expected {name} to stay as it was received while the "
                    "client sits out a round, found that it was changed, and with it the same "
                    "tensor of other clients; set adapts = True in the client's class"
                )

    def return_to(self, clients: Iterable[str]) -> None:
        """Copy the shared tensors of some clients into separate memory."""
        for name in clients:
            self.check(name)
            self._versions.pop(name, None)
            for tensor in self._lent.pop(name, {}).values():
                tensor.data = tensor.data.clone()

    def return_all(self) -> None:
        """Copy the shared tensors of all clients into separate memory."""
        self.return_to(list(self._lent))
