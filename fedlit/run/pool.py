"""Several worker processes that answer calls at once."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlit.run.worker import WorkerProcess, cores

__all__ = ["Call", "at_once"]


@dataclass(frozen=True)
class Call:
    """What a process is asked to do.

    Attributes:
        name: as people read it; no two have the same.
        function: ``module:name``; it takes one mapping.
        arguments: makes that mapping, plain data, when the call begins.
        log: where what is printed goes.
        after: names of calls that must have ended before.
    """

    name: str
    function: str
    arguments: Callable[[], Mapping[str, Any]]
    log: Path
    after: tuple[str, ...] = ()


def at_once(calls: Sequence[Call], workers: int) -> Iterator[tuple[Call, str | None, float]]:
    """Have calls answered by several processes, each with its share of the cores. They are ended when nobody reads on.

    Args:
        calls: those that others wait for stand before these.
        workers: how many processes.

    Returns:
        As it happens: each call as it begins, with None, and as it ends, with the error that ended it, or the empty
        string, and its seconds.
    """
    waiting, unfinished, ended = deque(calls), {call.name for call in calls}, threading.Condition()
    events: queue.SimpleQueue[tuple[Call, str | None, float]] = queue.SimpleQueue()
    processes = [WorkerProcess(max(1, cores() // workers)) for _ in range(workers)]

    def work(process: WorkerProcess) -> None:
        while True:
            try:
                call = waiting.popleft()
            except IndexError:
                return
            with ended:
                while unfinished.intersection(call.after):
                    ended.wait()
            events.put((call, None, 0.0))
            begun = time.monotonic()
            error = process.call(call.function, call.arguments(), call.log)
            with ended:
                unfinished.discard(call.name)
                ended.notify_all()
            events.put((call, error, time.monotonic() - begun))

    try:
        for process in processes:
            threading.Thread(target=work, args=(process,), daemon=True).start()
        left = len(calls)
        while left:
            with suppress(queue.Empty):  # a wait without end could not be interrupted on every system
                call, error, seconds = events.get(timeout=1)
                left -= error is not None
                yield call, error, seconds
    finally:
        waiting.clear()
        for process in processes:
            process.stop()
