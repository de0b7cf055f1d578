"""A plain PyTorch loop with DataLoaders."""

from __future__ import annotations

from copy import deepcopy

import torch
from plain import average_parameters
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from peer.work import PULL, RATE, Clock, Tables, Work, start

METHODS = ("fedavg", "fedper", "ditto")


class Client:
    """A client: its rows, its network and, under Ditto, its personal network.

    Args:
        work: what is trained.
        tables: the rows of all clients.
        position: which of them this is.
    """

    def __init__(self, work: Work, tables: Tables, position: int) -> None:
        self.work = work
        self.network = start()
        self.optimizer = torch.optim.SGD(self.network.parameters(), RATE)
        self.personal = deepcopy(self.network)
        self.personal_optimizer = torch.optim.SGD(self.personal.parameters(), RATE)
        rows = TensorDataset(*tables.train(position))
        self.loader = DataLoader(rows, work.batch, shuffle=True)
        self.scored = tables.scored(position)

    @property
    def shared(self) -> nn.Module:
        """What is averaged."""
        return self.network.base if self.work.method == "fedper" else self.network

    @property
    def predictor(self) -> nn.Module:
        """The network that predicts."""
        return self.personal if self.work.method == "ditto" else self.network

    def train(self) -> None:
        """Take the steps of a round."""
        if self.work.method == "ditto":
            self.train_personal()
        self.network.train()
        for _ in range(self.work.epochs):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                functional.cross_entropy(self.network(x), y).backward()
                self.optimizer.step()

    def train_personal(self) -> None:
        """Take the steps of Ditto's personal network, which is pulled towards what was received."""
        received = [parameter.detach().clone() for parameter in self.network.parameters()]
        for _ in range(self.work.epochs):
            for x, y in self.loader:
                self.personal_optimizer.zero_grad()
                functional.cross_entropy(self.personal(x), y).backward()
                for parameter, target in zip(self.personal.parameters(), received, strict=True):
                    parameter.grad.add_(parameter.detach() - target, alpha=PULL)
                self.personal_optimizer.step()

    @torch.no_grad()
    def validate(self) -> float:
        """Return the loss on the scored rows."""
        x, y = self.scored
        return functional.cross_entropy(self.predictor.eval()(x), y).item()


def train(work: Work, tables: Tables, clock: Clock) -> list[nn.Module]:
    """Train one client after another, and average."""
    torch.manual_seed(0)
    clients = [Client(work, tables, position) for position in range(work.clients)]
    clock.mark()
    for _ in range(work.rounds):
        for client in clients:
            client.train()
        average_parameters([client.shared for client in clients])
        if work.validate:
            for client in clients:
                client.validate()
        clock.mark()
    return [client.predictor for client in clients]
