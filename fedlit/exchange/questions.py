"""The questions that a rule may ask clients, and the blueprint of their networks, which it knows without asking."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedlit.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.errors import RunError, told_as
from fedlit.exchange.function import FederatedFunction, entering, function_of
from fedlit.sharing import State, live_of, named_tensors

ROWS = 4096
"""Rows that are evaluated at once."""


def bytes_of(state: State) -> int:
    """Return the bytes of a state in a message.

    Example:
        >>> bytes_of({"w": torch.zeros(2, 3)})
        24
    """
    return sum(value.numel() * value.element_size() for value in state.values())


@dataclass(frozen=True)
class Losses:
    """Asks for the mean loss over the client's training rows, (len(states),) float32, with the federated tensors of
    each state in place of the client's.
    """

    states: Sequence[State]


@dataclass(frozen=True)
class InputRange:
    """Asks for the least and largest values of the federated part's inputs over training rows: (2, *shape) float32."""


@dataclass(frozen=True)
class Own:
    """A question for clients of one class, answered by the named tensors of ``client.answer(topic, tensors, rows)``.

    Attributes:
        topic: what the question is about.
        tensors: the tensors that come with it, by name.
    """

    topic: str
    tensors: State = field(default_factory=dict)


Question = Losses | InputRange | Own
QUESTIONS: dict[str, type[Any]] = {"losses": Losses, "input_range": InputRange, "own": Own}
"""Maps the name of each question in messages to its class."""


def within(question: Question, values: Mapping[str, Mapping[str, float]]) -> bool:
    """Return whether a question has the values that its rule declares (see ``Facts.questions``)."""
    wanted = values.get(question.topic, {}) if isinstance(question, Own) else {}
    tensors = question.tensors if isinstance(question, Own) else {}
    return all(name in tensors and float(tensors[name]) == float(value) for name, value in wanted.items())


@dataclass
class Blueprint:
    """The structure of clients' networks, which is known without asking them. It holds nothing that was learnt.

    Attributes:
        build: makes an untrained client, with initial values of the run's seed (None) or of another one.
        names: the names of its federated tensors.
        parameters: the names of the federated tensors that are parameters.
        device: the device on which rules compute.
        clients: the clients of this process, as their configuration makes them; only known to ``Rule.check``.
        reset: whether each round begins with an empty optimizer state; only known to ``Rule.check``.
    """

    build: Callable[[int | None], FederatedClient]
    names: Sequence[str]
    parameters: Sequence[str]
    device: torch.device
    clients: Sequence[FederatedClient] = ()
    reset: bool = False

    def part(self, names: Collection[str]) -> Blueprint:
        """Return a blueprint that has only some of the federated tensors."""
        kept, parameters = ([name for name in mine if name in names] for mine in (self.names, self.parameters))
        return replace(self, names=kept, parameters=parameters)

    def function(self) -> FederatedFunction:
        """Return the federated part as a function."""
        client = self.build(None)
        return function_of(client, client.spec.num_features, self.parameters, client.spec.task.bounded)

    def fresh(self, seed: int | None) -> State:
        """Return initial values of the federated tensors, drawn from another seed, or from the run's seed if None."""
        client = self.build(seed)
        drawn = live_of(client, named_tensors(client), self.names)
        return {name: drawn[name].detach().to(self.device) for name in self.names}


@dataclass
class Answerer:
    """Answers questions for one client, from its training rows.

    Attributes:
        client: the client.
        parameters: the names of its federated parameters.
        rows: its training rows.
    """

    client: FederatedClient
    parameters: Sequence[str]
    rows: Rows

    @torch.no_grad()
    def __call__(self, question: Question) -> Any:
        """Return the answer; the class of each question describes it."""
        if isinstance(question, Own):
            return self._own(question)
        was = {module: module.training for module in self.client.modules()}
        self.client.eval()
        try:
            return self._losses(question.states) if isinstance(question, Losses) else self._input_range()
        finally:
            for module, training in was.items():
                module.training = training

    def _losses(self, states: Sequence[State]) -> Tensor:
        federated, total = self.client.federated, []
        for state in states:
            whole = self.client._federated.whole({name: value for name, value in state.items() if name in federated})
            parts = [
                self.client.loss(functional_call(self.client, whole, (x,)), y).double() * len(y)
                for x, y in self._batches()
            ]
            total.append(torch.stack(parts).sum() / len(self.rows))
        return torch.stack(total).float()

    def _own(self, question: Own) -> State:
        where = f"client {self.client.spec.name!r}: {type(self.client).__name__}.answer({question.topic!r})"
        with told_as(lambda error: RunError(f"{where}: {type(error).__name__}: {error}")):
            found = self.client.answer(question.topic, question.tensors, self.rows)
        if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
            raise RunError(f"{where}: expected named tensors, found {type(found).__name__}; return a dictionary")
        return found

    def _input_range(self) -> Tensor:
        found = torch.cat([entering(self.client, self.parameters, x) for x, _ in self._batches()])
        return torch.stack([found.amin(0), found.amax(0)])

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.rows.x.split(ROWS), self.rows.y.split(ROWS), strict=True)
