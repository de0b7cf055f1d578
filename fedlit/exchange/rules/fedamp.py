"""FedAMP (Huang, Chu, Zhou, Wang, Liu, Pei and Zhang 2021, "Personalized Cross-Silo Federated
Learning on Non-IID Data", AAAI, arXiv:2007.03797).
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fedlit.exchange.rule import Round, Rule, Update, demand
from fedlit.precision import in_double
from fedlit.sharing import State


class FedAMP(Rule):
    """Every client receives its own model, moved towards those of other clients, and more so the
    nearer they are: u_k = w_k + Σ_j ξ_kj (w_j − w_k) with ξ_kj = α A'(‖w_k − w_j‖²) and A(x) = 1 −
    e^(−x/σ). A client that took no part receives nothing.

    Distances are over the parameters that both clients federate. Clients minimise f_k(w) + λ / 2α ·
    ‖w − u_k‖², which is ``fedlit.FedProx`` with μ = λ / α.

    NOTE[DIFF]: if the weights ξ_kj of all others exceed 1 together, they are scaled to sum to 1,
    because the client's own weight would be negative; the paper asks for a small α. Clients start
    from u_k after an exchange, where the paper minimises exactly from any start.

    Args:
        alpha: α, the step of the server, above 0.
        sigma: σ, the squared distance at which the attention to a client has fallen to 1/e, above
            0.

    Raises:
        ConfigError: a value is not above 0.

    Example:
        >>> near, far = (Update({"w": torch.tensor([value])}, parameters=("w",)) for value in (0.0, 1.0))
        >>> sent = {"a": near, "b": far}
        >>> FedAMP(alpha=0.5, sigma=1.0)(Round(0, 0, sent, {"a": ("w",), "b": ("w",)}))["a"]
        {'w': tensor([0.1839])}
    """

    needs = frozenset({"states"})

    def __init__(self, alpha: float = 1.0, sigma: float = 10.0) -> None:
        demand(alpha > 0, "FedAMP: alpha", "a number above 0", alpha)
        demand(sigma > 0, "FedAMP: sigma", "a number above 0", sigma)
        self.alpha = alpha
        self.sigma = sigma

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        weights = self.attention(round.updates)
        received: dict[str, State] = {client: {} for client in round.receivers}
        for client, update in round.updates.items():
            received[client] = {
                name: _moved(name, value, round.updates, weights[client])
                for name, value in update.state.items()
            }
        return received

    def attention(self, updates: Mapping[str, Update]) -> dict[str, dict[str, float]]:
        """Map each client to ξ_kj of each other client."""
        names = sorted(updates)
        weights: dict[str, dict[str, float]] = {name: {} for name in names}
        for position, first in enumerate(names):
            for second in names[position + 1 :]:
                distance = squared_distance(updates[first], updates[second])
                weight = self.alpha / self.sigma * math.exp(-distance / self.sigma)
                weights[first][second] = weight
                weights[second][first] = weight
        for row in weights.values():
            total = max(1.0, sum(row.values()))
            for name in row:
                row[name] /= total
        return weights


def squared_distance(first: Update, second: Update) -> float:
    """Return ‖w_1 − w_2‖² over the parameters that both sent.

    Example:
        >>> one = Update({"v": torch.ones(2), "w": torch.ones(3)}, parameters=("v", "w"))
        >>> squared_distance(one, Update({"w": torch.zeros(3)}, parameters=("w",)))
        3.0
    """
    both = sorted(set(first.parameters) & set(second.parameters))
    squares = []
    for name in both:
        difference = in_double(first.state[name]) - in_double(second.state[name])
        squares.append(difference.square().sum())
    return float(torch.stack(squares).sum()) if squares else 0.0


def _moved(
    name: str, value: Tensor, updates: Mapping[str, Update], weights: Mapping[str, float]
) -> Tensor:
    """Return one tensor, moved towards those of the other clients that have it, in the order of
    their names.
    """
    moved = value.clone()
    for peer, weight in weights.items():
        if name in updates[peer].state:
            moved += weight * (updates[peer].state[name] - value)
    return moved
