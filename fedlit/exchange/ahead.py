"""Rounds within an epoch on a device that runs ahead, such as a GPU. Nothing of them is read before
the epoch ends, because reading would wait for the device at every exchange.

Clients whose update is not finite, or far from the others', are left out of the mean by a mask that
stays on the device. Who they were is read with the last step of the epoch; they are then logged,
counted, and made fit again (see :func:`fedlit.exchange.apply.recover`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedlit.devices import to_device
from fedlit.exchange.columns import Columns, Updates
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.screening import Findings
from fedlit.precision import widest
from fedlit.sharing import State
from fedlit.stacks import add_rows, positions

SUM = "sum/"
"""The name under which a rule gets a mean instead of updates. It is no client's, so that none
receives what it does not have."""


def can_run_ahead(rule: Rule) -> bool:
    """Return whether a rule uses nothing of the updates but their mean."""
    return rule.facts.by_mean and rule.needs <= {"rows"}


@dataclass(frozen=True)
class MaskedMean:
    """The mean over the clients whose update is usable.

    Attributes:
        state: the mean of each tensor; a tensor that no usable update has is as the first client
            sent it.
        present: whether some usable update has the tensor, as a boolean on its device.
    """

    state: dict[str, Tensor]
    present: dict[str, Tensor]

    def as_update(self, updates: Mapping[str, Update]) -> Updates:
        """Return the mean as the only update of a round."""
        parameters = set[str]().union(*(update.parameters for update in updates.values()))
        of_mean = tuple(name for name in self.state if name in parameters)
        return Updates.of({SUM: Update(self.state, rows=1, parameters=of_mean)})

    def finite(self, received: Mapping[str, State]) -> Tensor:
        """Return whether what clients receive is finite, as a boolean on its device."""
        distinct = {}
        for state in received.values():
            for name, value in state.items():
                if value.is_floating_point() and value.numel():
                    distinct[id(value), name] = value
        if not distinct:
            return torch.tensor(True)
        norms = torch.stack(torch._foreach_norm(list(distinct.values()), float("inf")))
        yes = torch.ones_like(norms[0], dtype=torch.bool)
        present = torch.stack([self.present.get(name, yes) for _, name in distinct])
        return (norms.isfinite() | ~present).all()


@torch.no_grad()
def masked_mean(columns: Columns, weights: Mapping[str, float], usable: Tensor) -> MaskedMean:
    """Return the mean over the clients whose update is usable, without reading who they are.

    It has the bits of :func:`~fedlit.exchange.rules.mean.mean_of` over these clients on the CPU: for
    the others −0 is added, which changes no number.

    Args:
        columns: what clients sent.
        weights: maps each client to its positive weight.
        usable: whether each client's update is usable, (K,) bool, on the device of the columns.

    Example:
        >>> columns = Columns({"a": {"w": torch.ones(1)}, "b": {"w": torch.full((1,), torch.nan)}})
        >>> masked_mean(columns, {"a": 1.0, "b": 1.0}, torch.tensor([True, False])).state
        {'w': tensor([1.])}
    """
    device = usable.device
    numbers = [float(weights[client]) for client in columns.clients]
    # Whole numbers, so that their sum is exact in any order.
    on_device = to_device(torch.tensor(numbers, dtype=widest(device)), device)
    counted = torch.where(usable, on_device, 0.0)
    state: dict[str, Tensor] = {}
    present: dict[str, Tensor] = {}
    for name, parts in columns.by_name.items():
        first = parts[0].values[0]
        wide = torch.promote_types(first.dtype, torch.float32)
        total = torch.full_like(first, -0.0, dtype=wide)
        weight = counted.new_zeros(())
        for column in parts:
            rows = positions(tuple(column.rows), device)
            mask = usable[rows].view(-1, *[1] * first.dim())
            values = torch.where(mask, column.values.to(wide), -0.0)
            add_rows(total, values, [numbers[row] for row in column.rows])
            weight += counted[rows].sum()
        present[name] = weight > 0
        state[name] = torch.where(present[name], (total / weight).to(first.dtype), first)
    return MaskedMean(state, present)


@dataclass(frozen=True)
class Unread:
    """A round that was not read yet.

    Attributes:
        number: the number of exchanges before it.
        taking_part: the clients that took part.
        clients: the clients that sent an update.
        judged: the clients that the guard judged.
        numbers: the findings (see :attr:`~fedlit.exchange.screening.Findings.numbers`), and whether
            what clients received is finite, on the device.
    """

    number: int
    taking_part: tuple[str, ...]
    clients: tuple[str, ...]
    judged: tuple[str, ...]
    numbers: Tensor


@dataclass
class UnreadRounds:
    """The rounds of an epoch that were not read yet.

    Attributes:
        rounds: the rounds.
        received: maps each client to what it received in the last of them.
    """

    rounds: list[Unread] = field(default_factory=list)
    received: Mapping[str, State] = field(default_factory=dict)

    def add(
        self,
        number: int,
        taking_part: tuple[str, ...],
        findings: Findings,
        finite: Tensor,
        received: Mapping[str, State],
    ) -> None:
        """Add a round.

        Args:
            number: the number of exchanges before it.
            taking_part: the clients that took part.
            findings: what was found about the updates.
            finite: whether what clients received is finite.
            received: maps each client to what it received.
        """
        numbers = torch.cat([findings.numbers, finite.float()[None].to(findings.finite.device)])
        self.rounds.append(Unread(number, taking_part, findings.clients, findings.judged, numbers))
        self.received = received

    def read(self) -> list[tuple[Unread, list[float]]]:
        """Return the rounds with their numbers, which are read from the device at once, and forget
        them.
        """
        if not self.rounds:
            return []
        lengths = [len(unread.numbers) for unread in self.rounds]
        numbers = torch.cat([unread.numbers for unread in self.rounds]).cpu().split(lengths)
        rounds = self.rounds
        self.rounds = []
        self.received = {}
        return [
            (unread, of_round.tolist()) for unread, of_round in zip(rounds, numbers, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a run needs if it is resumed within an epoch; empty without unread
        rounds.
        """
        if not self.rounds:
            return {}
        return {
            "rounds": [dict(vars(unread)) for unread in self.rounds],
            "received": {name: dict(state) for name, state in self.received.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.rounds = [Unread(**unread) for unread in state.get("rounds", ())]
        self.received = dict(state.get("received", {}))
