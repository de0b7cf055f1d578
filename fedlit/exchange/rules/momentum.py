"""Momentum at the server, FedAvgM (Hsu, Qi and Brown 2019, "Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification", arXiv:1909.06335, Sec. 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Need, Round, Rule
from fedlit.exchange.rules.mean import mean
from fedlit.sharing import State

__all__ = ["FedAvgM"]


class FedAvgM(Rule):
    """Every client receives w ← w + v, with v ← β v + (w̄ − w): w is what the last exchange gave, w̄ the mean of what
    clients send.

    Of each tensor it is the mean over those that have it, as with :class:`~fedlit.exchange.rules.mean.Mean`. A tensor
    that nobody sent keeps its velocity. What is no parameter (statistics of normalisations, an optimizer's moments) is
    averaged.

    Args:
        momentum: β, in [0, 1); with 0 the rule gives what the mean does, but for rounding.
        weights: every client counts the same (``uniform``) or by its number of training rows (``rows``).

    Raises:
        ConfigError: a momentum out of range.

    Example:
        >>> FedAvgM(momentum=0.6).momentum
        0.6
    """

    leaves_start = True
    by_mean = True

    def __init__(self, momentum: float = 0.9, weights: Literal["uniform", "rows"] = "uniform") -> None:
        if not 0 <= momentum < 1:
            raise ConfigError(f"FedAvgM: momentum: expected a number in [0, 1), found {momentum}")
        self.momentum = momentum
        self.weights: Literal["uniform", "rows"] = weights
        self._given: dict[str, Tensor] = {}
        self._velocity: dict[str, Tensor] = {}

    @property
    def needs(self) -> frozenset[Need]:
        """Rows, where they are weights."""
        return frozenset({"rows"} if self.weights == "rows" else ())

    def begin(self, round: Round) -> Mapping[str, State]:
        """Remember what clients start from, which is the same at all."""
        for update in round.updates.values():
            self._given |= {name: value.clone() for name, value in update.state.items() if name not in self._given}
        return {}

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        rows = {client: float(update.rows) for client, update in round.updates.items()}
        states = {client: update.state for client, update in round.updates.items()}
        # statistics and optimizers' moments are averaged: carried on, a variance could fall below 0
        moving = {name for update in round.updates.values() for name in update.parameters}
        for name, value in mean(states, rows if self.weights == "rows" else None).items():
            if name not in moving:
                self._given[name] = value
                continue
            before = self._given.get(name, value)
            velocity = value - before
            if name in self._velocity:
                velocity = velocity.add(self._velocity[name], alpha=self.momentum)
            self._velocity[name], self._given[name] = velocity, before + velocity
        given = {name: value.clone() for name, value in self._given.items()}  # clients share what they receive
        return {
            client: {name: given[name] for name in names if name in given} for client, names in round.receivers.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """What was given last, and the velocity."""
        return {"given": self._given, "velocity": self._velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._given, self._velocity = dict(state["given"]), dict(state["velocity"])
