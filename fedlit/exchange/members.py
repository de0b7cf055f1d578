"""The clients of a federation as its exchange and other parts of it see them, and what they send
and take back.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.client.hooks import hook_of
from fedlit.data.encoding import Rows
from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.rule import Update
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Sharing, State, form_of, named_tensors
from fedlit.spec import ClientSpec
from fedlit.tasks.base import Score


class Members(Protocol):
    """The interface of a federation (``fedlit.train.federation``) that an exchange, scoring and
    personal parts use.

    Attributes:
        seed: the run's seed.
        names: the names of all clients, also in other processes.
        data: the rows of the clients.
        scores_of: maps each client, of any process, to its scores, the main one first.
        step: the number of aligned steps that are done.
        scope_of_scoring: makes the context in which a client is scored.
        device: the device of the clients.
        clients: the clients of this process, by name.
        cohort: the names of all clients that take part in the coming round; None for all.
        last_step: the number of aligned steps with which the federation is planned to end; None if
            it is not known.
        tuning: whether the clients are being fine-tuned after the federation.
    """

    seed: int
    names: tuple[str, ...]
    data: FederatedData
    scores_of: Mapping[str, tuple[Score, ...]]
    step: int
    scope_of_scoring: Callable[[], AbstractContextManager[None]]
    device: torch.device
    cohort: frozenset[str] | None
    last_step: int | None

    @property
    def clients(self) -> Mapping[str, FederatedClient]:
        """See the class."""

    @property
    def tuning(self) -> bool:
        """See the class."""

    @property
    def active(self) -> Mapping[str, FederatedClient]:
        """The clients here that take part in this round."""

    @property
    def steps(self) -> Mapping[str, int]:
        """Maps each client that reported it to the largest number of optimizer steps that it takes
        in an epoch.
        """

    def end_exchange(self) -> None:
        """Called after an epoch's last step and its exchange, before validation and checkpoint."""

    def fresh(self, spec: ClientSpec, seed: int | None = None) -> FederatedClient:
        """Return a client as it was before training, or as it would be with another seed."""

    def rows(self, client: str) -> Rows:
        """Return a client's training rows."""

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give each client's facts to all processes."""

    def record(self, values: Mapping[str, Tensor | float]) -> None:
        """Log scalars at the end of this epoch."""


def planned(client: FederatedClient, seed: int) -> dict[str, Tensor]:
    """Return what a client publishes before training.

    Raises:
        ConfigError: a tensor is not of a floating-point type.
    """
    with isolated_rng(derive_seed(seed, "publish", client.spec.name)), hook_of(client, "publish"):
        published = dict(client.publish())
    for key, value in published.items():
        if not value.is_floating_point():
            raise ConfigError(
                f"client {client.spec.name!r}: expected floating-point tensors from publish, found "
                f"{key} of {value.dtype}; convert it"
            )
    return published


def collect(
    client: FederatedClient, sharing: Sharing, expected: State, seed: int, *, begin: bool
) -> Update:
    """Collect what a client sends, and check it against the plan.

    Args:
        client: the client.
        sharing: which tensors of each client are federated.
        expected: what it publishes, according to the plan.
        seed: the seed of the numbers that its hooks draw.
        begin: whether training has not begun.

    Raises:
        RunError: a private tensor would be sent, or other tensors were published than planned.
    """
    name = client.spec.name
    with isolated_rng(seed, client.device):
        if not begin:
            with hook_of(client, "on_send"):
                client.on_send(client.steps_taken)
        with hook_of(client, "publish"):
            published = client.publish()
    state = dict(client.federated)
    private = sorted(set(state) - set(sharing.names[name]))
    if private:
        raise RunError(
            f"client {name!r}: expected only federated tensors in an exchange, found {private}; "
            "this is a defect, please report it"
        )
    forms = [
        {key: form_of(value) for key, value in tensors.items()} for tensors in (published, expected)
    ]
    if forms[0] != forms[1]:
        raise RunError(
            f"client {name!r}: expected publish to give what it gave for the plan, {forms[1]}, "
            f"found {forms[0]}; give tensors of the same names, types and shapes each time"
        )
    rows = client.spec.rows["train"]
    parameters = sharing.parameters[name]
    return Update(state, rows, published, parameters=parameters, steps=client.steps_taken)


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

    def lend(self, client: FederatedClient, received: State, sent: set[int]) -> State:
        """Let the tensors of an idle client use the memory of what it received, without a copy.

        Args:
            client: the idle client.
            received: named tensors.
            sent: addresses of tensors that clients sent; these stay theirs.

        Returns:
            The tensors that must be copied after all.
        """
        if client.adapts:
            return received
        kept = {}
        for name, value in received.items():
            tensor = None if client._federated.is_slice(name) else client._federated.get(name)
            if (
                tensor is None
                or value.dtype != tensor.dtype
                or value.data_ptr() in sent
                or not value.is_contiguous()
            ):
                kept[name] = value
            else:
                tensor.data = value.detach()
                self._lent.setdefault(client.spec.name, {})[name] = tensor
                self._versions.setdefault(client.spec.name, {})[name] = tensor._version
        return kept

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
