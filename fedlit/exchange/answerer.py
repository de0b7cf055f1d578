"""Answers the questions of a rule for one client, from its training rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from fedlit.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.errors import RunError, told_as
from fedlit.exchange.function import entering
from fedlit.exchange.questions import Losses, Own, Question
from fedlit.precision import in_double
from fedlit.sharing import State

ROWS = 4096
"""Rows that are evaluated at once."""


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
    def __call__(self, question: Question) -> Tensor | State:
        """Return the answer; the class of each question describes it."""
        if isinstance(question, Own):
            return self._own(question)
        was = {module: module.training for module in self.client.modules()}
        self.client.eval()
        try:
            if isinstance(question, Losses):
                return self._losses(question.states)
            return self._input_range()
        finally:
            for module, training in was.items():
                module.training = training

    def _losses(self, states: Sequence[State]) -> Tensor:
        federated = self.client.federated
        total = []
        for state in states:
            whole = self.client._federated.whole(
                {name: value for name, value in state.items() if name in federated}
            )
            parts = [
                in_double(self.client.loss(functional_call(self.client, whole, (x,)), y)) * len(y)
                for x, y in self._batches()
            ]
            total.append(torch.stack(parts).sum() / len(self.rows))
        return torch.stack(total).float()

    def _own(self, question: Own) -> State:
        source = (
            f"client {self.client.spec.name!r}: "
            f"{type(self.client).__name__}.answer({question.topic!r})"
        )
        with told_as(lambda error: RunError(f"{source}: {type(error).__name__}: {error}")):
            answer = self.client.answer(question.topic, question.tensors, self.rows)
        named = isinstance(answer, dict)
        if not named or not all(isinstance(value, Tensor) for value in answer.values()):
            raise RunError(
                f"{source}: expected named tensors, found {type(answer).__name__}; return a "
                "dictionary"
            )
        return answer

    def _input_range(self) -> Tensor:
        inputs = torch.cat([entering(self.client, self.parameters, x) for x, _ in self._batches()])
        return torch.stack([inputs.amin(0), inputs.amax(0)])

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.rows.x.split(ROWS), self.rows.y.split(ROWS), strict=True)
