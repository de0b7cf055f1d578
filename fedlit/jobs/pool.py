"""Runs calls, in this process or in worker processes, as many at once as there are workers."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlit.errors import FedlitError
from fedlit.jobs.processes import WorkerProcess, Workshop


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Call:
    """A request to a worker process.

    Attributes:
        name: the unique name of the call.
        function: the function, as ``module:name``; it takes one mapping.
        arguments: builds the mapping for the function, as plain data, when the call begins.
        log: the file for what is printed.
        after: the names of calls that must have ended before.
        memory: the name of what the function keeps in memory: calls of one name that a worker gets
            one after another run in one process. A call without a name has a new process where a
            process can be forked.
    """

    name: str
    function: str
    arguments: Callable[[], Mapping[str, Any]]
    log: Path
    after: tuple[str, ...] = ()
    memory: str = ""


@dataclass(frozen=True)
class Event:
    """What happened to a call.

    Attributes:
        call: the call.
        error: None when the call begins; when it ends, the error that ended it, with the name of
            its class, or an empty string.
        seconds: the time that the call took.
        cause: the error itself, if it was raised in this process.
    """

    call: Call
    error: str | None = None
    seconds: float = 0.0
    cause: FedlitError | None = None


class Here:
    """Runs calls in this process, one after another. An error that is none of fedlit's ends all.

    Args:
        function: what runs instead of the calls' own functions, because it has objects in memory
            that a worker process would have to read first.
    """

    def __init__(self, function: Callable[[Mapping[str, Any]], None]) -> None:
        self._function = function

    def run(self, calls: Sequence[Call]) -> Iterator[Event]:
        """Run calls; see :meth:`Pool.run`."""
        for call in calls:
            yield Event(call)
            begun = time.monotonic()
            cause: FedlitError | None = None
            try:
                self._function(call.arguments())
            except FedlitError as error:
                cause = error
            message = "" if cause is None else f"{type(cause).__name__}: {cause}"
            yield Event(call, message, time.monotonic() - begun, cause)


class _Waiting:
    """The calls of a run that have not begun, and which of all calls have ended.

    Args:
        calls: the calls; those that others wait for come before these.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = list(calls)
        self._unfinished = {call.name for call in calls}
        self._changed = threading.Condition()

    def next(self) -> Call | None:
        """Return the first call that waits for no other one, as soon as there is one; None if no
        call is waiting any more.
        """
        with self._changed:
            while self._calls:
                for call in self._calls:
                    if self._unfinished.isdisjoint(call.after):
                        self._calls.remove(call)
                        return call
                self._changed.wait()
        return None

    def ended(self, call: Call) -> None:
        """Note that a call has ended."""
        with self._changed:
            self._unfinished.discard(call.name)
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget the calls that have not begun."""
        with self._changed:
            self._calls.clear()
            self._changed.notify_all()


class Pool:
    """Worker processes, each with its share of the cores. If one dies, only its call is lost.

    Args:
        workers: the number of workers.
        modules: the modules that calls need.
    """

    def __init__(self, workers: int, modules: Sequence[str] = ()) -> None:
        self._workshop = Workshop(max(1, cores() // workers), modules)
        self._processes = [WorkerProcess(self._workshop) for _ in range(workers)]
        self._waiting = _Waiting([])

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        for process in self._processes:
            process.stop()
        self._workshop.stop()

    def run(self, calls: Sequence[Call]) -> Iterator[Event]:
        """Run calls in the worker processes.

        Args:
            calls: the calls, the first ones first; those that others wait for must come before
                these.

        Returns:
            Each call when it begins, and when it ends.
        """
        # of this run alone: a thread of an earlier one takes none of it
        waiting = self._waiting = _Waiting(calls)
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()

        def work(process: WorkerProcess) -> None:
            while (call := waiting.next()) is not None:
                events.put(Event(call))
                begun = time.monotonic()
                try:
                    error = process.call(call.function, call.arguments(), call.log, call.memory)
                # no process to be had, say; who reads would wait for ever
                except Exception as wrong:
                    error = f"{type(wrong).__name__}: {wrong}"
                waiting.ended(call)
                events.put(Event(call, error, time.monotonic() - begun))

        for process in self._processes:
            threading.Thread(target=work, args=(process,), daemon=True).start()
        unfinished = len(calls)
        while unfinished:
            # a wait without end could not be interrupted on every system
            with suppress(queue.Empty):
                event = events.get(timeout=1)
                unfinished -= event.error is not None
                yield event
