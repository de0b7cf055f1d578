"""blazefl (``pip install blazefl``; version 3 asks for Python 3.14), with its serial trainer. Its pools
of threads are meant for Python without the global lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from blazefl.contrib.fedavg import FedAvgBaseClientTrainer, FedAvgBaseServerHandler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peer.work import RATE, Clock, Network, Tables, Work, start

METHODS = ("fedavg",)


class Networks:
    """Makes networks, as blazefl asks for them.

    Args:
        make: makes one.
    """

    def __init__(self, make: Any) -> None:
        self.make = make

    def select_model(self, name: str) -> nn.Module:
        """Return a network."""
        network: nn.Module = self.make()
        return network


class Rows:
    """The clients' rows, as blazefl's trainer asks for them.

    Args:
        tables: the rows of all clients.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def get_dataloader(
        self, type_: str, cid: int, batch_size: int, generator: torch.Generator | None = None
    ) -> DataLoader:
        """Return a client's batches."""
        rows = TensorDataset(*self.tables.train(cid))
        return DataLoader(rows, batch_size, shuffle=True, generator=generator)


def train(work: Work, tables: Tables, clock: Clock) -> Sequence[nn.Module]:
    """Train with its serial trainer."""
    rows: Any = Rows(tables)
    server = FedAvgBaseServerHandler(
        Networks(start), "network", rows, work.rounds, work.clients, 1.0, "cpu", work.batch, 0
    )
    trainer = FedAvgBaseClientTrainer(
        Networks(Network), "network", rows, "cpu", work.clients, work.epochs, work.batch, RATE, 0
    )
    clock.mark()
    while not server.is_stopped():
        clients = server.sample_clients()
        trainer.local_process(server.downlink_package(), clients)
        for package in trainer.uplink_package():
            server.load(package)
        clock.mark()
    return [server.model]
