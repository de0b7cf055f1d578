"""The structure of clients' networks, which a rule knows without asking clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch

from fedlit.client import FederatedClient
from fedlit.exchange.function import FederatedFunction, function_of
from fedlit.sharing import State, named_tensors
from fedlit.slices import live_of


@dataclass
class Blueprint:
    """The structure of clients' networks, which is known without asking them. It holds nothing that
    was learnt.

    Attributes:
        build: makes an untrained client, with initial values of the run's seed (None) or of another
            one.
        names: the names of its federated tensors.
        parameters: the names of the federated tensors that are parameters.
        device: the device on which rules compute.
        clients: the clients of this process, as their configuration makes them; only known to
            ``Rule.check``.
        reset: whether each round begins with an empty optimizer state; only known to
            ``Rule.check``.
    """

    build: Callable[[int | None], FederatedClient]
    names: Sequence[str]
    parameters: Sequence[str]
    device: torch.device
    clients: Sequence[FederatedClient] = ()
    reset: bool = False

    def part(self, names: Collection[str]) -> Blueprint:
        """Return a blueprint that has only some of the federated tensors."""
        remaining = [name for name in self.names if name in names]
        parameters = [name for name in self.parameters if name in names]
        return replace(self, names=remaining, parameters=parameters)

    def function(self) -> FederatedFunction:
        """Return the federated part as a function."""
        client = self.build(None)
        return function_of(
            client, client.spec.num_features, self.parameters, client.spec.task.bounded
        )

    def fresh(self, seed: int | None) -> State:
        """Return initial values of the federated tensors, drawn from another seed, or from the
        run's seed if None.
        """
        client = self.build(seed)
        drawn = live_of(client, named_tensors(client), self.names)
        return {name: drawn[name].detach().to(self.device) for name in self.names}
