"""The processes of a cluster's job, torchrun's or srun's: each has some of the clients, and one device.

They talk over a process group of their own (gloo). Tensors travel by the CPU, whatever device they are on.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.exchange.aggregation import BEGIN, Aggregation, Others, Outcome
from fedlit.exchange.alive import Forwarded, Place, find_place
from fedlit.exchange.messages import Messages
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules.mean import Mean, Sum
from fedlit.exchange.transport import Answer
from fedlit.exchange.wire import pack, question_from, question_to, unpack, update_from, update_to
from fedlit.sharing import State
from fedlit.show.shown import say_by

__all__ = ["Ranks", "deal", "join", "joined"]


def deal(sizes: Mapping[str, int], ranks: int) -> list[list[str]]:
    """Clients in blocks of neighbouring names, as even as such blocks are.

    Args:
        sizes: client → rows, or whatever says how long it takes.
        ranks: how many blocks.

    Raises:
        ConfigError: there are fewer clients than ranks.

    Example:
        >>> deal({"ash": 10, "birch": 10, "cedar": 30, "elm": 5}, 2)
        [['ash', 'birch'], ['cedar', 'elm']]
    """
    names, total = sorted(sizes), sum(sizes.values())
    if len(names) < ranks:
        raise ConfigError(
            f"expected at least as many clients as ranks, found {len(names)} clients on {ranks} ranks; start at most "
            f"{len(names)} processes"
        )
    blocks, done = list[list[str]](), 0
    for rank in range(ranks):
        block = [names.pop(0)]
        done += sizes[block[0]]
        until = total * (rank + 1) / ranks
        # one more as long as the block then ends nearer to its share, and each later rank is left a client
        while len(names) > ranks - rank - 1 and (rank + 1 == ranks or done + sizes[names[0]] / 2 <= until):
            done += sizes[names[0]]
            block.append(names.pop(0))
        blocks.append(block)
    return blocks


class Ranks(Messages, Others):
    """A transport over the ranks of a job.

    Clients are dealt in blocks of neighbouring names, so that a mean can be summed in the order of names by passing
    the sum on from rank to rank: the bits are those of one process. Other rules are applied at rank 0, which gathers
    what they need.

    Args:
        place: of this process.
    """

    everybody_here = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.clients: frozenset[str] = frozenset()
        self.homes: dict[str, int] = {}

    def deal(self, sizes: Mapping[str, int]) -> list[str]:
        """See :class:`~fedlit.exchange.transport.Group`."""
        return deal(self.first("sizes", sizes), self.size)[self.rank]

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        facts: dict[str, Any] = {}
        everybody = self.gather(topic, own)
        for told in everybody:
            if twice := sorted(facts.keys() & told.keys()):
                raise RunError(
                    f"client {twice[0]!r}: expected it at one rank, found it at two; give each a configuration"
                )
            facts |= told
        if topic == "clients":
            self.homes = {name: rank for rank, told in enumerate(everybody) for name in told}
            self.clients = frozenset(own)
            self.alive.introduce(sorted(own))
        return dict(sorted(facts.items()))

    def takes_part(self, number: int) -> bool:
        """See :class:`~fedlit.exchange.transport.Transport`: all ranks go together."""
        return True

    def exchange(
        self, aggregation: Aggregation, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        rule = aggregation.rule
        if number != BEGIN and rule.streams and type(rule).__call__ is Mean.__call__:
            return aggregation(number, updates, lambda questions: {}, measure=measure, others=self)
        if self.rank:
            return self._send_to_the_rule(rule, number, updates, answer)
        return self._at_the_rule(aggregation, number, updates, answer, measure=measure)

    # ------------------------------------------------------------------ a mean

    def is_here(self, client: str) -> bool:
        """See :class:`~fedlit.exchange.aggregation.Others`."""
        return client in self.clients

    def apply(self, rule: Rule, round: Round) -> Mapping[str, State]:
        """The mean, by a sum that goes from rank to rank; see :class:`~fedlit.exchange.aggregation.Others`."""
        assert isinstance(rule, Mean)
        total = self._counted(rule, round)
        if self.rank:
            total.values = self._passed(self.rank - 1)
        device = next((value.device for own in round.updates.values() for value in own.state.values()), "cpu")
        total.values = {name: value.to(device) for name, value in total.values.items()}
        for update in round.updates.values():
            total.sum(update.state, rule.weight(update))
        if self.rank < self.size - 1:
            self._pass_on(self.rank + 1, total.values)
        average = self._handed_out(total.divided() if self.rank == self.size - 1 else None)
        return rule.spread({name: value.to(device) for name, value in average.items()}, round)

    def _counted(self, rule: Mean, round: Round) -> Sum:
        """Who adds to which tensors, everywhere."""
        kinds: dict[tuple[str, ...], int] = {}
        own = [
            (name, kinds.setdefault(tuple(update.state), len(kinds)), rule.weight(update))
            for name, update in round.updates.items()
        ]
        forms = {name: str(value.dtype) for update in round.updates.values() for name, value in update.state.items()}
        total = Sum()
        summed = {"clients": own, "kinds": [list(kind) for kind in kinds], "forms": forms}
        for told in self.gather(_topic(round.number), summed):
            for client, kind, weight in told["clients"]:
                total.count(client, told["kinds"][kind], weight)
            total.forms |= {name: getattr(torch, form.removeprefix("torch.")) for name, form in told["forms"].items()}
        return total

    def _pass_on(self, rank: int, values: State) -> None:
        head, buffer = _flat(values)
        self._post(rank, head)
        self._send(rank, [buffer])

    def _passed(self, rank: int) -> dict[str, Tensor]:
        manifest = json.loads(self._fetch(rank))
        buffer = torch.empty(_weight(manifest), dtype=torch.uint8)
        self._receive(rank, [buffer])
        return _cut(manifest, buffer)

    def _handed_out(self, values: State | None) -> dict[str, Tensor]:
        """From the last rank to all."""
        last = self.size - 1
        if values is not None:
            head, buffer = _flat(values)
            self._to_all(head, last)
            self._broadcast(last, buffer)
            return dict(values)
        manifest = json.loads(self._to_all(None, last))
        buffer = torch.empty(_weight(manifest), dtype=torch.uint8)
        self._broadcast(last, buffer)
        return _cut(manifest, buffer)

    # ------------------------------------------------------------------ any other rule

    def _send_to_the_rule(self, rule: Rule, number: int, updates: Mapping[str, Update], answer: Answer) -> Outcome:
        sent = {
            name: {**update_to(update, rule.needs), "parameters": update.parameters} for name, update in updates.items()
        }
        self._say(0, _topic(number), sent)
        while "ask" in (heard := unpack(self._fetch(0))):
            asked = {name: question_from(own) for name, own in heard["ask"].items()}
            self._post(0, pack({name: answer(name, question) for name, question in asked.items()}))
        return Outcome.from_message(heard)

    def _at_the_rule(
        self, aggregation: Aggregation, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        homes, every = self.homes, dict(updates)
        for rank in range(1, self.size):
            for name, sent in self._hear(rank, _topic(number)).items():
                every[name] = update_from(sent, tuple(sent.pop("parameters")))

        def ask(questions: Mapping[str, Question]) -> dict[str, Any]:
            asked: dict[int, dict[str, Question]] = {}
            for name, question in questions.items():
                asked.setdefault(homes[name], {})[name] = question
            elsewhere = [rank for rank in asked if rank]
            for rank in elsewhere:  # all at once: they answer side by side
                self._post(rank, pack({"ask": {name: question_to(own) for name, own in asked[rank].items()}}))
            answers = {name: answer(name, question) for name, question in asked.get(0, {}).items()}
            for rank in elsewhere:
                answers |= unpack(self._fetch(rank))
            return {name: answers[name] for name in questions}

        outcome = aggregation(number, every, ask, measure=measure)
        for rank in range(1, self.size):
            told = outcome.to_message([name for name in outcome.received if homes[name] == rank])
            self._post(rank, pack(told))
        here = {name: own for name, own in outcome.received.items() if name in self.clients}
        return Outcome(here, outcome.lost, outcome.records, outcome.bytes, outcome.clustering, outcome.verdict)


def _topic(number: int) -> str:
    return "before the first exchange" if number == BEGIN else f"exchange {number + 1}"


def _flat(values: State) -> tuple[bytes, Tensor]:
    """A manifest, and all bytes as one vector."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in values.items()}
    manifest = [[name, str(own.dtype).removeprefix("torch."), list(own.shape)] for name, own in tensors.items()]
    parts = [own.flatten().view(torch.uint8) for own in tensors.values() if own.numel()]
    return json.dumps(manifest).encode(), torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)


def _weight(manifest: Sequence[Any]) -> int:
    return sum(getattr(torch, dtype).itemsize * torch.Size(shape).numel() for _, dtype, shape in manifest)


def _cut(manifest: Sequence[Any], buffer: Tensor) -> dict[str, Tensor]:
    found, start = dict[str, Tensor](), 0
    for name, dtype, shape in manifest:
        kind = getattr(torch, dtype)
        stop = start + kind.itemsize * torch.Size(shape).numel()
        found[name] = buffer[start:stop].clone().view(kind).view(shape)  # aligned
        start = stop
    return found


_joined: list[Ranks | None] = []


def joined() -> Ranks | None:
    """This process's place among ranks, if it has joined them."""
    return _joined[0] if _joined else None


def join() -> Ranks | None:
    """This process's place among the ranks of its job, once all have come; None where it is the only one."""
    if _joined:
        return _joined[0]
    place = find_place()
    ranks = None if place is None else Ranks(place)
    _joined.append(ranks)
    if ranks is not None:
        log = logging.getLogger("fedlit")
        log.addHandler(Forwarded(ranks.alive))
        log.propagate = False
        say_by(ranks.alive.warn)
        warnings.showwarning = lambda message, *_: ranks.alive.warn(str(message))
        atexit.register(_leave, ranks)
        sys.excepthook = partial(_failed, ranks)
    return ranks


def _leave(ranks: Ranks) -> None:
    if not hasattr(sys, "last_value"):  # an error that nobody caught is no good-bye
        ranks.alive.leave()
        ranks.close()


def _failed(ranks: Ranks, kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """What nobody caught, in a script of the user's, ends all."""
    if not isinstance(error, FedlitError | KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        error = RunError(f"rank {ranks.rank}: {kind.__name__}: {error}")
    text, status = (f"error: {error}", error.exit_status) if isinstance(error, FedlitError) else ("interrupted", 130)
    ranks.alive.fail(f"fedlit: {text}", status, by_signal=status == 130)
