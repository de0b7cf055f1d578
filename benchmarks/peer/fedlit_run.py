"""fedlit, as its Python interface is meant to be used; the logger and checkpoints are off."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from lightning.pytorch import Callback
from torch import nn

from fedlit import MLP, Ditto, Exchange, FederatedClient, FederatedData, FederatedLoop, Run
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.train.callbacks import Checkpoints
from peer.work import (
    FEATURES,
    PULL,
    RATE,
    SCORED_ROWS,
    SPARE_ROWS,
    TRAIN_ROWS,
    WIDTH,
    Clock,
    Tables,
    Work,
    start,
)

METHODS = ("fedavg", "fedper", "ditto")
NEVER = 10**6
TEST = TRAIN_ROWS + SCORED_ROWS
SPLITS = {
    "train": np.arange(TRAIN_ROWS),
    "validation": np.arange(TRAIN_ROWS, TEST),
    "test": np.arange(TEST, TEST + SPARE_ROWS),
}


class Frames(Source):
    """The tables as pandas frames, one for each client.

    Args:
        tables: the rows of all clients.
    """

    name: ClassVar[str] = "frames"

    def __init__(self, tables: Tables) -> None:
        columns = [f"x{position:02d}" for position in range(FEATURES)]
        self.frames = [pd.DataFrame(x.double().numpy(), columns=columns) for x in tables.x]
        self.targets = [pd.Series(y.numpy(), name="y") for y in tables.y]

    def tables(self, seed: int) -> list[ClientTable]:
        """Return each client's table."""
        return [
            ClientTable(f"c{position:05d}", frame, target, SPLITS)
            for position, (frame, target) in enumerate(zip(self.frames, self.targets, strict=True))
        ]


def begin(client: nn.Module) -> None:
    """Give a client the common start; Ditto's two networks begin alike."""
    pairs = zip(client.parameters(), cycle(list(start().parameters())), strict=False)
    for parameter, value in pairs:
        parameter.data.copy_(value)


class Averaged(FederatedClient):
    """A client that begins at the common start."""

    stackable = True

    def on_rows(self, rows: Any) -> None:
        """Set the weights."""
        begin(self)


class Pulled(Ditto):
    """A client of Ditto that begins at the common start."""

    stackable = True

    def on_rows(self, rows: Any) -> None:
        """Set the weights."""
        begin(self)


class Marks(Callback):
    """Marks the clock after each exchange, or after each validation where there is one.

    Args:
        clock: what is marked.
        validate: whether rows are scored in each round.
    """

    def __init__(self, clock: Clock, validate: bool) -> None:
        self.clock = clock
        self.validate = validate

    def on_train_epoch_start(self, *_: Any) -> None:
        """Mark the beginning of the first round."""
        if not self.clock.marks:
            self.clock.mark()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Mark the end of a round, behind its exchange."""
        if trainer.is_last_batch and not self.validate:
            self.clock.mark()

    def on_train_epoch_end(self, *_: Any) -> None:
        """Mark the end of a round, behind its validation."""
        if self.validate:
            self.clock.mark()


def train(
    work: Work, tables: Tables, clock: Clock, engine: Literal["auto", "plain"] = "auto"
) -> Sequence[nn.Module]:
    """Train with one thread."""
    network = partial(MLP, hidden=[WIDTH, WIDTH], activation="relu")
    client: Any = partial(Averaged, network=network)
    if work.method == "ditto":
        client = partial(Pulled, network=network, strength=PULL)
    loop = FederatedLoop(
        client, optimizer=partial(torch.optim.SGD, lr=RATE), engine=engine, threads=1
    )
    steps = work.epochs if work.whole else None
    data = FederatedData(
        Frames(tables), batch_size=work.batch, steps=steps, scaling="none", align="both"
    )
    shared = ["encoder", "core"] if work.method == "fedper" else ["*"]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            loop,
            data,
            Exchange(shared),
            root=folder,
            checkpoints=Checkpoints(best=0, every=NEVER, seconds=1e9),
            max_epochs=work.rounds,
            callbacks=[Marks(clock, work.validate)],
            logger=False,
            check_val_every_n_epoch=1 if work.validate else NEVER,
        )
        run.fit(quiet=True)
    return list(run.loop.federation.clients.values())
