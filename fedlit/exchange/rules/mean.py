"""The mean of the clients' states (McMahan et al. 2017, "Communication-Efficient Learning of Deep
Networks from Decentralized Data").
"""

from collections.abc import Mapping
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.rule import Facts, Round, Rule, Update, by_owners
from fedlit.sharing import State


@torch.no_grad()
def mean(
    states: Mapping[str, State], weights: Mapping[str, float] | None = None
) -> dict[str, Tensor]:
    """Return Σ w_k ω_k / Σ w_k for each name, over the clients that have it.

    Sums in the order of the clients' names, whatever the order of the mapping, in float32 or
    better, on the tensors' device; the result has the tensors' dtype.

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
    weights = weights or dict.fromkeys(states, 1.0)
    total = dict[str, Tensor]()
    forms = dict[str, torch.dtype]()
    for client in sorted(states):
        state = states[client]
        weight = float(weights[client])
        if weight <= 0:
            raise ValueError(f"expected positive weights, found {weight} of {client!r}")
        terms = {
            name: value.to(torch.promote_types(value.dtype, torch.float32))
            for name, value in state.items()
        }
        first = [name for name in state if name not in total]
        known_names = [name for name in state if name in total]
        if known_names:
            torch._foreach_add_(
                [total[name] for name in known_names],
                [terms[name] for name in known_names],
                alpha=weight,
            )
        if first:
            total |= zip(
                first, torch._foreach_mul([terms[name] for name in first], weight), strict=True
            )
            forms |= {name: state[name].dtype for name in first}
    for owners, names in by_owners(states).items():
        torch._foreach_div_(
            [total[name] for name in names], sum(float(weights[client]) for client in owners)
        )
    return {name: value.to(forms[name]) for name, value in total.items()}


def counted(round: Round) -> dict[str, Tensor]:
    """Map each client to 1 if the rule was given its update, otherwise to 0. Rules need this if
    their clients keep state in step with the server, which a client that was left out must not
    change.
    """
    sent = chain.from_iterable(update.state.values() for update in round.updates.values())
    device = next((value.device for value in sent), None)
    yes = torch.tensor(1.0, device=device)
    no = torch.tensor(0.0, device=device)
    return {name: yes if name in round.updates else no for name in round.receivers}


def spread(average: State, round: Round) -> dict[str, dict[str, Tensor]]:
    """Map each client to the averaged tensors that it has."""
    received = {}
    for client, names in round.receivers.items():
        received[client] = {name: average[name] for name in names if name in average}
    return received


class Mean(Rule):
    """Every client receives the mean of what clients send.

    Args:
        weights: whether every client counts the same (``uniform``) or by its number of training
            rows (``rows``).
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
        states = {client: update.state for client, update in updates.items()}
        return mean(states, {client: self.weight(update) for client, update in updates.items()})

    def weight(self, update: Update) -> float:
        """Return the weight of a client."""
        return float(update.rows) if self.weights == "rows" else 1.0
