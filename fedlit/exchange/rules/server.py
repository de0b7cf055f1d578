"""Optimisers at the server: the last result is moved by a step that depends on the mean of what
clients send.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import SGD

from fedlit.client import FederatedClient
from fedlit.client.hooks import settings_of
from fedlit.errors import ConfigError
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Facts, Need, Round, Update, by_owners, demand
from fedlit.exchange.rules.mean import Mean, spread
from fedlit.sharing import Sharing, State


class ServerOptimizer(Mean):
    """Every client receives w ← w + a step: w is the result of the last exchange, and the step is a
    function of Δ = w̄ − w, the negative pseudo-gradient; w̄ is the mean of what clients send.

    For each tensor this is the mean over the clients that have it, as with
    :class:`~fedlit.exchange.rules.mean.Mean`; a tensor that nobody sent stays unchanged, as do its
    moments. Tensors that are not parameters (normalisation statistics) are averaged: with a step, a
    variance could fall below 0.

    A subclass defines the step, and lists the moments that it keeps for each tensor.

    Args:
        lr: the server's learning rate, above 0.
        weights: whether every client counts the same (``uniform``) or by its number of training
            rows (``rows``).

    Raises:
        ConfigError: a learning rate out of range.
    """

    moments: tuple[str, ...] = ()

    def __init__(self, lr: float, weights: Literal["uniform", "rows"] = "uniform") -> None:
        super().__init__(weights)
        self.lr = self.in_range("lr", lr, low=0, open_low=True)
        self._given: dict[str, Tensor] = {}
        self._moments: dict[str, dict[str, Tensor]] = {moment: {} for moment in self.moments}

    def in_range(
        self, key: str, value: float, low: float, high: float = float("inf"), open_low: bool = False
    ) -> float:
        """Return a setting that lies within [low, high), or (low, high), and refuse any other.

        Raises:
            ConfigError: the setting is out of range.
        """
        expected = (
            f"a number above {low}" if high == float("inf") else f"a number in [{low}, {high:g})"
        )
        demand(
            (low < value if open_low else low <= value) and value < high,
            f"{type(self).__name__}: {key}",
            expected,
            value,
        )
        return value

    def begin(self, round: Round) -> Mapping[str, State]:
        """Remember what clients start from, which is the same for all."""
        for update in round.updates.values():
            self._given |= {
                name: value.clone()
                for name, value in update.state.items()
                if name not in self._given
            }
        return {}

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        moving = set().union(*(update.parameters for update in round.updates.values()))
        average = self.average(round.updates)
        for name, value in average.items():
            before = self._given.get(name)
            if name in moving and before is not None:
                value = self._moved(name, before, value)
            self._given[name] = value
        # clients share what they receive, and what is remembered is nobody's
        return spread({name: self._given[name].clone() for name in average}, round)

    def _moved(self, name: str, before: Tensor, mean: Tensor) -> Tensor:
        wide = torch.promote_types(mean.dtype, torch.float32)
        moments = {moment: self._moments[moment].get(name) for moment in self.moments}
        moved, new_moments = self.step(name, before.to(wide), mean.to(wide), moments)
        for moment, value in new_moments.items():
            self._moments[moment][name] = value
        return moved.to(mean.dtype)

    @abstractmethod
    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the new value of a tensor.

        Args:
            name: the name of the tensor.
            before: w, float32 or better.
            mean: w̄.
            moments: maps each name in :attr:`moments` to its value after the last step; None before
                the first.

        Returns:
            The new w, and the moments.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors that were sent last, and the moments."""
        return {"given": self._given, **self._moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._given = dict(state["given"])
        self._moments = {moment: dict(state[moment]) for moment in self.moments}


class FedAvgM(ServerOptimizer):
    """Momentum at the server: every client receives w ← w + η v, with v ← β v + (w̄ − w): w is the
    result of the last exchange, w̄ the mean of what clients send (Hsu, Qi and Brown 2019,
    "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    arXiv:1909.06335, Sec. 4.3).

    Without momentum it interpolates on the server, w ← (1 − η) w + η w̄; if η = 1 too, the result
    is bit-for-bit that of :class:`~fedlit.exchange.rules.mean.Mean`. See
    :class:`~fedlit.exchange.rules.server.ServerOptimizer` for parts that only some clients have.

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
        """See :class:`~fedlit.exchange.rules.server.ServerOptimizer`."""
        # not before + (mean − before), which rounds
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

    See :class:`~fedlit.exchange.rules.server.ServerOptimizer` for parts that only some have.

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
        """See :class:`~fedlit.exchange.rules.server.ServerOptimizer`."""
        delta = mean - before
        last = moments["first"]
        spread = moments["second"]
        first = (1 - self.beta1) * delta + (0 if last is None else self.beta1 * last)
        second = self.second(
            torch.full_like(delta, self.tau**2) if spread is None else spread, delta.square()
        )
        return before + self.lr * first / (second.sqrt() + self.tau), {
            "first": first,
            "second": second,
        }

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
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho) if rho else float(steps)

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse settings that break the sums, and return a remark if steps are not as long as the
        rule assumes.
        """
        return "; ".join(
            dict.fromkeys(
                filter(None, (self._doubt(client, model.reset) for client in model.clients))
            )
        )

    def _doubt(self, client: FederatedClient, reset: bool) -> str:
        if getattr(client, "mu", 0) and "FedProx" in (
            kind.__name__ for kind in type(client).__mro__
        ):
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
        if (momentum := float(optimizer.defaults["momentum"])) != self.momentum:
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
        # nobody took a step, as where all have learnt enough: then all are as they were, and alike
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
        for owners, names in by_owners(
            {client: update_of.state for client, update_of in updates.items()}
        ).items():
            moving_names = [name for name in names if name in moving]
            factor = (
                self._factor(update, [updates[client] for client in owners]) if moving_names else 1
            )
            for name in moving_names if factor != 1 else ():
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
