"""Optimizers at the server: momentum, adaptive steps, and normalised averaging."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.optim import SGD

from fedlit.client import FederatedClient
from fedlit.client.hooks import settings_of
from fedlit.errors import ConfigError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.rule import Facts, Need, Round, Update, by_owners
from fedlit.exchange.rules.server_optimizer import ServerOptimizer
from fedlit.sharing import Sharing, State


class FedAvgM(ServerOptimizer):
    """Momentum at the server: every client receives w ← w + η v, with v ← β v + (w̄ − w): w is the
    result of the last exchange, w̄ the mean of what clients send (Hsu, Qi and Brown 2019,
    "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    arXiv:1909.06335, Sec. 4.3).

    Without momentum it interpolates on the server, w ← (1 − η) w + η w̄; if η = 1 too, the result
    is bit-for-bit that of :class:`~fedlit.exchange.rules.mean.Mean`. See
    :class:`~fedlit.exchange.rules.server_optimizer.ServerOptimizer` for parts that only some clients have.

    NOTE[DIFF]: clients have equal weights, as with every rule here; the paper weights them by rows
    (``weights: rows``).

    Args:
        momentum: β, in [0, 1).
        weights: whether every client counts the same (``uniform``) or by its number of training
            rows (``rows``).
        lr: η, above 0.

    Raises:
        ConfigError: the momentum or the learning rate is out of range.

    Example:
        >>> FedAvgM(momentum=0.6).momentum
        0.6
    """

    moments = ("velocity",)

    def __init__(
        self,
        momentum: float = 0.9,
        weights: Literal["uniform", "rows"] = "uniform",
        lr: float = 1.0,
    ) -> None:
        super().__init__(lr, weights)
        self.momentum = self.in_range("momentum", momentum, 0, 1)

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~fedlit.exchange.rules.server_optimizer.ServerOptimizer`."""
        # With η = 1 the mean itself is taken, because before + (mean − before) rounds.
        moved = mean if self.lr == 1 else before.lerp(mean, self.lr)
        if not self.momentum:
            return moved, {}
        velocity = mean - before
        last = moments["velocity"]
        if last is not None:
            carried = self.momentum * last
            moved = moved + self.lr * carried
            velocity = velocity + carried
        return moved, {"velocity": velocity}


class Adaptive(ServerOptimizer):
    """Every client receives w ← w + η m / (√v + τ), elementwise, with m ← β₁ m + (1 − β₁) Δ and Δ =
    w̄ − w; m starts at 0 and v at τ². A subclass defines the update of v (Reddi, Charles, Zaheer,
    Garrett, Rush, Konečný, Kumar and McMahan 2021, "Adaptive Federated Optimization",
    arXiv:2003.00295, Algorithm 2).

    See :class:`~fedlit.exchange.rules.server_optimizer.ServerOptimizer` for parts that only some have.

    Args:
        lr: η, above 0: roughly how far an element moves in an exchange.
        beta1: β₁, in [0, 1).
        tau: τ, above 0: the size of Δ below which steps shrink with it.
        weights: whether every client counts the same (``uniform``) or by its number of training
            rows (``rows``).

    Raises:
        ConfigError: a value is out of range.
    """

    moments = ("first", "second")

    def __init__(
        self, lr: float, beta1: float, tau: float, weights: Literal["uniform", "rows"]
    ) -> None:
        super().__init__(lr, weights)
        self.beta1 = self.in_range("beta1", beta1, 0, 1)
        self.tau = self.in_range("tau", tau, 0, open_low=True)

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~fedlit.exchange.rules.server_optimizer.ServerOptimizer`."""
        delta = mean - before
        last_first = moments["first"]
        carried: Tensor | float = 0
        if last_first is not None:
            carried = self.beta1 * last_first
        first = (1 - self.beta1) * delta + carried
        last_second = moments["second"]
        if last_second is None:
            last_second = torch.full_like(delta, self.tau**2)
        second = self.second(last_second, delta.square())
        moved = before + self.lr * first / (second.sqrt() + self.tau)
        return moved, {"first": first, "second": second}

    @abstractmethod
    def second(self, last: Tensor, square: Tensor) -> Tensor:
        """Return the new v, given the last one and Δ²."""


class FedAdagrad(Adaptive):
    """v ← v + Δ²: steps shrink over time. See :class:`Adaptive`.

    Example:
        >>> FedAdagrad(lr=0.1).beta1
        0.0
    """

    def __init__(
        self,
        lr: float = 0.01,
        beta1: float = 0.0,
        tau: float = 1e-3,
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        super().__init__(lr, beta1, tau, weights)

    def second(self, last: Tensor, square: Tensor) -> Tensor:
        """See :class:`Adaptive`."""
        return last + square


class FedAdam(Adaptive):
    """v ← β₂ v + (1 − β₂) Δ², without bias correction. See :class:`Adaptive`.

    Args:
        lr: η.
        beta1: β₁.
        beta2: β₂, in [0, 1).
        tau: τ.
        weights: how clients are weighted; see :class:`Adaptive`.

    Example:
        >>> FedAdam(lr=0.1).beta2
        0.99
    """

    def __init__(
        self,
        lr: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.99,
        tau: float = 1e-3,
        weights: Literal["uniform", "rows"] = "uniform",
    ) -> None:
        super().__init__(lr, beta1, tau, weights)
        self.beta2 = self.in_range("beta2", beta2, 0, 1)

    def second(self, last: Tensor, square: Tensor) -> Tensor:
        """See :class:`Adaptive`."""
        return self.beta2 * last + (1 - self.beta2) * square


class FedYogi(FedAdam):
    """v ← v − (1 − β₂) Δ² sign(v − Δ²): v follows Δ² in steps whose size does not depend on v. See
    :class:`Adaptive` and :class:`FedAdam`.

    Example:
        >>> FedYogi(lr=0.1).beta2
        0.99
    """

    def second(self, last: Tensor, square: Tensor) -> Tensor:
        """See :class:`Adaptive`."""
        return last - (1 - self.beta2) * square * torch.sign(last - square)


class FedNova(ServerOptimizer):
    """Every client receives w + τ̄ Σ p_k (w_k − w) / ‖a_k‖₁, with τ̄ = Σ p_k ‖a_k‖₁ (Wang, Liu,
    Liang, Joshi and Poor 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous
    Federated Optimization", arXiv:2007.07481).

    Here w is the result of the last exchange, and a_k says how often each of the client's gradients
    is in its update. So clients that take more steps do not count more, and if all take equally
    many, the result is bit-for-bit that of :class:`~fedlit.exchange.rules.mean.Mean`.

    For plain SGD ‖a_k‖₁ = τ_k, the client's steps. With momentum ρ it is [τ_k − ρ (1 − ρ^τ_k) / (1
    − ρ)] / (1 − ρ), if momentum starts at 0 in each round (``exchange.optimizer_state: reset``).

    For each tensor, Σ is over the clients that have it, and p sums to 1 over them. A client that
    took no step has no direction, and does not count. Tensors that are not parameters
    (normalisation statistics) are averaged.

    Args:
        momentum: ρ of the clients' SGD, in [0, 1); 0 for plain SGD.
        weights: p: the same for all clients (``uniform``) or by training rows (``rows``, as in the
            paper).

    Raises:
        ConfigError: the momentum is out of range.

    Example:
        >>> [round(FedNova(momentum=0.5).length(steps), 3) for steps in (1, 2, 10)]
        [1.0, 2.5, 18.002]
    """

    # NOTE[DIFF]: clients count alike unless weights say rows, as with every rule here; in the paper
    # by rows.
    facts = Facts(whole_rate=True)

    def __init__(
        self, momentum: float = 0.0, weights: Literal["uniform", "rows"] = "uniform"
    ) -> None:
        super().__init__(1.0, weights)
        self.momentum = self.in_range("momentum", momentum, 0, 1)
        self.needs |= frozenset[Need]({"steps", "states"})

    def length(self, steps: int) -> float:
        """Return ‖a‖₁ for a number of steps."""
        rho = self.momentum
        if not rho:
            return float(steps)
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse settings that break the sums, and return a remark if steps are not as long as the
        rule assumes.
        """
        doubts = [self._doubt(client, model.reset) for client in model.clients]
        return "; ".join(dict.fromkeys(filter(None, doubts)))

    def _doubt(self, client: FederatedClient, reset: bool) -> str:
        kinds = [kind.__name__ for kind in type(client).__mro__]
        if getattr(client, "mu", 0) and "FedProx" in kinds:
            raise ConfigError(
                "model.client: expected a client without a proximal term under FedNova, whose "
                f"‖a_k‖₁ is that of SGD, found {type(client).__name__}; set model.client: "
                "fedlit.FederatedClient, or another rule"
            )
        with settings_of(client.spec.name, "model.optimizer"):
            optimizer = client.optimizer_factory([torch.nn.Parameter(torch.zeros(1))])
        if not isinstance(optimizer, SGD):
            return (
                f"counts steps of SGD; how long those of {type(optimizer).__name__} are, it "
                "does not know"
            )
        if optimizer.defaults["nesterov"]:
            raise ConfigError(
                "model.optimizer: expected SGD without Nesterov under FedNova, whose ‖a_k‖₁ is "
                "that of plain momentum, found nesterov=True; set nesterov: false"
            )
        momentum = float(optimizer.defaults["momentum"])
        if momentum != self.momentum:
            return (
                f"believes in momentum {self.momentum:g}, clients have {momentum:g}: set both to "
                "the same value"
            )
        if momentum and not reset:
            return "takes momentum to begin at 0 in each round: set exchange.optimizer_state: reset"
        return ""

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        steps = [update.steps for update in round.updates.values()] or [0]
        self.scalars = {"fewest_steps": float(min(steps)), "most_steps": float(max(steps))}
        # If no client took a step, for instance because all have learnt enough, all are as they
        # were, and all count.
        updates = {
            client: update
            for client, update in round.updates.items()
            if update.steps or not any(steps)
        }
        return super().__call__(replace(round, updates=updates))

    def average(self, updates: Mapping[str, Update]) -> dict[str, Tensor]:
        """Return the mean, as if all clients had taken τ̄ steps."""
        return super().average(
            {client: self._normalised(update, updates) for client, update in updates.items()}
        )

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean as the new value of a tensor."""
        return mean, {}

    def _normalised(self, update: Update, updates: Mapping[str, Update]) -> Update:
        """Return the update as if the client had taken τ̄ steps in its mean direction."""
        state = dict(update.state)
        moving = self._given.keys() & set(update.parameters)
        sent = {client: update_of_client.state for client, update_of_client in updates.items()}
        for owners, names in by_owners(sent).items():
            moving_names = [name for name in names if name in moving]
            if not moving_names:
                continue
            factor = self._factor(update, [updates[client] for client in owners])
            if factor == 1:
                continue
            for name in moving_names:
                before = self._given[name]
                state[name] = before.lerp(update.state[name].to(before.dtype), factor)
        return replace(update, state=state)

    def _factor(self, update: Update, others: list[Update]) -> float:
        """Return τ̄ / ‖a_k‖₁. Lengths are relative to the longest, so that equal clients have
        factors of exactly 1.
        """
        longest = max(self.length(sender.steps) for sender in others)
        if not longest:
            return 1.0
        weights = [self.weight(sender) for sender in others]
        relative = [self.length(sender.steps) / longest for sender in others]
        mean = sum(p * one for p, one in zip(weights, relative, strict=True)) / sum(weights)
        return mean / (self.length(update.steps) / longest)
