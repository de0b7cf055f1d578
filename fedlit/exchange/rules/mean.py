"""The mean of the clients' states (McMahan et al. 2017, "Communication-Efficient Learning of Deep
Networks from Decentralized Data").
"""

from collections.abc import Mapping
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.columns import Columns, Updates
from fedlit.exchange.rule import Facts, Round, Rule, Update
from fedlit.sharing import State
from fedlit.stacks import add_rows


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
    return mean_of(Columns(states), weights)


@torch.no_grad()
def mean_of(columns: Columns, weights: Mapping[str, float] | None = None) -> dict[str, Tensor]:
    """Return the :func:`mean` of clients' tensors that have been put into columns."""
    numbers = [1.0] * len(columns.clients)
    if weights is not None:
        numbers = [float(weights[client]) for client in columns.clients]
    for client, number in zip(columns.clients, numbers, strict=True):
        if number <= 0:
            raise ValueError(f"expected positive weights, found {number} of {client!r}")
    average = {}
    for name, parts in columns.by_name.items():
        first = parts[0]
        dtype = first.tensors[0].dtype
        # The sum begins with the first client: 0 + −0 would be another 0.
        total = _wide(first.values[0]) * numbers[first.rows[0]]
        of_rows = list[float]()
        for column in parts:
            of_rows += [numbers[row] for row in column.rows]
        rest = of_rows[1:]
        for column in parts:
            values = _wide(column.values)
            if column is first:
                values = values[1:]
            add_rows(total, values, rest[: len(values)])
            rest = rest[len(values) :]
        average[name] = total.div_(sum(of_rows)).to(dtype)
    return average


def _wide(values: Tensor) -> Tensor:
    """Return values as float32 or better."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def counted(round: Round) -> dict[str, Tensor]:
    """Map each client to 1 if the rule was given its update, otherwise to 0. Rules need this if
    their clients keep state in step with the server, which a client that was left out must not
    change.
    """
    sent = chain.from_iterable(update.state.values() for update in round.updates.values())
    device = next((value.device for value in sent), None)
    # Filled on the device: copying a number to a GPU waits for it.
    yes = torch.ones((), device=device)
    no = torch.zeros((), device=device)
    return {name: yes if name in round.updates else no for name in round.receivers}


def spread(average: State, round: Round) -> dict[str, dict[str, Tensor]]:
    """Map each client to the averaged tensors that it has."""
    received = {}
    states: dict[tuple[str, ...], dict[str, Tensor]] = {}
    for client, names in round.receivers.items():
        names = tuple(names)
        if names not in states:
            states[names] = {name: average[name] for name in names if name in average}
        received[client] = dict(states[names])
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
        weights = {client: self.weight(update) for client, update in updates.items()}
        return mean_of(Updates.of(updates).columns, weights)

    def weight(self, update: Update) -> float:
        """Return the weight of a client."""
        return float(update.rows) if self.weights == "rows" else 1.0
