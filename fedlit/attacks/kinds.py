"""The kinds of attack: for each, what such a client sends, or that it changes its training rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedlit.sharing import State

AttackKind = Literal[
    "sign_flip",
    "scaled",
    "noise",
    "alie",
    "ipm",
    "nan",
    "replay",
    "free_rider",
    "label_flip",
    "backdoor",
]


@dataclass(frozen=True)
class Moment:
    """What an attacker knows when it sends.

    Attributes:
        honest: what the client would send without the attack.
        parameters: the names in ``honest`` that are parameters.
        kept: what it had after the last exchange, or what it sent first; empty if the kind keeps
            nothing.
        others: what the clients that do not attack send; empty if the kind does not look at it.
        by: the strength of the attack.
        seed: the seed of the random numbers that it draws.
    """

    honest: State
    parameters: Sequence[str]
    kept: State
    others: Sequence[State]
    by: float
    seed: int

    def moved(self, factor: float) -> dict[str, Tensor]:
        """Return the client's parameters after a step that is ``factor`` times as long."""
        return {
            name: torch.lerp(self.kept[name], self.honest[name], factor) for name in self.parameters
        }

    def noisy(self, state: State) -> dict[str, Tensor]:
        """Return the client's parameters with Gaussian noise, which is the same on any device."""
        generator = torch.Generator().manual_seed(self.seed)
        noise = {
            name: torch.randn(state[name].shape, generator=generator) for name in self.parameters
        }
        return {
            name: state[name] + self.by * value.to(state[name]) for name, value in noise.items()
        }

    def replayed(self) -> dict[str, Tensor]:
        """Return the state that the attacker kept, buffers included."""
        return {name: self.kept[name] for name in self.honest if name in self.kept}

    def of_others(self) -> dict[str, Tensor]:
        """Return the tensors of the other clients by name, (clients, …) each."""
        values = {
            name: [state[name] for state in self.others if name in state]
            for name in self.parameters
        }
        return {name: torch.stack(value) for name, value in values.items() if value}


def _alie(moment: Moment) -> dict[str, Tensor]:
    return {
        name: own.mean(0) - moment.by * own.std(0, correction=0)
        for name, own in moment.of_others().items()
    }


def _ipm(moment: Moment) -> dict[str, Tensor]:
    return {
        name: torch.lerp(moment.kept[name], own.mean(0), -moment.by)
        for name, own in moment.of_others().items()
    }


def _nan(moment: Moment) -> dict[str, Tensor]:
    return {name: torch.full_like(value, torch.nan) for name, value in moment.honest.items()}


def _free_rider(moment: Moment) -> dict[str, Tensor]:
    return moment.replayed() | (moment.noisy(moment.kept) if moment.by else {})


@dataclass(frozen=True)
class Kind:
    """The properties of a kind of attack.

    Attributes:
        description: describes what such a client does; ``{by}`` is the strength.
        by: the default strength; None if the kind has none.
        send: returns the tensors that are sent in place of the honest ones; None for a kind that
            changes training rows.
        keeps: the state that such a client keeps from round to round: what it had after the last
            exchange (``received``), or what it sent first (``sent``).
        colludes: whether it looks at what other clients send in the same round.
    """

    description: str
    by: float | None = None
    send: Callable[[Moment], dict[str, Tensor]] | None = None
    keeps: Literal["", "received", "sent"] = ""
    colludes: bool = False


KINDS: Mapping[AttackKind, Kind] = {
    "sign_flip": Kind(
        "moves {by:g} times as far, the other way",
        1.0,
        lambda moment: moment.moved(-moment.by),
        "received",
    ),
    "scaled": Kind(
        "moves {by:g} times as far", 10.0, lambda moment: moment.moved(moment.by), "received"
    ),
    "noise": Kind(
        "adds Gaussian noise of standard deviation {by:g} to its parameters",
        1.0,
        lambda moment: moment.noisy(moment.honest),
    ),
    "alie": Kind(
        "sends the others' mean less {by:g} of their standard deviations", 1.5, _alie, colludes=True
    ),
    "ipm": Kind(
        "moves {by:g} times as far as the others' mean, the other way",
        0.5,
        _ipm,
        "received",
        colludes=True,
    ),
    "nan": Kind("sends NaN", None, _nan),
    "replay": Kind("sends what it sent first, in every round", None, Moment.replayed, "sent"),
    "free_rider": Kind(
        "sends back what it received, with Gaussian noise of standard deviation {by:g}",
        0.0,
        _free_rider,
        "received",
    ),
    "label_flip": Kind(
        "trains on rows of which {percent:g} % have another label: the first for the last, and so "
        "on",
        1.0,
    ),
    "backdoor": Kind(
        "trains on rows of which {percent:g} % have {feature} = {value:g} and the label {label}",
        0.5,
    ),
}
"""The properties of each kind of attack."""
