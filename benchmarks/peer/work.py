"""The work that all frameworks do: the tables, the network and its start, the clock, and the loss at
the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

FEATURES = 20
CLASSES = 3
WIDTH = 64
TRAIN_ROWS = 128
SCORED_ROWS = 32
SPARE_ROWS = 32
"""Rows that nobody reads while it trains: fedlit wants a test split."""
RATE = 0.1
PULL = 0.1
"""Ditto's λ."""
STEPS = 4
"""The steps of a client between two exchanges."""


@dataclass(frozen=True)
class Work:
    """What is trained.

    Attributes:
        method: ``fedavg``, ``fedper`` (the last layer stays with its client) or ``ditto``.
        clients: the number of clients; all take part in each round.
        rounds: the number of rounds, at least 2.
        whole: whether a batch is all training rows of a client, so that no order is drawn and all
            frameworks end at the same loss.
        validate: whether rows are scored in each round.
    """

    method: str = "fedavg"
    clients: int = 4
    rounds: int = 2
    whole: bool = False
    validate: bool = False

    @property
    def batch(self) -> int:
        """Rows of a batch."""
        return TRAIN_ROWS if self.whole else TRAIN_ROWS // STEPS

    @property
    def epochs(self) -> int:
        """Passes over a client's rows between two exchanges."""
        return STEPS if self.whole else 1


@dataclass(frozen=True)
class Tables:
    """Rows of all clients: the first :data:`TRAIN_ROWS` of each are trained, the next
    :data:`SCORED_ROWS` scored.

    Attributes:
        x: (clients, rows, features) float32.
        y: (clients, rows) int64.
    """

    x: Tensor
    y: Tensor

    def train(self, client: int) -> tuple[Tensor, Tensor]:
        """Return a client's training rows."""
        return self.x[client, :TRAIN_ROWS], self.y[client, :TRAIN_ROWS]

    def scored(self, client: int) -> tuple[Tensor, Tensor]:
        """Return the rows of a client that are scored."""
        rows = slice(TRAIN_ROWS, TRAIN_ROWS + SCORED_ROWS)
        return self.x[client, rows], self.y[client, rows]


def make_tables(clients: int) -> Tables:
    """Draw the tables: each client's rows lie elsewhere, and its labels follow a rule near to that
    of the others.
    """
    generator = np.random.default_rng(0)
    rule = generator.normal(size=(FEATURES, CLASSES))
    rows = TRAIN_ROWS + SCORED_ROWS + SPARE_ROWS
    x = generator.normal(size=(clients, rows, FEATURES))
    x += 0.3 * generator.normal(size=(clients, 1, FEATURES))
    rules = rule + 0.3 * generator.normal(size=(clients, FEATURES, CLASSES))
    logits = np.einsum("krf,kfc->krc", x, rules) + generator.gumbel(size=(clients, rows, CLASSES))
    return Tables(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(logits.argmax(-1)))


class Network(nn.Module):
    """A network of three layers; ``head`` is the one that FedPer does not share."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(
            nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) → (rows, classes), logits."""
        logits: Tensor = self.head(self.base(x))
        return logits


def start() -> Network:
    """Return the network with the weights from which all frameworks start."""
    network = Network()
    generator = np.random.default_rng(1)
    for parameter in network.parameters():
        bound = 1 / np.sqrt(parameter.shape[-1])
        values = generator.uniform(-bound, bound, parameter.shape)
        parameter.data = torch.from_numpy(values.astype(np.float32))
    return network


@dataclass
class Clock:
    """Marks the beginning of the first round, and the end of each.

    Attributes:
        marks: CPU seconds of this process and seconds on the clock, at each mark.
    """

    marks: list[tuple[float, float]] = field(default_factory=list)

    def mark(self, *_: Any) -> None:
        """Note the time."""
        self.marks.append((time.process_time(), time.perf_counter()))

    def rounds(self) -> dict[str, list[float]]:
        """Return the CPU seconds and the seconds of each round."""
        pairs = list(pairwise(self.marks))
        return {
            "cpu": [end[0] - begin[0] for begin, end in pairs],
            "wall": [end[1] - begin[1] for begin, end in pairs],
        }


@torch.no_grad()
def loss(networks: Sequence[nn.Module], tables: Tables) -> float:
    """Return the mean over clients of the loss on their training rows.

    Args:
        networks: one for each client, or one for all.
        tables: their rows.
    """
    clients = len(tables.x)
    if len(networks) == 1:
        networks = list(networks) * clients
    losses = []
    for client, network in enumerate(networks):
        x, y = tables.train(client)
        losses.append(functional.cross_entropy(network.eval()(x), y).double())
    return torch.stack(losses).mean().item()
