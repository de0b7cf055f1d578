"""What attackers send: functions of named tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlit.attacks.attack import AttackKind

__all__ = ["SENDS", "Moment"]

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Moment:
    """What an attacker has before it sends.

    Attributes:
        own: what it would send.
        parameters: those names of it that are parameters.
        had: what it had after the last exchange, or what it first sent; empty where the kind keeps nothing.
        others: what those that do not attack send, where it may look.
        by: how much.
        seed: of what it draws.
    """

    own: State
    parameters: Sequence[str]
    had: State
    others: Sequence[State]
    by: float
    seed: int

    def moved(self, factor: float) -> dict[str, Tensor]:
        """As if it had moved so many times as far."""
        return {name: torch.lerp(self.had[name], self.own[name], factor) for name in self.parameters}

    def noisy(self, names: Sequence[str], before: State) -> dict[str, Tensor]:
        """With Gaussian noise: the same on any device."""
        generator, sent = torch.Generator().manual_seed(self.seed), dict[str, Tensor]()
        for name in names:
            noise = torch.randn(before[name].shape, generator=generator).to(before[name])
            sent[name] = before[name] + self.by * noise
        return sent

    def of_others(self, name: str) -> Tensor | None:
        """What the others send of a tensor, [clients, …]; None where nobody has it."""
        found = [state[name] for state in self.others if name in state]
        return torch.stack(found) if found else None


def _little(moment: Moment) -> dict[str, Tensor]:
    sent = {}
    for name in moment.parameters:
        others = moment.of_others(name)
        if others is not None:
            sent[name] = others.mean(0) - moment.by * others.std(0, correction=0)
    return sent


def _inner(moment: Moment) -> dict[str, Tensor]:
    sent = {}
    for name in moment.parameters:
        others = moment.of_others(name)
        if others is not None:
            sent[name] = torch.lerp(moment.had[name], others.mean(0), -moment.by)
    return sent


def _nan(moment: Moment) -> dict[str, Tensor]:
    return {name: torch.full_like(value, torch.nan) for name, value in moment.own.items()}


def _ride(moment: Moment) -> dict[str, Tensor]:
    parameters = moment.noisy(moment.parameters, moment.had) if moment.by else {}
    return {**{name: moment.had[name] for name in moment.own if name in moment.had}, **parameters}


SENDS: Mapping[AttackKind, Callable[[Moment], dict[str, Tensor]]] = {
    "sign_flip": lambda moment: moment.moved(-moment.by),
    "scaled": lambda moment: moment.moved(moment.by),
    "noise": lambda moment: moment.noisy(moment.parameters, moment.own),
    "alie": _little,
    "ipm": _inner,
    "nan": _nan,
    "replay": lambda moment: {name: moment.had[name] for name in moment.own if name in moment.had},
    "free_rider": _ride,
}
"""Kind → what is sent instead; names that are missing are sent as they are."""
