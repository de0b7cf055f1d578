"""Batches of tables that are in memory: slices of tensors, 20 to 50 times cheaper than a ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedlit.data.encoding import Rows
from fedlit.errors import ConfigError
from fedlit.seeding import derive_seed

__all__ = ["Batch", "ClientLoader", "EvalLoader"]


class Batch(NamedTuple):
    """Rows of one client.

    Attributes:
        x: (n, d) float32.
        y: (n,) int64, positions in the client's classes.
    """

    x: Tensor
    y: Tensor


class ClientLoader:
    """A client's training batches: the same number for every client, so their size is ``rows // batches``.

    The order of rows is a function of (seed, client, epoch); the ``rows % batches`` last rows of that order are left
    out of the epoch. The position within an epoch is saved with a checkpoint, so a run resumed in the middle of an
    epoch goes on with the next batch.

    Args:
        rows: the client's training rows.
        batches: number of batches per epoch.
        seed: the run's seed.
        client: the client's name.

    Example:
        >>> import numpy as np
        >>> rows = Rows(torch.randn(25, 3), torch.zeros(25, dtype=torch.long), np.arange(25))
        >>> loader = ClientLoader(rows, 10, seed=8, client="a")
        >>> [len(batch.y) for batch in loader]
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """

    def __init__(self, rows: Rows, batches: int, seed: int, client: str) -> None:
        self.rows, self.batches, self.seed, self.client = rows, batches, seed, client
        self.batch_size = len(rows) // batches
        self.epoch = 0
        self._position = 0
        self._resume_at = 0

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Batch]:
        # A generator: the order is drawn at the first `next`, after the loop has set the epoch.
        self._position, self._resume_at = self._resume_at, 0
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "rows", self.client, self.epoch))
        order = torch.randperm(len(self.rows), generator=generator).to(self.rows.x.device)
        while self._position < self.batches:
            start = self._position * self.batch_size
            index = order[start : start + self.batch_size]
            self._position += 1
            yield Batch(self.rows.x[index], self.rows.y[index])

    def state_dict(self) -> dict[str, int]:
        """How many batches of this epoch have been handed out."""
        return {"epoch": self.epoch, "position": self._position, "batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on behind the batches that were handed out.

        Raises:
            ConfigError: the state was saved with another number of batches per epoch.
        """
        if state["batches"] != self.batches:
            raise ConfigError(
                f"client {self.client!r}: expected a checkpoint with {self.batches} batches per epoch, found "
                f"{state['batches']}; set data.batches to {state['batches']} or start a new run"
            )
        # saved after an epoch's last batch: the next one's first may be drawn before the loop says which epoch it is
        self.epoch = state["epoch"] + state["position"] // self.batches
        self._resume_at = state["position"] % self.batches
        self._position = self._resume_at


class EvalLoader:
    """Rows in their own order, in batches of at most ``batch_size``.

    Example:
        >>> import numpy as np
        >>> rows = Rows(torch.randn(25, 3), torch.zeros(25, dtype=torch.long), np.arange(25))
        >>> [len(batch.y) for batch in EvalLoader(rows, 10)]
        [10, 10, 5]
    """

    def __init__(self, rows: Rows, batch_size: int) -> None:
        self.rows, self.batch_size = rows, batch_size

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.rows), self.batch_size):
            stop = start + self.batch_size
            yield Batch(self.rows.x[start:stop], self.rows.y[start:stop])
