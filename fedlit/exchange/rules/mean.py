"""The mean of the clients' states (McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from
Decentralized Data").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.rule import Facts, Round, Rule, Update
from fedlit.sharing import State

__all__ = ["Mean", "Sum", "counted", "mean", "spread"]


@torch.no_grad()
def mean(states: Mapping[str, State], weights: Mapping[str, float] | None = None) -> dict[str, Tensor]:
    """Return Σ w_k ω_k / Σ w_k for each name, over the clients that have it.

    Sums in the order of the clients' names, whatever the order of the mapping, in float32 or better, on the tensors'
    device; the result has the tensors' dtype.

    Args:
        states: maps each client to its named tensors; tensors of one name have one shape.
        weights: maps each client to its positive weight; equal weights if None.

    Raises:
        ValueError: a weight is not positive.

    Example:
        Three clients, two of which have the tensor:

        >>> mean({"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}, "c": {}})
        {'w': tensor([1.])}
    """
    total = Sum()
    for client in sorted(states):
        weight = 1.0 if weights is None else float(weights[client])
        total.add(client, states[client], weight)
    return total.divided()


class Sum:
    """Accumulates Σ w_k ω_k for each name, one client after another.

    Attributes:
        values: maps each name to the sum so far, in float32 or better.
        forms: maps each name to the dtype of the clients' tensors.
        owners: maps each name to the clients that have added to it.
    """

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}
        self.forms: dict[str, torch.dtype] = {}
        self.owners: dict[str, list[str]] = {}
        self._weights: dict[str, float] = {}

    def add(self, client: str, state: State, weight: float) -> None:
        """Add a client's tensors. Clients must be added in the order of their names.

        Raises:
            ValueError: the weight is not positive.
        """
        if weight <= 0:
            raise ValueError(f"expected positive weights, found {weight} of {client!r}")
        self._weights[client] = weight
        for name in state:
            self.owners.setdefault(name, []).append(client)
        first = [name for name in state if name not in self.values]
        others = [name for name in state if name in self.values]
        if first:
            terms = [_at_least_single(state[name]) for name in first]
            self.values |= zip(first, torch._foreach_mul(terms, weight), strict=True)
            self.forms |= {name: state[name].dtype for name in first}
        if others:
            terms = [_at_least_single(state[name]) for name in others]
            torch._foreach_add_([self.values[name] for name in others], terms, alpha=weight)

    def divided(self) -> dict[str, Tensor]:
        """Return the mean."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, clients in self.owners.items():
            groups.setdefault(tuple(clients), []).append(name)
        for owners, names in groups.items():
            total = sum(self._weights[client] for client in owners)
            torch._foreach_div_([self.values[name] for name in names], total)
        return {name: value.to(self.forms[name]) for name, value in self.values.items()}


def counted(round: Round) -> dict[str, Tensor]:
    """Map each client to 1 if the rule was given its update, otherwise to 0. Rules need this if their clients keep
    state in step with the server, which a client that was left out must not change.
    """
    device = next((value.device for update in round.updates.values() for value in update.state.values()), None)
    yes, no = (torch.tensor(value, device=device) for value in (1.0, 0.0))
    return {name: yes if name in round.updates else no for name in round.receivers}


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def spread(average: State, round: Round) -> dict[str, dict[str, Tensor]]:
    """Map each client to the averaged tensors that it has."""
    return {
        client: {name: average[name] for name in names if name in average} for client, names in round.receivers.items()
    }


class Mean(Rule):
    """Every client receives the mean of what clients send.

    Args:
        weights: whether every client counts the same (``uniform``) or by its number of training rows (``rows``).
    """

    facts = Facts(by_mean=True)

    def __init__(self, weights: Literal["uniform", "rows"] = "uniform") -> None:
        self.weights: Literal["uniform", "rows"] = weights
        self.needs = frozenset({"rows"} if weights == "rows" else ())

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        return spread(self.average(round.updates), round)

    def average(self, updates: Mapping[str, Update]) -> dict[str, Tensor]:
        """Return the mean of each tensor over the clients that sent it."""
        total = Sum()
        for client, update in sorted(updates.items()):
            total.add(client, update.state, self.weight(update))
        return total.divided()

    def weight(self, update: Update) -> float:
        """Return the weight of a client."""
        return float(update.rows) if self.weights == "rows" else 1.0
