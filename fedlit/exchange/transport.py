"""The way between clients: how facts are told before training, and how updates and what comes of them travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fedlit.exchange.outcome import Outcome
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Update
from fedlit.exchange.server import Server
from fedlit.sharing import all_here

__all__ = ["Group", "InProcess", "Transport", "group_of"]

Answer = Callable[[str, Question], Any]
"""Asks a client here: (its name, the question) → the answer."""


class Transport(Protocol):
    """Whatever carries messages between the clients here and those elsewhere: the same bits, however they travel.

    Attributes:
        everybody_here: whether all clients of the federation are in this process.
    """

    everybody_here: bool

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell facts (see :data:`fedlit.sharing.Share`)."""

    def takes_part(self, number: int) -> bool:
        """Whether the clients here may take part in a round: not in one that others have finished without them.

        Args:
            number: exchanges before it.
        """

    def exchange(
        self, server: Server, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        """One round.

        Args:
            server: what applies the rule, where it is applied in this process.
            number: exchanges before it.
            updates: of the clients here that take part.
            answer: asks clients here what the rule wants to know.
            measure: whether drift is measured.
        """


class Group:
    """The processes of one job that hold the clients of a federation together; by itself the only one.

    They trust each other: what one of them knows, all may know.

    Attributes:
        rank: this one's number, from 0; the first has the run's folder and prints.
        size: how many there are.
        local: its number on its machine.
    """

    rank, size, local = 0, 1, 0

    def decide(self, topic: str, value: Any, work: Callable[[list[Any]], Any]) -> Any:
        """What the first of them makes of what each says; all wait for it, and hear it.

        Args:
            topic: of what; all must be at the same.
            value: of this one, as :func:`fedlit.exchange.wire.pack` takes it.
            work: makes a value of all values, by rank; called at the first alone.

        Raises:
            RunError: another process is at another topic, or has ended.
        """
        return work([value])

    def gather(self, topic: str, value: Any) -> list[Any]:
        """What each of them says, by rank; see :meth:`decide`."""
        every: list[Any] = self.decide(topic, value, lambda told: told)
        return every

    def first(self, topic: str, value: Any) -> Any:
        """What the first of them says."""
        return self.gather(topic, value)[0]

    def __deepcopy__(self, memo: Any) -> Group:
        """The process's place stays one, whoever copies what knows it."""
        return self

    def deal(self, sizes: Mapping[str, int]) -> list[str]:
        """Which clients are this one's.

        Args:
            sizes: of all, by which they are dealt evenly.
        """
        return sorted(sizes)


def group_of(transport: Any) -> Group:
    """The processes that a federation's clients are dealt to; one if they are not."""
    return transport if isinstance(transport, Group) else Group()


class InProcess:
    """All clients are in this process."""

    everybody_here = True

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """What all say is what those here say."""
        return all_here(topic, own)

    def takes_part(self, number: int) -> bool:
        """Nobody goes on without the others."""
        return True

    def exchange(
        self, server: Server, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        """Apply the rule."""
        return server.round(
            number,
            updates,
            lambda questions: {name: answer(name, question) for name, question in questions.items()},
            measure=measure,
        )
