"""The mean of the clients' states (McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from
Decentralized Data").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.rule import Need, Round, Rule
from fedlit.sharing import State

__all__ = ["Mean", "mean"]


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
    if weights is not None and min(weights.values(), default=1) <= 0:
        raise ValueError(f"expected positive weights, found {dict(weights)}")
    owners: dict[str, tuple[str, ...]] = {}
    for client in sorted(states):
        for name in states[client]:
            owners[name] = (*owners.get(name, ()), client)
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, clients in owners.items():
        groups.setdefault(clients, []).append(name)

    result: dict[str, Tensor] = {}
    for clients, names in groups.items():
        first, *others = clients
        weight = (
            dict.fromkeys(clients, 1.0) if weights is None else {client: float(weights[client]) for client in clients}
        )
        total = torch._foreach_mul(_terms(states, first, names, finite), weight[first])
        for client in others:
            torch._foreach_add_(total, _terms(states, client, names, finite), alpha=weight[client])
        if finite is None:
            torch._foreach_div_(total, sum(weight.values()))
        else:
            torch._foreach_div_(total, torch.stack([finite[client] * weight[client] for client in clients]).sum())
        result |= {name: value.to(states[first][name].dtype) for name, value in zip(names, total, strict=True)}
    return result


def _terms(
    states: Mapping[str, State], client: str, names: list[str], finite: Mapping[str, Tensor] | None
) -> list[Tensor]:
    own = [_at_least_single(states[client][name]) for name in names]
    # not a product: NaN times 0 is NaN
    return own if finite is None else [torch.where(finite[client], value, 0.0) for value in own]


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class Mean(Rule):
    """Every client receives the mean.

    Args:
        weights: every client counts the same (``uniform``) or by its number of training rows (``rows``).
    """

    takes_masks = True
    streams = True
    by_mean = True

    def __init__(self, weights: Literal["uniform", "rows"] = "uniform") -> None:
        self.weights: Literal["uniform", "rows"] = weights

    @property
    def needs(self) -> frozenset[Need]:
        """Rows, where they are weights."""
        return frozenset({"rows"} if self.weights == "rows" else ())

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        updates = round.updates
        rows = {client: float(update.rows) for client, update in updates.items()}
        finite = {client: update.finite for client, update in updates.items() if update.finite is not None}
        states = {client: update.state for client, update in updates.items()}
        average = mean(states, rows if self.weights == "rows" else None, finite or None)
        return {
            client: {name: average[name] for name in names if name in average}
            for client, names in round.receivers.items()
        }
