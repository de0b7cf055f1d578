"""Adaptive optimisers at the server: FedAdam, FedYogi, FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konečný,
Kumar and McMahan 2021, "Adaptive Federated Optimization", arXiv:2003.00295, Algorithm 2).
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from fedlit.exchange.rules.server import ServerOptimizer


class Adaptive(ServerOptimizer):
    """Every client receives w ← w + η m / (√v + τ), elementwise, with m ← β₁ m + (1 − β₁) Δ and Δ = w̄ − w; m
    starts at 0 and v at τ². A subclass defines the update of v.

    See :class:`~fedlit.exchange.rules.server.ServerOptimizer` for parts that only some have.

    Args:
        lr: η, above 0: roughly how far an element moves in an exchange.
        beta1: β₁, in [0, 1).
        tau: τ, above 0: the size of Δ below which steps shrink with it.
        weights: whether every client counts the same (``uniform``) or by its number of training rows (``rows``).

    Raises:
        ConfigError: a value is out of range.
    """

    moments = ("first", "second")

    def __init__(self, lr: float, beta1: float, tau: float, weights: Literal["uniform", "rows"]) -> None:
        super().__init__(lr, weights)
        self.beta1 = self.in_range("beta1", beta1, 0, 1)
        self.tau = self.in_range("tau", tau, 0, open_low=True)

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~fedlit.exchange.rules.server.ServerOptimizer`."""
        delta = mean - before
        last, spread = moments["first"], moments["second"]
        first = (1 - self.beta1) * delta + (0 if last is None else self.beta1 * last)
        second = self.second(torch.full_like(delta, self.tau**2) if spread is None else spread, delta.square())
        return before + self.lr * first / (second.sqrt() + self.tau), {"first": first, "second": second}

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
    """v ← v − (1 − β₂) Δ² sign(v − Δ²): v follows Δ² in steps whose size does not depend on v. See :class:`Adaptive`
    and :class:`FedAdam`.

    Example:
        >>> FedYogi(lr=0.1).beta2
        0.99
    """

    def second(self, last: Tensor, square: Tensor) -> Tensor:
        """See :class:`Adaptive`."""
        return last - (1 - self.beta2) * square * torch.sign(last - square)
