"""Federations of some clients each that know nothing of each other and exchange bytes: the proof that a client needs
nothing but its own table. A :class:`LoopbackServer` holds the rule; each site's :class:`Loopback` talks to it alone.
All go in lockstep: the server answers when every site has said the same kind of thing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from fedlit.errors import RunError
from fedlit.exchange.outcome import BEGIN, Outcome
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.server import Server
from fedlit.exchange.transport import Answer
from fedlit.exchange.wire import pack, question_from, question_to, unpack, update_to


class Channel(Protocol):
    """Carries bytes to one other side and back; ``multiprocessing.Pipe`` gives two."""

    def send_bytes(self, content: bytes) -> None:
        """Send a message."""

    def recv_bytes(self) -> bytes:
        """Wait for one; EOFError where the other side has left."""

    def close(self) -> None:
        """Leave."""


class Loopback:
    """A site's side: a transport for the clients here.

    Args:
        channel: to the hub.
        rule: the federation's; says what it needs of clients.
    """

    everybody_here = False

    def __init__(self, channel: Channel, rule: Rule) -> None:
        self.channel, self.rule = channel, rule

    def __deepcopy__(self, memo: Any) -> Loopback:
        """There is one way to the others, whoever copies what knows it."""
        return self

    def takes_part(self, number: int) -> bool:
        """All go in lockstep."""
        return True

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self.channel.send_bytes(pack(message))
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        try:
            answer = unpack(self.channel.recv_bytes())
        except (EOFError, OSError) as error:
            raise RunError("expected the hub to answer, found that it has left; start the federation again") from error
        if "failed" in answer:
            raise RunError(answer["failed"])
        return answer

    def share(self, topic: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :class:`~fedlit.exchange.transport.Transport`."""
        facts: dict[str, Any] = self._ask({"share": topic, "facts": own})["facts"]
        return facts

    def exchange(
        self, server: Server, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        """See :class:`~fedlit.exchange.transport.Transport`; the rule is applied at the hub."""
        sent = {name: update_to(update, self.rule.needs) for name, update in updates.items()}
        heard = self._ask({"exchange": number, "measure": measure, "updates": sent})
        while "ask" in heard:
            asked = {name: question_from(own) for name, own in heard["ask"].items()}
            heard = self._ask({"answers": {name: answer(name, question) for name, question in asked.items()}})
        return Outcome.from_message(heard)


class LoopbackServer(Server):
    """Serves sites over channels."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # what the rule remembered before each round: sites may resume from an earlier one
        self._remembered: dict[int, Any] = dict.fromkeys((BEGIN, 0), self.memory())
        self._next = BEGIN

    def state_dict(self) -> dict[str, Any]:
        """What a server that takes this one's place must know."""
        return {"remembered": self._remembered, "next": self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the place of another server."""
        self._remembered, self._next = dict(state["remembered"]), state["next"]
        self.recall(self._remembered[self._next])

    def serve(self, channels: Mapping[str, Channel]) -> None:
        """Answer until all sites have left.

        Args:
            channels: by site.

        Raises:
            RunError: a site has left before the others, said what does not fit, or a round failed. The others are told.
        """
        try:
            while (said := self._hear(channels)) is not None:
                self._answer(channels, said)
        except Exception as error:
            for channel in channels.values():
                with suppress(OSError, EOFError):
                    channel.send_bytes(pack({"failed": str(error)}))
            raise
        finally:
            for channel in channels.values():
                channel.close()

    def _hear(self, channels: Mapping[str, Channel]) -> dict[str, dict[str, Any]] | None:
        """What each site says; None where all have left."""
        said: dict[str, dict[str, Any]] = {}
        for site, channel in channels.items():
            with suppress(EOFError, OSError):
                said[site] = unpack(channel.recv_bytes())
        if not said:
            return None
        if left := [site for site in channels if site not in said]:
            raise RunError(f"expected all sites to go on, found that {', '.join(left)} left; start all of them again")
        kinds = {site: [own[key] for key in ("share", "exchange") if key in own] for site, own in said.items()}
        first = next(iter(kinds))
        for site, kind in kinds.items():
            if kind != kinds[first]:
                raise RunError(
                    f"expected all sites to be at the same point, found {first} at {kinds[first]} and {site} at {kind}"
                    "; give them the same configuration, and resume all or none"
                )
        return said

    def _answer(self, channels: Mapping[str, Channel], said: Mapping[str, Mapping[str, Any]]) -> None:
        first = next(iter(said.values()))
        if "share" in first:
            facts = self.tell(first["share"], {site: own["facts"] for site, own in said.items()})
            for channel in channels.values():
                channel.send_bytes(pack({"facts": facts}))
            return
        outcome = self._round(channels, said, first["exchange"], first["measure"])
        for site, channel in channels.items():
            answer = outcome.to_message([name for name in outcome.received if self._homes[name] == site])
            channel.send_bytes(pack(answer))

    def _round(
        self, channels: Mapping[str, Channel], said: Mapping[str, Mapping[str, Any]], number: int, measure: bool
    ) -> Outcome:
        if number in self._remembered:
            self.recall(self._remembered[number])
        elif self.rule.state_dict():
            raise RunError(
                f"expected sites at round {self._next}, found them at {number}, before which nobody knows what the "
                "rule remembered; resume from another checkpoint, or start anew"
            )
        sent = {name: own for told in said.values() for name, own in told["updates"].items()}
        updates = self.updates_of(sent)
        outcome = self.round(number, updates, lambda asked: self._ask(channels, asked), measure=measure)
        self._next = number + 1
        self._remembered[self._next] = self.memory()
        return outcome

    def _ask(self, channels: Mapping[str, Channel], questions: Mapping[str, Question]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for site, channel in channels.items():
            own = {name: question_to(asked) for name, asked in questions.items() if self._homes[name] == site}
            if own:
                channel.send_bytes(pack({"ask": own}))
                answers |= unpack(channel.recv_bytes())["answers"]
        return {name: answers[name] for name in questions}


class _Turn:
    """Lets one of several threads compute at a time: torch's default generators belong to all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Any:
        with self._lock:
            yield

    @contextmanager
    def given_up(self) -> Any:
        """While waiting for others."""
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class _Queues:
    """One side of a channel between threads; ``None`` says that the other side has left."""

    def __init__(self, out: queue.SimpleQueue[Any], into: queue.SimpleQueue[Any], turn: _Turn | None = None) -> None:
        self._out, self._in, self._turn = out, into, turn

    def send_bytes(self, content: bytes) -> None:
        self._out.put(content)

    def recv_bytes(self) -> bytes:
        if self._turn is None:
            found = self._in.get()
        else:
            with self._turn.given_up():
                found = self._in.get()
        if found is None:
            self._in.put(None)
            raise EOFError
        return bytes(found)

    def close(self) -> None:
        self._out.put(None)


def in_threads(hub: LoopbackServer, sites: Mapping[str, Callable[[Channel], Any]]) -> dict[str, Any]:
    """Run sites in threads of this process, one computing at a time.

    Args:
        hub: of the federation.
        sites: name → what a site does with its channel.

    Returns:
        What each site returned.

    Raises:
        Exception: of the first site that failed by itself, else the hub's.
    """
    turn, results, errors = _Turn(), dict[str, Any](), dict[str, BaseException]()

    def live(name: str, mine: _Queues) -> None:
        try:
            with turn.taken():
                results[name] = sites[name](mine)
        except BaseException as error:
            errors[name] = error
        finally:
            mine.close()

    ends, threads = dict[str, _Queues](), []
    for name in sites:
        up, down = queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
        ends[name] = _Queues(down, up)
        threads.append(threading.Thread(target=live, args=(name, _Queues(up, down, turn)), daemon=True, name=name))
        threads[-1].start()
    failed: BaseException | None = None
    try:
        hub.serve(ends)
    except Exception as error:
        failed = error
    for thread in threads:
        thread.join()
    by_itself = [own for own in errors.values() if str(own) != str(failed)]
    for own in (*by_itself, *errors.values(), failed):
        if own is not None:
            raise own
    return results


def in_processes(hub: LoopbackServer, sites: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
    """Run sites in processes that are started anew and share no memory.

    Args:
        hub: of the federation.
        sites: name → (a function of a module, its arguments behind the channel).

    Raises:
        RunError: a site ended before the others.
    """
    from multiprocessing import get_all_start_methods, get_context

    # a server that knows nothing of this process imports once what takes each site seconds; not all systems have one
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    context.set_forkserver_preload(["fedlit.run.load"])
    ends, processes = {}, []
    for name, (work, arguments) in sites.items():
        here, there = context.Pipe()
        processes.append(context.Process(target=work, args=(there, *arguments), name=name))
        ends[name] = here
        processes[-1].start()
        there.close()
    try:
        hub.serve(ends)
    finally:
        for process in processes:
            process.join()
