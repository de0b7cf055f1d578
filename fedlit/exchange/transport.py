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
    """Carries messages between clients of several processes. Results have the same bits over every transport.

    Attributes:
        everybody_here: whether all clients of the federation are in this process.
    """

    everybody_here: bool

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send facts about the clients of this process, and return those about all (see
        :data:`fedlit.sharing.Share`).
        """

    def takes_part(self, number: int) -> bool:
        """Return whether clients of this process may still take part in a round; others may have finished it already.

        Args:
            number: the number of exchanges before it.
        """

    def exchange(
        self, server: Server, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        """Run one round.

        Args:
            server: applies the rule, if it is applied in this process.
            number: the number of exchanges before it.
            updates: the updates of the clients of this process that take part.
            answer: asks a client of this process a question of the rule.
            measure: whether drift is measured.
        """


class Group:
    """The processes of one job that together hold the clients of a federation. The base class is a group of one.

    They trust each other, so that facts and tensors are shared without checks of consent.

    Attributes:
        rank: the number of this process, from 0; the first one owns the run's folder and prints.
        size: the number of processes.
        local: the number of this process on its machine.
    """

    rank, size, local = 0, 1, 0

    def decide(self, topic: str, value: Any, work: Callable[[list[Any]], Any]) -> Any:
        """Send a value to the first process, which computes a result from all values and sends it to all.

        Args:
            topic: what the values are about; all processes must be at the same topic.
            value: the value of this process, in a form that :func:`fedlit.exchange.wire.pack` accepts.
            work: computes the result from the values, by rank; called by the first process only.

        Raises:
            RunError: another process is at another topic, or has ended.
        """
        return work([value])

    def gather(self, topic: str, value: Any) -> list[Any]:
        """Return the values of all processes, by rank; see :meth:`decide`."""
        every: list[Any] = self.decide(topic, value, lambda told: told)
        return every

    def first(self, topic: str, value: Any) -> Any:
        """Return the value of the first process."""
        return self.gather(topic, value)[0]

    def __deepcopy__(self, memo: Any) -> Group:
        """Return the group itself, so that the copy of an object that holds a group holds the same one."""
        return self

    def deal(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the names of the clients of this process.

        Args:
            sizes: maps each of all clients to its size; the sizes are dealt evenly.
        """
        return sorted(sizes)


def group_of(transport: Any) -> Group:
    """Return the group of processes that share a federation's clients; a group of one for any other transport."""
    return transport if isinstance(transport, Group) else Group()


class InProcess:
    """The transport of a federation whose clients are all in this process."""

    everybody_here = True

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of the clients of this process, which are all clients."""
        return all_here(topic, own)

    def takes_part(self, number: int) -> bool:
        """Return True."""
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
