"""Transports: how clients share facts before training, and how updates and their aggregates
travel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedlit.exchange.outcome import Outcome
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Update
from fedlit.exchange.server import Server
from fedlit.meanings import Meaning
from fedlit.sharing import all_here

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")

Answer = Callable[[str, Question], Any]
"""Asks a client of this process: (its name, the question) → the answer."""


class Transport:
    """Carries messages between clients. The base class serves clients that are all in this process.
    Results have the same bits over every transport.

    Several processes of one job may hold the clients together
    (:class:`fedlit.exchange.ranks.Ranks`). They trust each other, so facts and tensors are shared
    without checks of consent. Any other transport has a single process here.

    Attributes:
        everybody_here: whether all clients of the federation are in this process.
        rank: the number of this process in its job, from 0; the first one owns the run's folder and
            prints.
        size: the number of processes of the job.
        local: the number of this process on its machine.
    """

    everybody_here = True
    rank = 0
    size = 1
    local = 0

    def __deepcopy__(self, memo: object) -> Transport:
        """Return the transport itself: whatever is copied has the same connection to the others."""
        return self

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send facts about the clients of this process, and return those about all (see
        :data:`fedlit.names.Share`).
        """
        return all_here(topic, own)

    def disguise(self, meaning: Meaning) -> Meaning:
        """Return a tensor's meaning as it is sent to other clients: here, as it is (see
        :mod:`fedlit.meanings`).
        """
        return meaning

    def takes_part(self, number: int) -> bool:
        """Return whether clients of this process may still take part in a round; others may have
        finished it already.

        Args:
            number: the number of exchanges before it.
        """
        return True

    def exchange(
        self,
        server: Server,
        number: int,
        updates: Mapping[str, Update],
        answer: Answer,
        *,
        measure: bool,
    ) -> Outcome:
        """Run one round.

        Args:
            server: applies the rule, if it is applied in this process.
            number: the number of exchanges before it.
            updates: the updates of the clients of this process that take part.
            answer: asks a client of this process a question of the rule.
            measure: whether drift is measured.
        """

        def ask(questions: Mapping[str, Question]) -> dict[str, Any]:
            return {name: answer(name, question) for name, question in questions.items()}

        return server.round(number, updates, ask, measure=measure)

    # ------------------------------------------------------------------ the processes of a job

    def decide(self, topic: str, value: _Value, work: Callable[[list[_Value]], _Result]) -> _Result:
        """Send a value to the first process, which computes a result from all values and sends it
        to all.

        Args:
            topic: what the values are about; all processes must be at the same topic.
            value: the value of this process, in a form that :func:`fedlit.exchange.wire.pack`
                accepts.
            work: computes the result from the values, by rank; called by the first process only.

        Raises:
            RunError: another process is at another topic, or has ended.
        """
        return work([value])

    def gather(self, topic: str, value: _Value) -> list[_Value]:
        """Return the values of all processes, by rank; see :meth:`decide`."""
        return self.decide(topic, value, lambda values: values)

    def first(self, topic: str, value: _Value) -> _Value:
        """Return the value of the first process."""
        return self.gather(topic, value)[0]

    def deal(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the names of the clients of this process.

        Args:
            sizes: maps each of all clients to its size; the sizes are dealt evenly.
        """
        return sorted(sizes)
