"""A process that answers requests: one JSON object per line, each answered with a line.

On Linux, workers are forked from a fork server: a process that has imported what they need, and has
neither drawn a number nor started a thread. A forked worker therefore computes the same bits as a
new process, without the seconds that imports take. Elsewhere a fork is not safe, and each worker is
a new process.

A worker ends as soon as its input is closed, even during a job. If the requesting process is
killed, no orphaned worker therefore continues to write to folders that a restarted process uses.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

FORK = b"fork"
"""Asks the fork server for a worker, which answers on the socket that comes with it."""
BLAS = "OPENBLAS_NUM_THREADS"
"""OpenBLAS starts its threads when it is imported, so that a fork server tells it to have none."""
_SAFE_THREADS = {"jemalloc_bg_thd"}
"""Native threads that their library stops before a fork, and starts again after it."""


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until their input is closed; then the process ends."""
    # Ctrl-C reaches the whole group; the process that asked decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in requests:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        print(json.dumps(_answer(**json.loads(lines.get()))), file=answers, flush=True)


def _answer(function: str, arguments: Mapping[str, object], log: str, path: list[str]) -> str:
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


def can_fork() -> bool:
    """Return whether this process may be forked: no thread of it could hold a lock that a forked
    process would wait for.
    """
    if threading.active_count() > 1:
        return False
    main = str(os.getpid())
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != main]
    return {(task / "comm").read_text().strip() for task in tasks} <= _SAFE_THREADS


def fork_on_request(channel: socket.socket, modules: Sequence[str], blas: str | None) -> None:
    """Import modules, and fork a worker whenever the process at the other end asks for one, until
    that process ends.

    Args:
        channel: the connection, which keeps messages apart.
        modules: the modules to import.
        blas: the value of :data:`BLAS` for workers; None if it is not set.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in modules:
        importlib.import_module(name)
    # Python warns of any thread, also of those that are safe.
    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 64, 1)
        if not message:  # the process at the other end has ended
            os._exit(0)
        if message != FORK:
            _, status = os.waitpid(int(message), 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork() if can_fork() else -1
        if pid == 0:
            channel.close()
            _serve_forked(descriptors[0], blas)
        os.close(descriptors[0])
        channel.send(str(pid).encode())


def _serve_forked(descriptor: int, blas: str | None) -> None:
    """Answer requests in a process that was just forked."""
    os.environ.pop(BLAS)
    if blas is not None:
        os.environ[BLAS] = blas
    threads = int(blas or os.environ["OMP_NUM_THREADS"])
    if threads > 1:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        threadpool_limits(threads, user_api="blas")
    # Numbers that nobody has seeded differ between new processes; between forked ones, too.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    connection = socket.socket(fileno=descriptor)
    serve(connection.makefile("r", encoding="utf-8"), connection.makefile("w", encoding="utf-8"))


def main(arguments: Sequence[str]) -> None:
    """Run a worker, or the fork server on a socket.

    Args:
        arguments: none; or the socket's descriptor, the value of :data:`BLAS` for workers, and the
            modules to import.
    """
    if arguments:
        descriptor, blas, *modules = arguments
        channel = socket.socket(fileno=int(descriptor))
        fork_on_request(channel, modules, blas or None)
    serve(sys.stdin, os.fdopen(os.dup(1), "w", encoding="utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
