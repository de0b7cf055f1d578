"""Transports: how clients share facts before training, and how updates and their aggregates travel."""

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
"""Asks a client of this process: (its name, the question) → the answer."""


class Transport(Protocol):
    """Carries messages between the clients of this process and those elsewhere. Results have the same bits over every
    transport.

    Attributes:
        everybody_here: whether all clients of the federation are in this process.
    """

    everybody_here: bool

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send facts about the clients here, and return those of all (see :data:`fedlit.sharing.Share`)."""

    def takes_part(self, number: int) -> bool:
        """Whether the clients here may still take part in a round: the others may have finished it without them.

        Args:
            number: exchanges before it.
        """

    def exchange(
        self, server: Server, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        """Run one round.

        Args:
            server: what applies the rule, where it is applied in this process.
            number: exchanges before it.
            updates: of the clients here that take part.
            answer: asks a client here a question of the rule.
            measure: whether drift is measured.
        """


class Group:
    """The processes of one job that hold the clients of a federation together; by itself the only one.

    They trust each other, so that facts and tensors are shared without checks of consent.

    Attributes:
        rank: this one's number, from 0; the first has the run's folder and prints.
        size: how many there are.
        local: its number on its machine.
    """

    rank, size, local = 0, 1, 0

    def decide(self, topic: str, value: Any, work: Callable[[list[Any]], Any]) -> Any:
        """Send a value to the first process, which computes a result from all values and sends it to all.

        Args:
            topic: what the values are about; all processes must be at the same topic.
            value: of this process, as :func:`fedlit.exchange.wire.pack` takes it.
            work: computes the result from the values, by rank; called by the first process only.

        Raises:
            RunError: another process is at another topic, or has ended.
        """
        return work([value])

    def gather(self, topic: str, value: Any) -> list[Any]:
        """The values of all processes, by rank; see :meth:`decide`."""
        every: list[Any] = self.decide(topic, value, lambda told: told)
        return every

    def first(self, topic: str, value: Any) -> Any:
        """The value of the first process."""
        return self.gather(topic, value)[0]

    def __deepcopy__(self, memo: Any) -> Group:
        """A copy of an object that holds a group holds the same group."""
        return self

    def deal(self, sizes: Mapping[str, int]) -> list[str]:
        """Names of the clients of this process.

        Args:
            sizes: of all clients, by which they are dealt evenly.
        """
        return sorted(sizes)


def group_of(transport: Any) -> Group:
    """The group of processes that share a federation's clients; a group of one if the transport is no group."""
    return transport if isinstance(transport, Group) else Group()


class InProcess:
    """The transport of a federation whose clients are all in this process."""

    everybody_here = True

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """The facts of the clients here are those of all."""
        return all_here(topic, own)

    def takes_part(self, number: int) -> bool:
        """Always."""
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
