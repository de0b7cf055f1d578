"""The processes (ranks) of a cluster's job, started, watched and ended by torchrun or srun. Each
has some clients.

The ranks communicate through a process group of their own (gloo): in torch's default one, metrics
of other libraries would wait for each other. Tensors travel through the CPU.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, rendezvous  # type: ignore[attr-defined]

from fedlit.errors import ConfigError, RunError
from fedlit.exchange.outcome import Outcome
from fedlit.exchange.place import Place, find_place
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Update
from fedlit.exchange.schedule import BEGIN
from fedlit.exchange.server import Server
from fedlit.exchange.transport import Answer, Transport
from fedlit.exchange.wire import pack, question_from, question_to, unpack, update_to
from fedlit.names import joined
from fedlit.session import session
from fedlit.show.shown import Notices, say

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")

_MEETING = timedelta(seconds=60)
"""The time within which all ranks must arrive."""
_WORK = timedelta(days=365)
"""The time that a rank may take between two messages. It is long, because the launcher knows
whether the rank lives."""


def deal(sizes: Mapping[str, int], ranks: int) -> list[list[str]]:
    """Divide clients into blocks of neighbouring names, as even in size as such blocks can be.

    Args:
        sizes: maps each client to its number of rows, or to another measure of the time that it
            takes.
        ranks: the number of blocks.

    Raises:
        ConfigError: there are fewer clients than ranks.

    Example:
        >>> deal({"ash": 10, "birch": 10, "cedar": 30, "elm": 5}, 2)
        [['ash', 'birch'], ['cedar', 'elm']]
    """
    names = sorted(sizes)
    total = sum(sizes.values())
    if len(names) < ranks:
        raise ConfigError(
            f"expected at least as many clients as ranks, found {len(names)} clients on {ranks} "
            f"ranks; start at most {len(names)} processes"
        )
    blocks = list[list[str]]()
    done = 0
    for rank in range(ranks):
        block = [names.pop(0)]
        done += sizes[block[0]]
        until = total * (rank + 1) / ranks
        last = rank + 1 == ranks
        # The block takes another client as long as it then ends nearer to its share, and each later
        # rank is left a client.
        while len(names) > ranks - rank - 1 and (last or done + sizes[names[0]] / 2 <= until):
            done += sizes[names[0]]
            block.append(names.pop(0))
        blocks.append(block)
    return blocks


class Ranks(Transport):
    """A transport over the ranks of a job. Rank 0 receives a message from each rank and sends the
    result to all.

    Each rank has a block of clients with neighbouring names. Rank 0 applies the rule to the updates
    of all clients in the order of their names, so that the result has the bits of a single process.

    Args:
        place: the place of this process.

    Raises:
        ConfigError: not all ranks arrive within a minute.
    """

    everybody_here = False

    def __init__(self, place: Place) -> None:
        self.rank = place.rank
        self.size = place.size
        self.local = place.local
        self.homes: dict[str, int] = {}
        meeting = f"tcp://{place.address}:{place.port}"
        try:
            store, *_ = next(rendezvous(meeting, place.rank, place.size, timeout=_MEETING))
            self._store: Any = PrefixStore("fedlit", store)
            self._store.set(f"rank {place.rank}", "")
            self._store.wait([f"rank {rank}" for rank in range(place.size)], _MEETING)
            # torch has no types for process groups.
            self._group: Any = ProcessGroupGloo(self._store, place.rank, place.size, _WORK)
        except (RuntimeError, ValueError, OSError) as error:
            raise ConfigError(
                f"rank {place.rank}: expected {place.size} ranks to meet at {place.address}, port "
                f"{place.port}, within {_MEETING.seconds} seconds, found: {_first_line(error)}; "
                "see what the others said, and whether that port (MASTER_PORT) is free and can be "
                "reached from each machine"
            ) from error

    def close(self) -> None:
        """End the threads that torch uses for messages before the interpreter ends, and then
        release what they use.
        """
        self._group.shutdown()
        self._group = self._store = None

    def is_first(self, what: str) -> bool:
        """Return whether no other rank has asked this about the same text, so that only one rank
        prints it.
        """
        try:
            return bool(self._store.add(f"said: {what}", 1) == 1)
        except RuntimeError:  # Rank 0, which keeps the store, has ended.
            return True

    # ------------------------------------------------------------------ messages

    @contextmanager
    def _at(self, topic: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RunError(
                f"rank {self.rank}, at {topic!r}: expected all {self.size} ranks to answer, found "
                f"that one has ended ({_first_line(error)}); torchrun or srun names the rank that "
                "ended first, which may have said why. Continue with --ckpt_path last, if a "
                "checkpoint was written"
            ) from error

    def _say(self, topic: str, value: object, device: torch.device | str = "cpu") -> list[Any]:
        """Send a value to rank 0. Return the values of all ranks there, by rank, and an empty list
        elsewhere.
        """
        content = pack({"topic": topic, "value": value})
        with self._at(topic):
            if self.rank:
                for part in (torch.tensor([len(content)]), _bytes(content)):
                    self._group.send([part], 0, 0).wait()
                return []
            parts = [content]
            for rank in range(1, self.size):
                size = torch.zeros(1, dtype=torch.long)
                self._group.recv([size], rank, 0).wait()
                part = torch.empty(int(size), dtype=torch.uint8)
                self._group.recv([part], rank, 0).wait()
                parts.append(part.numpy().tobytes())
        messages = [unpack(part, device) for part in parts]
        topics = [message["topic"] for message in messages]
        if len(set(topics)) > 1:
            ranks = ", ".join(f"rank {rank} at {topic!r}" for rank, topic in enumerate(topics))
            raise RunError(
                f"expected all ranks to be at the same point, found {ranks}; do all run the same "
                "script, and does no callback end training at one of them alone?"
            )
        return [message["value"] for message in messages]

    def _tell(
        self, topic: str, message: Mapping[str, object] | None, device: torch.device | str = "cpu"
    ) -> dict[str, Any]:
        """Broadcast a message of rank 0 to all ranks."""
        content = b"" if message is None else pack(message)
        with self._at(topic):
            size = torch.tensor([len(content)])
            self._group.broadcast(size, 0).wait()
            if message is not None:
                self._group.broadcast(_bytes(content), 0).wait()
                return dict(message)
            buffer = torch.empty(int(size), dtype=torch.uint8)
            self._group.broadcast(buffer, 0).wait()
        return unpack(buffer.numpy().tobytes(), device)

    def decide(self, topic: str, value: _Value, work: Callable[[list[_Value]], _Result]) -> _Result:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        values = self._say(topic, value)
        decided = None
        if self.rank == 0:
            decided = {"value": work(values)}
        result: _Result = self._tell(topic, decided)["value"]
        return result

    # ------------------------------------------------------------------ the transport

    def deal(self, sizes: Mapping[str, int]) -> list[str]:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        return deal(self.first("sizes", sizes), self.size)[self.rank]

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        facts: dict[str, Any] = {}
        of_ranks = self.gather(topic, own)
        for of_rank in of_ranks:
            twice = sorted(facts.keys() & of_rank.keys())
            if twice:
                raise RunError(
                    f"client {twice[0]!r}: expected it at one rank, found it at two; give each a "
                    "configuration"
                )
            facts |= of_rank
        if topic == "clients":
            self.homes = {}
            for rank, of_rank in enumerate(of_ranks):
                self.homes |= dict.fromkeys(of_rank, rank)
        return dict(sorted(facts.items()))

    def exchange(
        self,
        server: Server,
        number: int,
        updates: Mapping[str, Update],
        answer: Answer,
        *,
        measure: bool,
    ) -> Outcome:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        topic = "before the first exchange" if number == BEGIN else f"exchange {number + 1}"
        own_updates = {}
        for name, update in updates.items():
            message = update_to(update, server.rule.needs)
            own_updates[name] = {**message, "parameters": update.parameters}
        of_ranks = self._say(topic, own_updates, server.device)
        if self.rank:
            outcome = self._answer_until_outcome(topic, answer, server.device)
        else:
            collected = {}
            for name, message in joined(of_ranks).items():
                parameters = tuple(message["parameters"])
                collected[name] = Update(**{**message, "parameters": parameters})
            ask = partial(self._ask, topic, answer, server.device)
            outcome = server.round(number, collected, ask, measure=measure)
            self._tell(topic, outcome.to_message(outcome.received))
        received = {
            name: state for name, state in outcome.received.items() if self.homes[name] == self.rank
        }
        return replace(outcome, received=received)

    def _ask(
        self, topic: str, answer: Answer, device: torch.device, questions: Mapping[str, Question]
    ) -> dict[str, Any]:
        """Ask the clients of all ranks; called by rank 0."""
        messages = {name: question_to(question) for name, question in questions.items()}
        self._tell(topic, {"ask": messages})
        answers = joined(self._say(topic, self._answers(questions, answer), device))
        return {name: answers[name] for name in questions}

    def _answer_until_outcome(self, topic: str, answer: Answer, device: torch.device) -> Outcome:
        """Answer what rank 0 asks the clients here, until it sends the outcome of the round."""
        message = self._tell(topic, None, device)
        while "ask" in message:
            questions = {name: question_from(one) for name, one in message["ask"].items()}
            self._say(topic, self._answers(questions, answer))
            message = self._tell(topic, None, device)
        return Outcome.from_message(message)

    def _answers(self, questions: Mapping[str, Question], answer: Answer) -> dict[str, Any]:
        """Return the answers of the clients here."""
        names = [name for name in questions if self.homes[name] == self.rank]
        return {name: answer(name, questions[name]) for name in names}


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def join() -> Ranks | None:
    """Return the transport of this process's job, once all ranks have arrived; None if this is the
    only process. From then on, one rank alone prints what several say.
    """
    job = session()
    if not job.has_joined:
        of_process = find_place()
        job.has_joined = True
        if of_process is not None:
            job.ranks = Ranks(of_process)
            job.on_end(job.ranks.close)
            job.is_first = job.ranks.is_first
            log = logging.getLogger("fedlit")
            log.addHandler(Notices(logging.WARNING))
            log.propagate = False
            warnings.showwarning = lambda message, *_: say(str(message))
    ranks: Ranks | None = job.ranks
    return ranks
