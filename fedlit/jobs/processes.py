"""Worker processes as the process that asks them sees them: forked where that is safe, and otherwise
started anew (see :mod:`fedlit.jobs.worker`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from fedlit.exchange.place import refuse_ranks
from fedlit.jobs.worker import BLAS, FORK

_LATE = (
    "pyarrow.dataset",
    "pyarrow.parquet",
    "sklearn.compose",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.pipeline",
)
"""Modules that jobs import only when they need them."""
# -P: no module of the working directory
_COMMAND = [sys.executable, "-P", "-m", "fedlit.jobs.worker"]


class Process(Protocol):
    """A worker that runs."""

    requests: IO[str]
    answers: IO[str]

    def kill(self) -> None:
        """Kill it."""

    def wait(self) -> int:
        """Wait for its end, and return its exit status; minus the number of a signal."""


class _Started:
    """A worker that is a new process.

    Args:
        environment: the environment of the process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            _COMMAND, stdin=pipe, stdout=pipe, env=environment, text=True, encoding="utf-8"
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.requests: IO[str] = self._process.stdin
        self.answers: IO[str] = self._process.stdout

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        return self._process.wait()


class _Forked:
    """A worker that was forked.

    Args:
        server: the process that forked it.
        pid: its number.
        connection: the connection to it.
    """

    def __init__(self, server: ForkServer, pid: int, connection: socket.socket) -> None:
        self._server = server
        self._pid = pid
        self._status: int | None = None
        self._lock = threading.Lock()
        self.requests: IO[str] = connection.makefile("w", encoding="utf-8")
        self.answers: IO[str] = connection.makefile("r", encoding="utf-8")
        connection.close()  # it stays open as long as these two

    def kill(self) -> None:
        with self._lock:
            # Its number belongs to no other process before the server has waited for it.
            if self._status is None:
                os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        with self._lock:
            if self._status is None:
                self._status = self._server.wait(self._pid)
            return self._status


class ForkServer:
    """A process that imports modules, and forks workers.

    Args:
        environment: the environment of the workers.
        modules: the modules that they need.
    """

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self._channel, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptor = remote.fileno()
        self._process = subprocess.Popen(
            [*_COMMAND, str(descriptor), environment.get(BLAS, ""), *modules, *_LATE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**environment, BLAS: "1"},
            pass_fds=[descriptor],
        )
        remote.close()
        self._lock = threading.Lock()

    def fork(self) -> _Forked | None:
        """Return a new worker, or None if the server cannot be forked, or has ended."""
        local, remote = socket.socketpair()
        with self._lock, remote:
            try:
                socket.send_fds(self._channel, [FORK], [remote.fileno()])
                pid = int(self._channel.recv(64) or -1)
            except OSError:  # it was killed
                pid = -1
        if pid < 0:
            local.close()
            return None
        return _Forked(self, pid, local)

    def wait(self, pid: int) -> int:
        """Wait for the end of a worker, and return its exit status."""
        with self._lock:
            try:
                self._channel.send(str(pid).encode())
                return int(self._channel.recv(64) or -signal.SIGKILL)
            except OSError:  # the server was killed, and its workers with it
                return -signal.SIGKILL

    def stop(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()
        self._channel.close()


class Workshop:
    """Starts the worker processes of a pool.

    Args:
        threads: the number of threads that each may use.
        modules: the modules that they need.
    """

    def __init__(self, threads: int, modules: Sequence[str] = ()) -> None:
        refuse_ranks("what starts processes of its own")
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self._environment = {**os.environ, **limits}
        self._modules = modules
        self._server: ForkServer | None = None
        self._lock = threading.Lock()
        # Elsewhere libraries of the system may have threads that a forked process lacks.
        self.forks = sys.platform == "linux"
        """Whether a new worker costs next to nothing."""

    def worker(self) -> Process:
        """Return a new worker."""
        forked = self._forked() if self.forks else None
        return _Started(self._environment) if forked is None else forked

    def _forked(self) -> Process | None:
        """Return a worker of the fork server, which is started with the first one. Without such a
        server, workers are started from now on.
        """
        with self._lock:
            if self._server is None:
                self._server = ForkServer(self._environment, self._modules)
        forked = self._server.fork()
        self.forks = forked is not None
        return forked

    def stop(self) -> None:
        """End the fork server."""
        if self._server is not None:
            self._server.stop()


class WorkerProcess:
    """A worker process. It is started when first needed, and again after a crash.

    Args:
        workshop: starts it.
    """

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._process: Process | None = None
        self._memory = ""

    def call(self, function: str, arguments: Mapping[str, Any], log: Path, memory: str = "") -> str:
        """Call a function in the process. Return the error that ended it, or an empty string.

        Args:
            function: the function, as ``module:name``; it takes one mapping.
            arguments: the mapping for the function, as plain data.
            log: the file for what is printed.
            memory: the name of what the function keeps in memory for later calls. A call with
                another name, or without one, gets a new process if these cost nothing.
        """
        if self._workshop.forks and not (memory and memory == self._memory):
            self.stop()
        self._memory = memory
        if self._process is None:
            self._process = self._workshop.worker()
        process = self._process
        request = {"function": function, "arguments": arguments, "log": str(log), "path": sys.path}
        try:
            print(json.dumps(request), file=process.requests, flush=True)
            answer = process.answers.readline()
        except (OSError, ValueError):  # it ended, or was stopped meanwhile
            answer = ""
        if answer:
            return str(json.loads(answer))
        status = process.wait()
        self._process = None
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        suspicion = "; out of memory?" if status == -signal.SIGKILL else ""
        return f"its process ended ({how}){suspicion}"

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
