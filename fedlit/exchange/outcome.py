"""The outcome of a round, the number of clients that it needs, and the bytes of its questions and messages."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.guard import Verdict
from fedlit.exchange.questions import Losses, Own, Question, bytes_of
from fedlit.exchange.rule import Ask, Update
from fedlit.names import Clustering
from fedlit.sharing import Sharing, State

Minimum = int | float | None
"""Clients that a round needs: a number, a share of those that take part, or more than half of them (None)."""

BEGIN = -1
"""The number of the round before training, in which a rule determines what clients start from."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a round.

    Attributes:
        received: maps each client of this process to its named tensors.
        lost: the names of the clients whose update was not finite, in all processes.
        records: the values to log, by key (``<client>/train/drift`` of the clients of this process, ``train/drift``,
            …).
        bytes: the bytes that travelled, from and to all clients.
        clustering: which clients belong together, if the rule finds clusters and runs in this process.
        verdict: the findings of the guard about all clients, or about those of this process.
    """

    received: Mapping[str, State]
    lost: tuple[str, ...] = ()
    records: Mapping[str, Tensor | float] = field(default_factory=dict)
    bytes: int = 0
    clustering: Clustering | None = None
    verdict: Verdict = field(default_factory=Verdict)

    def to_message(self, clients: Collection[str]) -> dict[str, Any]:
        """Return the message to some clients, in a form that :func:`fedlit.exchange.wire.pack` accepts."""
        return {
            "received": {name: state for name, state in self.received.items() if name in clients},
            "lost": self.lost,
            "records": {key: float(value) for key, value in self.records.items()},
            "bytes": self.bytes,
            "verdict": vars(self.verdict),
        }

    @classmethod
    def from_message(cls, told: Mapping[str, Any]) -> Outcome:
        """Restore an outcome from a message of :meth:`to_message`. Clusters are not part of it."""
        return cls(**{**told, "lost": tuple(told["lost"]), "verdict": Verdict(**told["verdict"])})


def is_minimum(found: Any) -> bool:
    """Return whether a value is one of :data:`Minimum`.

    Example:
        >>> [is_minimum(found) for found in (None, 2, 0.5, 0, 1.5, True, "50%")]
        [True, True, True, False, False, False, False]
    """
    if isinstance(found, float):
        return 0 < found <= 1
    return found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 1)


def least(minimum: Minimum, clients: int) -> int:
    """Return how many of a round's clients must have a usable update.

    Args:
        minimum: see :data:`Minimum`.
        clients: the number of clients that take part.

    Example:
        >>> least(None, 4), least(None, 3), least(None, 2), least(0.25, 10), least(2, 10)
        (3, 2, 1, 3, 2)
    """
    if minimum is None:  # of two, each is all that the other one has
        return clients // 2 + 1 if clients > 2 else 1
    return max(1, math.ceil(minimum * clients - 1e-9)) if isinstance(minimum, float) else minimum


def require(remaining: int, lost: Sequence[str], far: Sequence[str], minimum: int, where: str) -> None:
    """Refuse to go on with too few clients.

    Args:
        remaining: the number of clients with a usable update.
        lost: the clients whose update is not finite.
        far: the clients that the guard left out.
        minimum: the number of clients that are needed.
        where: the exchange, for the message.

    Raises:
        RunError: fewer than the minimum remain.
    """
    if remaining >= minimum:
        return
    who = [f"not finite: {', '.join(lost)}"] if lost else []
    who += [f"far from the others: {', '.join(far)}"] if far else []
    raise RunError(
        f"{where}: expected an update that counts from at least {minimum} clients, found it at {remaining} "
        f"({'; '.join(who)}); look at the data, the units and the learning rate of those, clip gradients "
        "(model.gradient_clip_val), or set exchange.minimum to go on without them"
    )


class Asked:
    """Asks clients, counts the bytes of questions and answers, and remembers which tensors clients received with them.

    Args:
        ask: sends questions to clients and returns their answers.
        sharing: which tensors each client has.
    """

    def __init__(self, ask: Ask, sharing: Sharing) -> None:
        self._ask, self._sharing, self._bytes = ask, sharing, 0
        self._had: dict[str, set[int]] = {}

    def __call__(self, questions: Mapping[str, Question]) -> Mapping[str, Any]:
        """Ask clients, and send no tensors that a client does not have."""
        questions = {name: self._fitting(name, question) for name, question in questions.items()}
        answers = self._ask(questions)
        for name, question in questions.items():
            states = question.states if isinstance(question, Losses) else ()
            answer = answers[name]
            self._bytes += sum(map(bytes_of, states))
            if isinstance(question, Own):  # what a client of its own makes of it, nobody knows: it has nothing by it
                self._bytes += bytes_of(question.tensors)
            self._bytes += bytes_of({"answer": answer} if isinstance(answer, Tensor) else answer)
            self._had.setdefault(name, set()).update(value.data_ptr() for state in states for value in state.values())
        return answers

    def _fitting(self, client: str, question: Question) -> Question:
        """Return the question without the tensors that the client does not have."""
        if not isinstance(question, Losses):
            return question
        names = self._sharing.names[client]
        return Losses([{name: state[name] for name in names if name in state} for state in question.states])

    def weigh(self, collected: Mapping[str, Update], received: Mapping[str, State]) -> int:
        """Return the bytes of a round. Tensors that came with a question are not counted again."""
        weight = self._bytes + sum(map(bytes_of, received.values()))
        for name, update in collected.items():
            weight += bytes_of(update.state) + bytes_of(update.published)
            had = self._had.get(name, ())
            weight -= bytes_of({key: value for key, value in received.get(name, {}).items() if value.data_ptr() in had})
        return weight
