"""The questions of a rule within a round, with the bytes that they and their answers take."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedlit.exchange.columns import Updates
from fedlit.exchange.questions import Losses, Own, Question, bytes_of
from fedlit.exchange.rule import Ask, Update
from fedlit.sharing import Sharing, State


class Asked:
    """Asks clients, counts the bytes of questions and answers, and remembers which tensors clients
    received with them.

    Args:
        ask: sends questions to clients and returns their answers.
        sharing: which tensors each client has.
    """

    def __init__(self, ask: Ask, sharing: Sharing) -> None:
        self._ask = ask
        self._sharing = sharing
        self._bytes = 0
        self._had: dict[str, set[int]] = {}

    def __call__(self, questions: Mapping[str, Question]) -> Mapping[str, Any]:
        """Ask clients, and send no tensors that a client does not have."""
        questions = {name: self._fitting(name, question) for name, question in questions.items()}
        answers = self._ask(questions)
        for name, question in questions.items():
            self._count(name, question, answers[name])
        return answers

    def _count(self, client: str, question: Question, answer: Any) -> None:
        if isinstance(question, Losses):
            addresses = self._had.setdefault(client, set())
            for state in question.states:
                self._bytes += bytes_of(state)
                addresses.update(value.data_ptr() for value in state.values())
        if isinstance(question, Own):
            # What the client makes of these tensors is not known, so it counts as having none of
            # them.
            self._bytes += bytes_of(question.tensors)
        self._bytes += bytes_of({"answer": answer} if isinstance(answer, Tensor) else answer)

    def _fitting(self, client: str, question: Question) -> Question:
        """Return the question without the tensors that the client does not have."""
        if not isinstance(question, Losses):
            return question
        names = self._sharing.names[client]
        states = []
        for state in question.states:
            states.append({name: state[name] for name in names if name in state})
        return Losses(states)

    def weigh(self, collected: Mapping[str, Update], received: Mapping[str, State]) -> int:
        """Return the bytes of a round. Tensors that came with a question are not counted again."""
        weight = self._bytes + sum(map(bytes_of, received.values()))
        updates = Updates.of(collected)
        weight += updates.columns.bytes + updates.published.bytes
        for name in updates.keys() & self._had.keys():
            addresses = self._had[name]
            state = received.get(name, {})
            again = {key: value for key, value in state.items() if value.data_ptr() in addresses}
            weight -= bytes_of(again)
        return weight
