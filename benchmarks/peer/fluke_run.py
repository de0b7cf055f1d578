"""fluke (``pip install fluke-fl``), with its models in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fluke import DDict, FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.algorithms.ditto import Ditto
from fluke.algorithms.fedper import FedPer
from fluke.data import FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.nets import EncoderHeadNet
from fluke.utils import FederationObserver
from torch import nn

from peer.work import CLASSES, PULL, RATE, Clock, Tables, Work, start

METHODS = ("fedavg", "fedper", "ditto")
ALGORITHMS = {"fedavg": CentralizedFL, "fedper": FedPer, "ditto": Ditto}
NEVER = 10**6


class Split:
    """Hands out the clients' rows, as fluke asks for them.

    Args:
        tables: the rows of all clients.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def assign(self, clients: int, batch_size: int) -> Any:
        """Return each client's rows; nothing is tested."""
        loaders = [
            FastDataLoader(
                *self.tables.train(client),
                num_labels=CLASSES,
                batch_size=batch_size,
                shuffle=True,
            )
            for client in range(clients)
        ]
        return (loaders, [None] * clients), None


class Marks(FederationObserver):
    """Marks the clock after each round.

    Args:
        clock: what is marked.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def end_round(self, round: int) -> None:
        """Mark the end of a round."""
        self.clock.mark()


def settings(work: Work) -> DDict:
    """Return fluke's settings."""
    network = start()
    shared: nn.Module = network
    client = DDict(
        batch_size=work.batch,
        local_epochs=work.epochs,
        loss="CrossEntropyLoss",
        persistency=True,
        optimizer=DDict(name="SGD", lr=RATE),
        scheduler=DDict(name="StepLR", step_size=1, gamma=1.0),
    )
    if work.method == "fedper":
        shared = network.base
        client.update(model=EncoderHeadNet(network.base, network.head))
    if work.method == "ditto":
        client.update(model=network, tau=work.epochs, lam=PULL)
    return DDict(model=shared, client=client, server=DDict(weighted=False))


def networks(algorithm: CentralizedFL, work: Work) -> Sequence[nn.Module]:
    """Return the networks that predict, as they are after the last round."""
    if work.method == "fedavg":
        return [algorithm.server.model]
    if work.method == "ditto":
        return [client.personalized_model for client in algorithm.clients]
    return [client.model for client in algorithm.clients]


def train(work: Work, tables: Tables, clock: Clock) -> Sequence[nn.Module]:
    """Train without its evaluation."""
    torch.manual_seed(0)
    environment = FlukeENV()
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_evaluator(ClassificationEval(eval_every=NEVER, n_classes=CLASSES))
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    algorithm = ALGORITHMS[work.method](work.clients, Split(tables), settings(work))
    algorithm.set_callbacks(Marks(clock))
    clock.mark()
    algorithm.run(work.rounds, 1.0)
    return networks(algorithm, work)
