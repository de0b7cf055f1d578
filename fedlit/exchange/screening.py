"""Which updates of a round its rule may see: those that are finite, and that the guard passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from fedlit.exchange.columns import Updates
from fedlit.exchange.far import Far
from fedlit.exchange.guard import Guard, Verdict
from fedlit.sharing import Sharing
from fedlit.stacks import positions, rows_finite


@dataclass(frozen=True)
class Findings:
    """What is known of the updates of a round, on the device of the updates.

    Attributes:
        clients: the clients that sent an update, in the order of names.
        judged: the clients that the guard judged: all of the federation, in the order of names; none
            without a guard.
        finite: (clients,) bool, whether an update is finite.
        far: the findings of the guard about ``judged``; None without a guard.
    """

    clients: tuple[str, ...]
    judged: tuple[str, ...]
    finite: Tensor
    far: Far | None

    @property
    def numbers(self) -> Tensor:
        """All that decides who is left out, as one vector, so that it is read at once (see
        :func:`decide`).
        """
        if self.far is None:
            return self.finite.float()
        far = self.far
        return torch.cat([self.finite, far.size, far.suspicious, far.far, far.grown])

    def usable(self, guard: Guard | None) -> Tensor:
        """Return whether the rule may see each client's update, (clients,) bool."""
        if guard is None or self.far is None or guard.mode == "watch":
            return self.finite
        row_of = {client: row for row, client in enumerate(self.judged)}
        rows = positions(tuple(row_of[client] for client in self.clients), self.finite.device)
        return self.finite & ~self.far.far[rows]


def examine(updates: Updates, sharing: Sharing, guard: Guard | None) -> Findings:
    """Examine the updates of a round. No value is read from their device.

    Args:
        updates: the updates of all clients that take part.
        sharing: which tensors of each client are federated.
        guard: None for no guard.
    """
    finite = _finite(updates)
    clients = tuple(updates)
    if guard is None:
        return Findings(clients, (), finite, None)
    return Findings(
        clients, tuple(sorted(sharing.names)), finite, guard.judge(updates, sharing, finite)
    )


def decide(
    clients: Sequence[str], judged: Sequence[str], numbers: Sequence[float], guard: Guard | None
) -> tuple[tuple[str, ...], Verdict]:
    """Return the clients whose update is not finite, and the findings of the guard.

    Args:
        clients: see :class:`Findings`.
        judged: see :class:`Findings`.
        numbers: those of the findings, as read from the device.
        guard: None for no guard.
    """
    lost = tuple(name for name, finite in zip(clients, numbers, strict=False) if not finite)
    if guard is None or not judged:
        return lost, Verdict()
    rest = iter(numbers[len(clients) :])
    table = [dict(zip(judged, rest, strict=False)) for _ in range(4)]
    return lost, guard.verdict(table)


def screen(
    updates: Updates, sharing: Sharing, guard: Guard | None
) -> tuple[Updates, tuple[str, ...], Verdict]:
    """Leave out updates that are not finite, and updates that the guard does not pass. All values
    that decide this are read from the device at once.

    Args:
        updates: the updates of all clients that take part.
        sharing: which tensors of each client are federated.
        guard: None for no guard.

    Returns:
        The updates that the rule may see, the clients whose update is not finite, and the findings
        of the guard.
    """
    if not updates:
        return updates, (), Verdict()
    findings = examine(updates, sharing, guard)
    lost, verdict = decide(findings.clients, findings.judged, findings.numbers.tolist(), guard)
    gone = {*lost, *verdict.left_out}
    if not gone:
        return updates, lost, verdict
    near = {name: update for name, update in updates.items() if name not in gone}
    return Updates.of(near), lost, verdict


def _finite(updates: Updates) -> Tensor:
    """Return whether each client's update is finite, as a vector of booleans on its device."""
    finite = torch.ones(len(updates), dtype=torch.bool, device=updates.columns.device)
    for column in chain(updates.columns, updates.published):
        of_column = torch.ones_like(finite)
        column.into(of_column, rows_finite(column.values).to(finite.device))
        finite &= of_column
    return finite
