"""FedNova (Wang, Liu, Liang, Joshi and Poor 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization", arXiv:2007.07481).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.optim import SGD

from fedlit.client import FederatedClient
from fedlit.client.hooks import settings_of
from fedlit.errors import ConfigError
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Facts, Need, Round, Update, by_owners
from fedlit.exchange.rules.server import ServerOptimizer
from fedlit.sharing import Sharing, State


class FedNova(ServerOptimizer):
    """Every client receives w + τ̄ Σ p_k (w_k − w) / ‖a_k‖₁, with τ̄ = Σ p_k ‖a_k‖₁: w is the result of the last
    exchange, and a_k says how often each of the client's gradients is in its update. So clients that take more steps do
    not count more, and if all take equally many, the result is bit-for-bit that of
    :class:`~fedlit.exchange.rules.mean.Mean`.

    For plain SGD ‖a_k‖₁ = τ_k, the client's steps. With momentum ρ it is [τ_k − ρ (1 − ρ^τ_k) / (1 − ρ)] / (1 − ρ), if
    momentum starts at 0 in each round (``exchange.optimizer_state: reset``).

    For each tensor, Σ is over the clients that have it, and p sums to 1 over them. A client that took no step has no
    direction, and does not count. Tensors that are not parameters (normalisation statistics)
    are averaged.

    Args:
        momentum: ρ of the clients' SGD, in [0, 1); 0 for plain SGD.
        weights: p: the same for all clients (``uniform``) or by training rows (``rows``, as in the paper).

    Raises:
        ConfigError: the momentum is out of range.

    Example:
        >>> [round(FedNova(momentum=0.5).length(steps), 3) for steps in (1, 2, 10)]
        [1.0, 2.5, 18.002]
    """

    # NOTE[DIFF]: clients count alike unless weights say rows, as with every rule here; in the paper by rows.
    facts = Facts(whole_rate=True)

    def __init__(self, momentum: float = 0.0, weights: Literal["uniform", "rows"] = "uniform") -> None:
        super().__init__(1.0, weights)
        self.momentum = self.in_range("momentum", momentum, 0, 1)
        self.needs |= frozenset[Need]({"steps", "states"})

    def length(self, steps: int) -> float:
        """Return ‖a‖₁ for a number of steps."""
        rho = self.momentum
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho) if rho else float(steps)

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse settings that break the sums, and return a remark if steps are not as long as the rule assumes."""
        return "; ".join(dict.fromkeys(filter(None, (self._doubt(client, model.reset) for client in model.clients))))

    def _doubt(self, client: FederatedClient, reset: bool) -> str:
        if getattr(client, "mu", 0) and "FedProx" in (kind.__name__ for kind in type(client).__mro__):
            raise ConfigError(
                f"model.client: expected a client without a proximal term under FedNova, whose ‖a_k‖₁ is that of SGD, "
                f"found {type(client).__name__}; set model.client: fedlit.FederatedClient, or another rule"
            )
        with settings_of(client.spec.name, "model.optimizer"):
            optimizer = client.optimizer_factory([torch.nn.Parameter(torch.zeros(1))])
        if not isinstance(optimizer, SGD):
            return f"counts steps of SGD; how long those of {type(optimizer).__name__} are, it does not know"
        if optimizer.defaults["nesterov"]:
            raise ConfigError(
                "model.optimizer: expected SGD without Nesterov under FedNova, whose ‖a_k‖₁ is that of plain momentum, "
                "found nesterov=True; set nesterov: false"
            )
        if (found := float(optimizer.defaults["momentum"])) != self.momentum:
            return f"believes in momentum {self.momentum:g}, clients have {found:g}: set both alike"
        if found and not reset:
            return "takes momentum to begin at 0 in each round: set exchange.optimizer_state: reset"
        return ""

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        steps = [update.steps for update in round.updates.values()] or [0]
        self.scalars = {"fewest_steps": float(min(steps)), "most_steps": float(max(steps))}
        # nobody took a step, as where all have learnt enough: then all are as they were, and alike
        updates = {client: update for client, update in round.updates.items() if update.steps or not any(steps)}
        return super().__call__(replace(round, updates=updates))

    def average(self, updates: Mapping[str, Update]) -> dict[str, Tensor]:
        """Return the mean, as if all clients had taken τ̄ steps."""
        return super().average({client: self._normalised(update, updates) for client, update in updates.items()})

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean as the new value of a tensor."""
        return mean, {}

    def _normalised(self, update: Update, updates: Mapping[str, Update]) -> Update:
        """Return the update as if the client had taken τ̄ steps in its mean direction."""
        state, moving = dict(update.state), self._given.keys() & set(update.parameters)
        for owners, names in by_owners({client: other.state for client, other in updates.items()}).items():
            mine = [name for name in names if name in moving]
            factor = self._factor(update, [updates[client] for client in owners]) if mine else 1
            for name in mine if factor != 1 else ():
                before = self._given[name]
                state[name] = before.lerp(update.state[name].to(before.dtype), factor)
        return replace(update, state=state)

    def _factor(self, update: Update, others: list[Update]) -> float:
        """Return τ̄ / ‖a_k‖₁. Lengths are relative to the longest, so that equal clients have factors of exactly 1."""
        longest = max(self.length(other.steps) for other in others)
        if not longest:
            return 1.0
        weights = [self.weight(other) for other in others]
        relative = [self.length(other.steps) / longest for other in others]
        mean = sum(p * one for p, one in zip(weights, relative, strict=True)) / sum(weights)
        return mean / (self.length(update.steps) / longest)
