"""Runs calls, in this process or in worker processes. A worker reads requests, one JSON object per
line, from its standard input, and answers each with a line.

A worker ends as soon as its input is closed, even during a job. If the requesting process is
killed, no orphaned worker therefore continues to write to folders that a restarted process uses.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlit.errors import FedlitError
from fedlit.exchange.place import refuse_ranks


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerProcess:
    """A process that runs this module. It is started when first needed, and again after a crash.

    Args:
        threads: the number of threads that it may use.
    """

    def __init__(self, threads: int) -> None:
        refuse_ranks("what starts processes of its own")
        self.environment = {
            **os.environ,
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)),
        }
        self.process: subprocess.Popen[str] | None = None

    def call(self, function: str, arguments: Mapping[str, Any], log: Path) -> str:
        """Call a function in the process. Return the error that ended it, or an empty string.

        Args:
            function: the function, as ``module:name``; it takes one mapping.
            arguments: the mapping for the function, as plain data.
            log: the file for what is printed.
        """
        if self.process is None:
            # -P: no module of the working directory
            command = [sys.executable, "-P", "-m", "fedlit.jobs.pool"]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, env=self.environment, text=True
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        request = {"function": function, "arguments": arguments, "log": str(log), "path": sys.path}
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):  # it ended, or was stopped meanwhile
            answer = ""
        if answer:
            return str(json.loads(answer))
        status = self.process.wait()
        self.process = None
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"its process ended ({how})" + (
            "; out of memory?" if status == -signal.SIGKILL else ""
        )

    def stop(self) -> None:
        """Kill the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Call:
    """A request to a worker process.

    Attributes:
        name: the unique name of the call.
        function: the function, as ``module:name``; it takes one mapping.
        arguments: builds the mapping for the function, as plain data, when the call begins.
        log: the file for what is printed.
        after: the names of calls that must have ended before.
    """

    name: str
    function: str
    arguments: Callable[[], Mapping[str, Any]]
    log: Path
    after: tuple[str, ...] = ()


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


class Pool:
    """Worker processes, each with its share of the cores. If one dies, only its call is lost.

    Args:
        workers: the number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._processes = [WorkerProcess(max(1, cores() // workers)) for _ in range(workers)]
        self._waiting = deque[Call]()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._waiting.clear()
        for process in self._processes:
            process.stop()

    def run(self, calls: Sequence[Call]) -> Iterator[Event]:
        """Run calls in the worker processes.

        Args:
            calls: the calls; those that others wait for must come before these.

        Returns:
            Each call when it begins, and when it ends.
        """
        # of this run alone: a thread of an earlier one takes none of it
        waiting = self._waiting = deque(calls)
        ended = {call.name: threading.Event() for call in calls}
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()

        def work(process: WorkerProcess) -> None:
            with suppress(IndexError):  # nothing is waiting any more
                while True:
                    call = waiting.popleft()
                    for name in ended.keys() & {*call.after}:
                        ended[name].wait()
                    events.put(Event(call))
                    begun = time.monotonic()
                    try:
                        error = process.call(call.function, call.arguments(), call.log)
                    # no process to be had, say; who reads would wait for ever
                    except Exception as wrong:
                        error = f"{type(wrong).__name__}: {wrong}"
                    ended[call.name].set()
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


def main() -> None:
    """Answer requests until the input is closed."""
    # Ctrl-C reaches the whole group; the process that asked decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        print(json.dumps(_serve(**json.loads(lines.get()))), file=answers, flush=True)


def _serve(function: str, arguments: Mapping[str, Any], log: str, path: list[str]) -> str:
    """Call the function, and return its error or an empty string. What it prints is written to a
    file, so that a crash of the process leaves a trace.
    """
    sys.path[:] = path  # where the process that asks looks, in the same order
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        module, name = function.split(":")
        getattr(importlib.import_module(module), name)(arguments)
    except BaseException as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    finally:
        with suppress(OSError):
            sys.stdout.flush()
    return ""


if __name__ == "__main__":
    main()
