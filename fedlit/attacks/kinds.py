"""The kinds of attack: for each, the tensors that such a client sends, or that it changes its
training rows.
"""

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
    """The knowledge of an attacker when it sends.

    Attributes:
        honest: the state that the client would send without the attack.
        parameters: the names in ``honest`` that are parameters.
        earlier: the client's state after the last exchange, or the first state that it sent; empty
            if the kind keeps none.
        bystanders: the states that clients send that do not attack; empty if the kind ignores them.
        by: the strength of the attack.
        seed: the seed of the random numbers that it draws.
    """

    honest: State
    parameters: Sequence[str]
    earlier: State
    bystanders: Sequence[State]
    by: float
    seed: int

    def moved(self, factor: float) -> dict[str, Tensor]:
        """Return the client's parameters after a step that is ``factor`` times as long."""
        return {
            name: torch.lerp(self.earlier[name], self.honest[name], factor)
            for name in self.parameters
        }

    def noisy(self, state: State) -> dict[str, Tensor]:
        """Return the parameters of a state with Gaussian noise, which is the same on any device."""
        generator = torch.Generator().manual_seed(self.seed)
        noisy = {}
        for name in self.parameters:
            noise = torch.randn(state[name].shape, generator=generator)
            noisy[name] = state[name] + self.by * noise.to(state[name])
        return noisy

    def replayed(self) -> dict[str, Tensor]:
        """Return the state that the attacker kept, buffers included."""
        return {name: self.earlier[name] for name in self.honest if name in self.earlier}

    def of_bystanders(self) -> dict[str, Tensor]:
        """Return the parameters of clients that do not attack by name, (clients, …) each."""
        stacks = {}
        for name in self.parameters:
            tensors = [state[name] for state in self.bystanders if name in state]
            if tensors:
                stacks[name] = torch.stack(tensors)
        return stacks


def _alie(moment: Moment) -> dict[str, Tensor]:
    return {
        name: stack.mean(0) - moment.by * stack.std(0, correction=0)
        for name, stack in moment.of_bystanders().items()
    }


def _ipm(moment: Moment) -> dict[str, Tensor]:
    return {
        name: torch.lerp(moment.earlier[name], stack.mean(0), -moment.by)
        for name, stack in moment.of_bystanders().items()
    }


def _nan(moment: Moment) -> dict[str, Tensor]:
    return {name: torch.full_like(value, torch.nan) for name, value in moment.honest.items()}


def _free_rider(moment: Moment) -> dict[str, Tensor]:
    sent = moment.replayed()
    if moment.by:
        sent |= moment.noisy(moment.earlier)
    return sent


@dataclass(frozen=True)
class Kind:
    """The properties of a kind of attack.

    Attributes:
        description: a description of the attack; ``{by}`` is the strength.
        by: the default strength; None if the kind has none.
        send: returns the tensors that are sent in place of the honest ones; None for a kind that
            changes training rows.
        keeps: the state that such a client keeps from round to round: its state after the last
            exchange (``received``), or the first state that it sent (``sent``).
        colludes: whether it reads the updates of other clients in the same round.
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
