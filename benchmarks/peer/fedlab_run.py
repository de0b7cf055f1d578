"""FedLab (``pip install fedlab``). Its Ditto does not run in version 1.3.0: it calls the module tqdm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peer.work import RATE, Clock, Tables, Work, start

METHODS = ("fedavg",)


class Loaders:
    """The clients' rows, as FedLab's trainer asks for them.

    Args:
        tables: the rows of all clients.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        """Return a client's batches."""
        return DataLoader(TensorDataset(*self.tables.train(client)), batch_size, shuffle=True)


class Pipeline(StandalonePipeline):
    """A simulation that marks the clock where FedLab's users evaluate.

    Args:
        handler: FedLab's server.
        trainer: FedLab's clients.
        clock: what is marked.
    """

    def __init__(
        self, handler: FedAvgServerHandler, trainer: FedAvgSerialClientTrainer, clock: Clock
    ) -> None:
        super().__init__(handler, trainer)
        self.clock = clock

    def evaluate(self) -> None:
        """Mark the end of a round."""
        self.clock.mark()


def train(work: Work, tables: Tables, clock: Clock) -> Sequence[nn.Module]:
    """Train with its serial trainer."""
    torch.manual_seed(0)
    network = start()
    handler = FedAvgServerHandler(network, work.rounds, 1.0)
    trainer = FedAvgSerialClientTrainer(network, work.clients)
    trainer.setup_dataset(Loaders(tables))
    trainer.setup_optim(work.epochs, work.batch, RATE)
    pipeline = Pipeline(handler, trainer, clock)
    clock.mark()
    pipeline.main()
    return [handler.model]
