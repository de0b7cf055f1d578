"""The tensors of many clients, column by column: those of one name are read and written by few
operations, whatever the number of clients.

The bits of every result are those of a loop over clients in the order of names: what is computed
for each client is computed of its values alone, and what is added is added one client after
another (:mod:`fedlit.stacks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedlit.exchange.rule import Update
from fedlit.sharing import State
from fedlit.slices import Detached
from fedlit.stacks import LONG, memory_of, positions, row_norms, run_of, starts_of

SHORT_RUN = 8
"""The mean number of clients in a run below which the tensors are copied into one."""


@dataclass(frozen=True)
class Column:
    """The tensors of one name that some clients have, all of one type and shape.

    Attributes:
        name: their name.
        rows: the positions of the clients among all, in the order of names.
        tensors: each client's tensor.
        run: the memory of all of them, if they lie one after another.
    """

    name: str
    rows: Sequence[int]
    tensors: Sequence[Tensor]
    run: Tensor | None

    @cached_property
    def values(self) -> Tensor:
        """The clients' values, (len(rows), ...), without a gradient. They are a copy if the tensors
        do not lie one after another.
        """
        if self.run is not None:
            return self.run
        return torch.stack(list(self.tensors)).detach()

    @property
    def floating(self) -> bool:
        """Whether the tensors are of a floating-point type."""
        return self.tensors[0].is_floating_point()

    def part(self, rows: Sequence[int]) -> Column:
        """Return the column of some of its clients, given their positions among all."""
        if len(rows) == len(self.rows):
            return self
        chosen = set(rows)
        pairs = zip(self.rows, self.tensors, strict=True)
        return Column(self.name, rows, [tensor for row, tensor in pairs if row in chosen], None)

    def beside(self, values: Sequence[Tensor]) -> Tensor:
        """Return a value for each client in the type and on the device of the column, as a tensor
        that can be computed with :attr:`values`: (1, ...) if all clients have the same one.
        """
        first = values[0]
        if all(value is first for value in values):
            return first.detach().to(self.tensors[0])[None]
        return torch.stack([value.detach().to(self.tensors[0]) for value in values])

    def into(self, table: Tensor, values: Tensor) -> None:
        """Write a number for each client of the column into a vector over all clients.

        Args:
            table: (K,), for all clients.
            values: (len(rows),), or (1,) for the same number.
        """
        first = self.rows[0]
        if self.rows[-1] - first + 1 == len(self.rows):
            table[first : first + len(self.rows)] = values
        else:
            values = values.expand(len(self.rows)).to(table.dtype)
            table.index_copy_(0, positions(tuple(self.rows), table.device), values)


class Columns:
    """The named tensors of clients, by name.

    Args:
        states: maps each client to its named tensors.

    Attributes:
        clients: the clients, in the order of names.
        by_name: maps each name to its columns, which follow each other in the order of clients.
            Names are in the order in which clients have them.
    """

    def __init__(self, states: Mapping[str, State]) -> None:
        self.clients = sorted(states)
        tensors: dict[str, list[Tensor]] = {}
        rows: dict[str, list[int]] = {}
        for row, client in enumerate(self.clients):
            state = states[client]
            values = state.live.by_name if isinstance(state, Detached) else state
            for name in state:
                if name not in tensors:
                    tensors[name] = []
                    rows[name] = []
                tensors[name].append(values[name])
                rows[name].append(row)
        self.by_name = {name: _columns(name, rows[name], tensors[name]) for name in tensors}

    def __iter__(self) -> Iterator[Column]:
        for columns in self.by_name.values():
            yield from columns

    @property
    def device(self) -> torch.device:
        """The device of the tensors; the CPU if there are none."""
        for column in self:
            return column.tensors[0].device
        return torch.device("cpu")

    @cached_property
    def bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(len(column.rows) * column.tensors[0].nbytes for column in self)


def _columns(name: str, rows: Sequence[int], tensors: Sequence[Tensor]) -> list[Column]:
    """Divide the tensors of a name into columns."""
    starts = starts_of(tensors)
    if len(starts) != 1 and len(starts) * SHORT_RUN > len(tensors):
        starts = []
    if not starts and _can_be_copied(tensors):
        return [Column(name, rows, tensors, None)]
    starts = starts or list(range(len(tensors)))
    columns = []
    for start, stop in zip(starts, [*starts[1:], len(tensors)], strict=True):
        of_run = tensors[start:stop]
        run = of_run[0].detach()[None]
        if len(of_run) > 1:
            run = run_of(of_run)
        columns.append(Column(name, rows[start:stop], of_run, run))
    return columns


def _can_be_copied(tensors: Sequence[Tensor]) -> bool:
    """Return whether copies of tensors can be one tensor, and are not too long for it."""
    first = tensors[0]
    if first.numel() >= LONG or first.layout is not torch.strided:
        return False
    forms = {(tensor.dtype, tensor.shape, tensor.device) for tensor in tensors}
    return len(forms) == 1


class Updates(dict[str, Update]):
    """The updates of a round by client, in the order of names. Nothing may be added to them, because
    their columns are found once.
    """

    @classmethod
    def of(cls, updates: Mapping[str, Update]) -> Updates:
        """Return updates as this class: themselves, if they are of it."""
        if isinstance(updates, Updates):
            return updates
        return cls(sorted(updates.items()))

    @cached_property
    def columns(self) -> Columns:
        """The federated tensors that clients sent."""
        return Columns({name: update.state for name, update in self.items()})

    @cached_property
    def memories(self) -> set[int]:
        """The addresses of the memory in which the federated tensors lie, which the clients will
        change.
        """
        memories: set[int] = set()
        for column in self.columns:
            if column.run is None:
                memories.update(map(memory_of, column.tensors))
            else:
                memories.add(memory_of(column.run))
        return memories

    @cached_property
    def published(self) -> Columns:
        """The tensors that clients sent beside them."""
        return Columns({name: update.published for name, update in self.items()})


def relative_distances(
    columns: Columns, references: Mapping[str, State], names: Mapping[str, tuple[str, ...]]
) -> dict[str, Tensor]:
    """Return ‖ω_k − ω̄_k‖ / ‖ω̄_k‖ of each client (Euclidean norms over some of its tensors), on the
    device: NaN if ω̄_k is 0.

    Args:
        columns: the clients' tensors, ω_k.
        references: maps each client to its reference, ω̄_k, if it has one.
        names: maps each client to the names of the tensors that count, as far as both have them. A
            client without any is left out of the result.

    Example:
        >>> states = {"north": {"w": torch.tensor([3.0, 4.0])}}
        >>> relative_distances(Columns(states), {"north": {"w": torch.tensor([3.0, 0.0])}}, {"north": ("w",)})
        {'north': tensor(1.3333)}
    """
    clients = columns.clients
    counted: list[tuple[str, ...]] = []  # names, by row
    for client in clients:
        reference = references.get(client, {})
        counted.append(tuple(name for name in names[client] if name in reference))
    norms: dict[str, tuple[Tensor, Tensor]] = {}  # name → ‖ω_k − ω̄_k‖, ‖ω̄_k‖
    measured: dict[str, set[int]] = {}  # name → rows
    for column in columns:
        name = column.name
        part = column.part([row for row in column.rows if name in counted[row]])
        measured.setdefault(name, set()).update(part.rows)
        if part.rows:
            values = part.values
            beside = part.beside([references[clients[row]][name] for row in part.rows])
            if name not in norms:
                norms[name] = (values.new_zeros(len(clients)), values.new_zeros(len(clients)))
            part.into(norms[name][0], row_norms(values - beside))
            part.into(norms[name][1], row_norms(beside))
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, of_client in enumerate(counted):
        present = tuple(name for name in of_client if row in measured.get(name, ()))
        if present:
            groups.setdefault(present, []).append(row)
    distances: dict[str, Tensor] = {}
    for group, rows in groups.items():
        at = positions(tuple(rows), columns.device)
        distance = row_norms(torch.stack([norms[name][0][at] for name in group], 1))
        size = row_norms(torch.stack([norms[name][1][at] for name in group], 1))
        relative = torch.where(size > 0, distance / size, torch.nan)
        for row, value in zip(rows, relative.unbind(), strict=True):
            distances[clients[row]] = value
    return {client: distances[client] for client in clients if client in distances}
