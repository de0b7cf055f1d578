"""The mean of the clients' states (McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from
Decentralized Data").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.rule import Need, Round, Rule, Update
from fedlit.sharing import State

__all__ = ["Mean", "Sum", "counted", "mean"]


@torch.no_grad()
def mean(
    states: Mapping[str, State],
    weights: Mapping[str, float] | None = None,
    finite: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Σ w_k ω_k / Σ w_k for each name, over the clients that have it.

    Sums in the order of the clients' names, whatever the order of the mapping, in float32 or better, on the tensors'
    device; the result has the tensors' dtype.

    Args:
        states: client → named tensors; tensors of one name have one shape.
        weights: client → positive weight; equal if None.
        finite: client → boolean on the tensors' device; a client counts only where it is true. NaN where nobody counts.

    Raises:
        ValueError: a weight that is not positive.

    Example:
        Three clients, two of which have the tensor:

        >>> mean({"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}, "c": {}})
        {'w': tensor([1.])}
    """
    total = Sum()
    for client in sorted(states):
        weight = 1.0 if weights is None else float(weights[client])
        total.add(client, states[client], weight, None if finite is None else finite[client])
    return total.divided()


class Sum:
    """Σ w_k ω_k of each name, client after client: the mean on its way.

    Attributes:
        values: name → the sum so far, in float32 or better.
        forms: name → the dtype of clients' tensors.
        owners: name → who has added to it.
    """

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}
        self.forms: dict[str, torch.dtype] = {}
        self.owners: dict[str, list[str]] = {}
        self._weights: dict[str, float] = {}
        self._finite: dict[str, Tensor] = {}

    def count(self, client: str, names: Iterable[str], weight: float) -> None:
        """Count a client, whose tensors may have been added elsewhere.

        Raises:
            ValueError: a weight that is not positive.
        """
        if weight <= 0:
            raise ValueError(f"expected positive weights, found {weight} of {client!r}")
        self._weights[client] = weight
        for name in names:
            self.owners.setdefault(name, []).append(client)

    def add(self, client: str, state: State, weight: float, finite: Tensor | None = None) -> None:
        """Add a client's tensors; it must come behind all whose names come before its own."""
        self.count(client, state, weight)
        if finite is not None:
            self._finite[client] = finite
        self.sum(state, weight, finite)

    def sum(self, state: State, weight: float, finite: Tensor | None = None) -> None:
        """Add tensors of a client that is counted."""
        first = [name for name in state if name not in self.values]
        others = [name for name in state if name in self.values]
        if first:
            self.values |= zip(first, torch._foreach_mul(_terms(state, first, finite), weight), strict=True)
            self.forms |= {name: state[name].dtype for name in first}
        if others:
            total = [self.values[name] for name in others]
            torch._foreach_add_(total, _terms(state, others, finite), alpha=weight)

    def divided(self) -> dict[str, Tensor]:
        """The mean."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, clients in self.owners.items():
            groups.setdefault(tuple(clients), []).append(name)
        for owners, names in groups.items():
            total, weights = [self.values[name] for name in names], [self._weights[client] for client in owners]
            if self._finite:
                counted = [self._finite[client] * weight for client, weight in zip(owners, weights, strict=True)]
                torch._foreach_div_(total, torch.stack(counted).sum())
            else:
                torch._foreach_div_(total, sum(weights))
        return {name: value.to(self.forms[name]) for name, value in self.values.items()}


def counted(round: Round) -> dict[str, Tensor]:
    """Client → 1 if its update is among those that a rule was given and finite, else 0: for rules whose clients keep
    something in step with the server, which a client that was left out must not change.
    """
    device = next((value.device for own in round.updates.values() for value in own.state.values()), None)
    yes, no = (torch.tensor(value, device=device) for value in (1.0, 0.0))
    one = {name: yes if own.finite is None else own.finite.float() for name, own in round.updates.items()}
    return {name: one.get(name, no) for name in round.receivers}


def _terms(state: State, names: list[str], finite: Tensor | None) -> list[Tensor]:
    own = [_at_least_single(state[name]) for name in names]
    # not a product: NaN times 0 is NaN
    return own if finite is None else [torch.where(finite, value, 0.0) for value in own]


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class Mean(Rule):
    """Every client receives the mean.

    Args:
        weights: every client counts the same (``uniform``) or by its number of training rows (``rows``).
    """

    takes_masks = True
    by_mean = True

    def __init__(self, weights: Literal["uniform", "rows"] = "uniform") -> None:
        self.weights: Literal["uniform", "rows"] = weights

    @property
    def needs(self) -> frozenset[Need]:
        """Rows, where they are weights."""
        return frozenset({"rows"} if self.weights == "rows" else ())

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        return self.spread(self.average(round.updates), round)

    def average(self, updates: Mapping[str, Update]) -> dict[str, Tensor]:
        """The mean of what clients sent, of each tensor over those that have it."""
        total = Sum()
        for client, update in sorted(updates.items()):
            total.add(client, update.state, self.weight(update), update.finite)
        return total.divided()

    def weight(self, update: Update) -> float:
        """What a client counts."""
        return float(update.rows) if self.weights == "rows" else 1.0

    @staticmethod
    def spread(average: State, round: Round) -> Mapping[str, State]:
        """To each client what it has."""
        return {
            client: {name: average[name] for name in names if name in average}
            for client, names in round.receivers.items()
        }
