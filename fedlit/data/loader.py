"""Batches of tables that are in memory. They are slices of tensors, 20 to 50 times cheaper than a
``DataLoader``.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedlit.data.encoding import Rows
from fedlit.data.table import check_patterns, first_match
from fedlit.devices import to_device
from fedlit.errors import DataError, Told, expect
from fedlit.seeding import derive_seed
from fedlit.stacks import one_after_another

Steps = int | list[int] | dict[str, int | list[int]]
"""A number, or [least, most] to draw from anew for each client and epoch; the same for all, or by
client's name or pattern."""


class Batch(NamedTuple):
    """The rows of one client.

    Attributes:
        x: (n, d) float32.
        y: (n,), the target as the client's task encodes it: int64 positions in its classes, or
            float32 numbers.
        weight: (n,) float32, how much each row counts; None if all count alike.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None


class Pace(NamedTuple):
    """How a client goes through its training rows.

    Attributes:
        batch_size: rows per batch.
        batches: the number of batches in one pass over the rows.
        least: the least number of steps in an epoch.
        most: the largest number of steps in an epoch.
    """

    batch_size: int
    batches: int
    least: int
    most: int


@dataclass(frozen=True)
class Batching:
    """How an epoch is cut into steps: by a number of batches that is the same for all clients, or
    by a batch size.

    Attributes:
        batches: B, batches per epoch; a client's batch size is its training rows // B.
        batch_size: rows per batch; a client has training rows // size batches, and one of all its
            rows where it has fewer than that.
        steps: how many steps a client takes in an epoch; its number of batches if None. A client
            with more steps than batches goes through its rows again, in another order.
    """

    batches: int | None = None
    batch_size: int | None = None
    steps: Steps | None = None

    def __post_init__(self) -> None:
        for name in ("batches", "batch_size"):
            value = getattr(self, name)
            expect(value is None or value >= 1, f"data.{name}", "at least 1", value)
        one = (self.batches is None) != (self.batch_size is None)
        given_settings = Told("neither" if self.batches is None else "both")
        expected = (
            "one of batches (equal for all clients) and batch_size (as many batches as a "
            "client's rows give)"
        )
        expect(one, "data", expected, given_settings, "set the other to null")
        if isinstance(self.steps, dict):
            for steps in self.steps.values():
                if steps is not None:
                    _check_steps(steps)
        elif self.steps is not None:
            _check_steps(self.steps)

    def check(self, rows: Mapping[str, int], names: Sequence[str] | None = None) -> None:
        """Refuse clients with fewer rows than batches, and steps for clients that do not exist.

        Args:
            rows: client → training rows.
            names: the names of all clients; those of ``rows`` if None.

        Raises:
            DataError: too few rows.
            ConfigError: a pattern that matches no client.
        """
        few = [
            f"{client} ({count})" for client, count in rows.items() if count < (self.batches or 1)
        ]
        expected = "at most as many batches as a client has training rows"
        few_clients = Told(f"{self.batches} batches for {', '.join(few)}")
        advice = (
            f"set data.batches to at most {min(rows.values(), default=0)}, or leave these "
            "clients out"
        )
        expect(not few, "data.batches", expected, few_clients, advice, DataError)
        if isinstance(self.steps, dict):
            check_patterns("data.steps", self.steps, names or rows)

    def pace(self, client: str, rows: int) -> Pace:
        """Return how a client with so many training rows goes through them."""
        if self.batches is not None:
            batch_size = rows // self.batches
            batches = self.batches
        else:
            batch_size = min(self.batch_size or rows, rows)
            batches = rows // batch_size
        steps = self.steps
        if isinstance(steps, dict):
            steps = first_match(steps, client)
        if steps is None:
            steps = batches
        return Pace(batch_size, batches, *_bounds(steps))

    def to_dict(self) -> dict[str, object]:
        """Return the settings that a resumed run must have in common, as plain data."""
        return {"batches": self.batches, "batch_size": self.batch_size, "steps": self.steps}


def _bounds(steps: int | list[int]) -> tuple[int, int]:
    """Return the least and the largest number of steps."""
    if isinstance(steps, int):
        return steps, steps
    least, most = steps
    return least, most


def _check_steps(steps: int | list[int]) -> None:
    bounds = [steps, steps] if isinstance(steps, int) else steps
    is_range = len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] and bounds[1] > 0
    expected = "a number of at least 1, or [least, most]"
    expect(is_range, "data.steps", expected, steps, "per client: {name or pattern: number}")


class ClientLoader:
    """A client's training batches of an epoch, with None for each aligned step in which it waits
    for others.

    The order of rows is a function of (seed, client, epoch); the rows at its end that do not fill a
    batch are left out. The position within an epoch is saved with a checkpoint, so a run resumed in the
    middle of an epoch goes on with the next batch.

    Args:
        rows: the client's training rows.
        batching: the number of steps and their size.
        seed: the run's seed.
        client: the client's name.

    Attributes:
        batch_size: rows per batch.
        batches: the number of batches in one pass over the rows.
        most: steps that the client may take in an epoch.
        length: aligned steps of an epoch; at first ``most``.
        together: gathers batches for this client and others at once, if there are any like it.
        slot: the client's position among them.
        idle: whether the client sits out, so that its batches are None. They count all the same.

    Example:
        >>> import numpy as np
        >>> rows = Rows(torch.randn(25, 3), torch.zeros(25, dtype=torch.long), np.arange(25))
        >>> [len(batch.y) for batch in ClientLoader(rows, Batching(batches=10), seed=8, client="a")]
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
        >>> loader = ClientLoader(rows, Batching(batch_size=8), seed=8, client="a")
        >>> loader.length = 5  # another client has five batches
        >>> [len(batch.y) if batch else None for batch in loader]
        [8, 8, 8, None, None]
    """

    def __init__(self, rows: Rows, batching: Batching, seed: int, client: str) -> None:
        self.rows = rows
        self.seed = seed
        self.client = client
        self.batch_size, self.batches, self._least, self.most = batching.pace(client, len(rows))
        self.length = self.most
        self.epoch = 0
        self.together: Together | None = None
        self.slot = 0
        self.idle = False
        self._position = 0
        self._resume_at = 0

    def __len__(self) -> int:
        return self.length

    @property
    def range(self) -> str:
        """Describe how many steps the client takes in an epoch."""
        if self._least == self.most:
            return str(self.most)
        return f"{self._least} to {self.most}"

    @property
    def steps(self) -> int:
        """The number of steps that the client takes in this epoch."""
        if self._least == self.most:
            return self.most
        generator = torch.Generator().manual_seed(
            derive_seed(self.seed, "steps", self.client, self.epoch)
        )
        return int(torch.randint(self._least, self.most + 1, (), generator=generator))

    def ends(self, position: int) -> bool:
        """Return whether the batch at this position is the client's last one of the epoch."""
        return position + 1 == self.steps

    def order(self, again: int) -> Tensor:
        """Return the order of rows in a pass of this epoch, on the rows' device.

        Args:
            again: the number of passes before it.
        """
        keys = (self.epoch, again) if again else (self.epoch,)
        generator = torch.Generator().manual_seed(
            derive_seed(self.seed, "rows", self.client, *keys)
        )
        return to_device(torch.randperm(len(self.rows), generator=generator), self.rows.x.device)

    def __iter__(self) -> Iterator[Batch | None]:
        # A generator: the order is drawn at the first `next`, after the loop has set the epoch.
        self._position = self._resume_at
        self._resume_at = 0
        steps = self.steps
        drawn = -1
        order = torch.empty(0)
        while self._position < self.length:
            again, batch = divmod(self._position, self.batches)
            self._position += 1
            if self.idle or self._position > steps:
                yield None
                continue
            if self.together is not None:
                yield self.together.batches(self.epoch, again, batch)[self.slot]
                continue
            if again != drawn:
                order = self.order(again)
                drawn = again
            index = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            weight = None if self.rows.weight is None else self.rows.weight[index]
            yield Batch(self.rows.x[index], self.rows.y[index], weight)

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches of this epoch that have been returned."""
        return {"epoch": self.epoch, "position": self._position, "length": self.length}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue after the batches that have been returned.

        Raises:
            ConfigError: the state was saved with another number of steps per epoch.
        """
        advice = "set data.batches, batch_size and steps as they were, or start a new run"
        expected = f"a checkpoint with {self.length} steps per epoch"
        saved_length = state["length"]
        expect(
            saved_length == self.length, f"client {self.client!r}", expected, saved_length, advice
        )
        # After the last batch of an epoch, the first batch of the next one may be drawn before the
        # loop sets the epoch.
        self.epoch = state["epoch"] + state["position"] // self.length
        self._resume_at = state["position"] % self.length
        self._position = self._resume_at


LARGEST_COPY = 2**28
"""The most bytes of rows that are copied into one tensor, so that batches are gathered at once."""


class Together:
    """Gathers the batches of several clients by one operation, where they have as many rows and
    batches as each other. The batches are slices of one tensor.

    Args:
        loaders: the clients' loaders, which return these batches from now on.
    """

    def __init__(self, loaders: Sequence[ClientLoader]) -> None:
        self._loaders = list(loaders)
        self._x = one_after_another([loader.rows.x for loader in loaders])
        self._y = one_after_another([loader.rows.y for loader in loaders])
        rows = len(loaders[0].rows)
        begins = torch.arange(0, rows * len(loaders), rows)
        self._begins = to_device(begins, self._x.device).unsqueeze(1)
        self._pass: tuple[int, int] | None = None  # the epoch and the pass of the orders
        self._orders: dict[int, Tensor] = {}  # slot → the order of its rows in this pass
        self._key: tuple[int, int, int] | None = None
        self._batches: dict[int, Batch] = {}
        for slot, loader in enumerate(loaders):
            loader.together = self
            loader.slot = slot

    def renew(self) -> None:
        """Gather the next batches anew, because other clients sit out."""
        self._key = None

    def batches(self, epoch: int, again: int, batch: int) -> Mapping[int, Batch]:
        """Map the slot of each client that does not sit out to its batch.

        Args:
            epoch: the number of the epoch.
            again: the number of the pass through the rows in this epoch.
            batch: the number of the batch in this pass.
        """
        if self._pass != (epoch, again):
            self._orders = {}
            self._pass = (epoch, again)
        if self._key != (epoch, again, batch):
            active = [loader for loader in self._loaders if not loader.idle]
            slots = [loader.slot for loader in active]
            for loader in active:
                if loader.slot not in self._orders:
                    self._orders[loader.slot] = loader.order(again)
            size = self._loaders[0].batch_size
            rows = slice(batch * size, (batch + 1) * size)
            index = torch.stack([self._orders[slot][rows] for slot in slots])
            index += self._begins[slots] if len(slots) < len(self._loaders) else self._begins
            x = self._x[index].unbind()
            y = self._y[index].unbind()
            self._batches = dict(zip(slots, map(Batch, x, y), strict=True))
            self._key = (epoch, again, batch)
        return self._batches


def sit_out(loaders: Iterable[ClientLoader], active: Collection[str] | None) -> None:
    """Let the clients that are not active get no batches; their rows are not even drawn.

    Args:
        loaders: the loaders of clients.
        active: the names of the active clients; None for all.
    """
    for loader in loaders:
        loader.idle = active is not None and loader.client not in active
        if loader.together is not None:
            loader.together.renew()


def gather_together(loaders: Iterable[ClientLoader]) -> None:
    """Let the loaders of clients with as many rows and batches as each other gather them at once."""
    groups: dict[Hashable, list[ClientLoader]] = {}
    for loader in loaders:
        loader.together = None
        rows = loader.rows
        if rows.weight is None:
            shapes = (rows.x.shape, rows.x.dtype, rows.y.shape, rows.y.dtype, rows.x.device)
            groups.setdefault((shapes, loader.batch_size), []).append(loader)
    for group in groups.values():
        if len(group) > 1 and sum(loader.rows.x.nbytes for loader in group) <= LARGEST_COPY:
            Together(group)


class EvalLoader:
    """Returns the rows of sites in their own order, in batches of at most ``batch_size``. Each round
    has the next batch of every site that has one left; batches are cut once.

    Args:
        rows: maps each site to its rows.
        batch_size: the largest number of rows in a batch.

    Example:
        >>> import numpy as np
        >>> rows = Rows(torch.randn(25, 3), torch.zeros(25, dtype=torch.long), np.arange(25))
        >>> few = Rows(rows.x[:4], rows.y[:4], rows.row[:4])
        >>> for batches in EvalLoader({"oak": rows, "elm": few}, 10):
        ...     print({site: len(batch.y) for site, batch in batches.items()})
        {'oak': 10, 'elm': 4}
        {'oak': 10}
        {'oak': 5}
    """

    def __init__(self, rows: Mapping[str, Rows], batch_size: int) -> None:
        self.rounds: list[dict[str, Batch]] = []
        for site, of_site in rows.items():
            for number, batch in enumerate(_batches_of(of_site, batch_size)):
                if number == len(self.rounds):
                    self.rounds.append({})
                self.rounds[number][site] = batch

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[dict[str, Batch]]:
        return iter(self.rounds)


def _batches_of(rows: Rows, batch_size: int) -> Iterator[Batch]:
    """Yield batches of at most so many rows, in their own order."""
    for start in range(0, len(rows), batch_size):
        stop = start + batch_size
        weight = None if rows.weight is None else rows.weight[start:stop]
        yield Batch(rows.x[start:stop], rows.y[start:stop], weight)
