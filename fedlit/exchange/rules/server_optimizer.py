"""The base class of optimizers at the server: the last result is moved by a step that depends on the
mean of what clients send.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from fedlit.exchange.rule import Round, demand
from fedlit.exchange.rules.mean import Mean, spread
from fedlit.sharing import State


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
        in_range = low <= value < high
        if open_low and value == low:
            in_range = False
        expected = f"a number in [{low}, {high:g})"
        if high == float("inf"):
            expected = f"a number above {low}"
        demand(in_range, f"{type(self).__name__}: {key}", expected, value)
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
        # The rule keeps its own copy, because clients share and change what they receive.
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
