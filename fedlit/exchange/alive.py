"""Processes of one job: where each stands, who is alive, and how all end with one message where one ends."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from fedlit.errors import ConfigError, RunError
from fedlit.show.shown import print_notice
from fedlit.show.text import shorten

__all__ = ["GO_ON", "Alive", "Forwarded", "Place", "alone", "find_place"]

_SILENT = 30
"""Seconds without a sign of life, until a machine is taken for gone; its kernel answers for busy processes."""
_HOLD = 1.0
"""Seconds in which a signal waits for its cause: launchers end all processes of a job where one has died."""
_SIGNALS = {
    signal.SIGTERM: ("the run was terminated (SIGTERM, at rank {})", 1),
    signal.SIGINT: ("interrupted", 130),
}
"""Signal → what is said, and the exit status."""
GO_ON = {True: "continue with --ckpt_path last", False: "no checkpoint had been written: start it again"}
"""Whether there is a checkpoint → what to do after a run that was cut short."""
_WELCOME = 60.0
"""Seconds in which each rank that has come must have a line."""
_VERDICT = 20.0
"""Seconds that a process waits to be told how all end."""


@dataclass(frozen=True)
class Place:
    """Where a process stands in a job.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local: its number on its machine, from 0.
        address: of the machine of rank 0.
        port: there, where they meet.
    """

    rank: int
    size: int
    local: int
    address: str
    port: int


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """What torchrun or srun say; None where neither started this process, or it is the only one.

    Example:
        >>> find_place({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "n7", "MASTER_PORT": "29500"})
        Place(rank=1, size=2, local=1, address='n7', port=29500)
        >>> find_place({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"})  # a batch script, without srun
    """
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        rank, size, local = (int(environment.get(key, 0)) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    elif {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"} <= environment.keys():
        rank, size, local = (
            int(environment.get(key, 0)) for key in ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")
        )
        # the same port at all, and another one for each job of a machine
        port = int(environment.get("MASTER_PORT", 15000 + int(environment.get("SLURM_JOB_ID", "0")) % 10000))
        address = environment.get("MASTER_ADDR") or _first_node(environment) if size > 1 else ""
    else:
        return None
    return Place(rank, size, local, address, port) if size > 1 else None


def alone(what: str) -> None:
    """Refuse what one process does, where several were started to do it.

    Raises:
        ConfigError: torchrun or srun started several.
    """
    if (place := find_place()) is not None:
        raise ConfigError(
            f"expected one process for {what}, found {place.size} (torchrun or srun); start it without them. Several "
            "processes can fit, validate, test, predict and describe one federation"
        )


def _first_node(environment: Mapping[str, str]) -> str:
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "127.0.0.1")
    return SLURMEnvironment.resolve_root_node_address(nodes)


class Alive:
    """A line from each process to rank 0, which lives as long as the process: where one breaks, all end.

    Args:
        place: of this process.
        line: rank 0's ear, which listens already; another rank's line to it.
        token: known to this job's processes alone.

    Attributes:
        about: rank → its host, process and clients, as far as they are known.
        kept: whether there is a checkpoint to continue from.
    """

    def __init__(self, place: Place, line: socket.socket, token: str) -> None:
        self.place = place
        self.about: dict[int, dict[str, Any]] = {}
        self.kept = False
        self._lines: dict[int, socket.socket] = {}
        self._left: set[int] = set()
        self._said: set[str] = set()
        self._lock, self._told = threading.RLock(), threading.Event()
        self._ending: threading.Timer | None = None
        if place.rank:
            self._lines[0] = line
            self._send(0, {"rank": place.rank, "token": token})
        else:
            self._welcome(line, token)
        for own in self._lines.values():
            _keep_alive(own)
        self._signals, self._into = os.pipe()
        os.set_blocking(self._into, False)
        self._heed()
        self._thread = threading.Thread(target=self._listen, daemon=True, name="alive")
        self._thread.start()
        self.introduce([])

    def _heed(self) -> None:
        """Hear of signals also while the main thread waits for others, when Python's own handlers wait too."""
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._into, warn_on_full_buffer=False)
            for number in _SIGNALS:
                signal.signal(number, lambda *_: None)

    def _welcome(self, ear: socket.socket, token: str) -> None:
        ear.settimeout(_WELCOME)
        while len(self._lines) < self.place.size - 1:
            try:
                line, _ = ear.accept()
            except TimeoutError:
                for rank in list(self._lines):
                    self._send(rank, {"end": ConfigError.exit_status})
                away = shorten([str(rank) for rank in range(1, self.place.size) if rank not in self._lines])
                raise ConfigError(
                    f"expected {self.place.size} ranks, found that of {away} nothing was heard for {_WELCOME:.0f} "
                    "seconds after they had come; see what they said, and start again"
                ) from None
            line.settimeout(10)
            with suppress(OSError, ValueError, KeyError):
                hello = json.loads(_first_line(line))
                if hello["token"] == token:
                    line.settimeout(None)
                    self._lines[int(hello["rank"])] = line
                    continue
            line.close()
        ear.close()

    def introduce(self, clients: list[str]) -> None:
        """Tell the others who is here, for their messages."""
        own = {"host": socket.gethostname(), "process": os.getpid(), "clients": clients, "local": self.place.local}
        self.about[self.place.rank] = own
        for rank in self._lines:
            self._send(rank, {"about": [self.place.rank, own]})

    def warn(self, text: str) -> None:
        """Have a warning printed once, whoever says it."""
        if self.place.rank:
            self._send(0, {"warning": text})
        else:
            self._warn(text)

    def _warn(self, text: str) -> None:
        with self._lock:
            known = text in self._said
            self._said.add(text)
        if not known:
            print_notice(text)

    # ------------------------------------------------------------------ the end

    def leave(self) -> None:
        """This process has done its work: what ends it now is nobody's concern."""
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
        self._left |= set(self._lines)
        for rank in list(self._lines):
            self._send(rank, {"bye": True})
        os.write(self._into, bytes([0]))  # no signal's number
        self._thread.join(5)

    def fail(self, text: str, status: int, *, by_signal: bool = False) -> NoReturn:
        """End all processes.

        Args:
            text: what is printed, once.
            status: of all.
            by_signal: whether somebody outside ended this process; what another one says or does is told instead.
        """
        if self.place.rank:
            self._send(0, {"failed": text, "status": status, "signal": by_signal})
        else:
            self._decide(text, status, by_signal)
        self._told.wait(_VERDICT)
        print_notice(text)  # nobody decides any more
        _exit(status)

    def await_verdict(self) -> NoReturn:
        """A connection has broken: somebody ended, who is known in a moment."""
        time.sleep(_VERDICT + _SILENT)
        if self._left:
            raise RunError(
                f"{self._named(self._left)} had done its work and ended, while rank {self.place.rank} went on; do all "
                f"run the same script? {self.go_on().capitalize()}"
            )
        raise RunError(
            "expected the other processes of this job to answer, found a broken connection though all of them live; "
            f"is the network all right? {self.go_on().capitalize()}"
        )

    def go_on(self) -> str:
        """What to do after a run that was cut short."""
        return GO_ON[self.kept]

    def _named(self, ranks: Collection[int]) -> str:
        return f"rank{'s' if len(ranks) > 1 else ''} {shorten([str(rank) for rank in sorted(ranks)])}"

    def _decide(self, text: str, status: int, by_signal: bool) -> None:
        with self._lock:
            if by_signal:
                if self._ending is None:
                    if self._left:  # launchers end all where one ends badly, even after its work
                        text += f". Before, {self._named(self._left)} had done its work: see how that ended"
                    self._ending = threading.Timer(_HOLD, self._decide, (text, status, False))
                    self._ending.daemon = True
                    self._ending.start()
                return
            if self._told.is_set():
                return
            self._told.set()
            print_notice(text)
            for rank in list(self._lines):
                self._send(rank, {"end": status})
            _exit(status)

    # ------------------------------------------------------------------ lines

    def _send(self, rank: int, message: Mapping[str, Any]) -> None:
        with self._lock, suppress(OSError):  # a broken line is noticed where it is read
            self._lines[rank].sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        chosen, rest = selectors.DefaultSelector(), dict.fromkeys(self._lines, b"")
        for rank, line in self._lines.items():
            chosen.register(line, selectors.EVENT_READ, rank)
        chosen.register(self._signals, selectors.EVENT_READ, None)
        while True:
            for key, _ in chosen.select():
                rank, content = key.data, b""
                if rank is None:
                    numbers = os.read(self._signals, 64)
                    self._signalled(numbers)
                    if 0 in numbers:
                        return
                    continue
                with suppress(OSError):  # no sign of life
                    content = self._lines[rank].recv(65536)
                if not content:
                    chosen.unregister(key.fileobj)
                    if rank not in self._left:
                        self._lost(rank)
                    continue
                *whole, rest[rank] = (rest[rank] + content).split(b"\n")
                for message in whole:
                    self._heard(rank, json.loads(message))

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _SIGNALS:
                text, status = _SIGNALS[signal.Signals(number)]
                text = f"fedlit: {'error: ' if status == 1 else ''}{text.format(self.place.rank)}; {self.go_on()}"
                if self.place.rank:
                    self._send(0, {"failed": text, "status": status, "signal": True})
                else:
                    self._decide(text, status, True)

    def _heard(self, rank: int, message: Mapping[str, Any]) -> None:
        if "about" in message:
            own, self.about[own] = message["about"][0], message["about"][1]
            for other in self._lines if not self.place.rank else ():
                if other != rank:
                    self._send(other, message)
        elif "warning" in message:
            self._warn(message["warning"])
        elif "bye" in message:
            self._left.add(rank)
        elif "failed" in message:
            self._decide(message["failed"], message["status"], message["signal"])
        elif "end" in message:
            self._told.set()
            _exit(message["end"])

    def _lost(self, rank: int) -> None:
        about = self.about.get(rank, {})
        host, clients = about.get("host"), about.get("clients") or []
        whose = f"; its clients: {shorten(clients)}" if clients else ""
        text = (
            f"fedlit: error: rank {rank} of {self.place.size} (on {host or 'an unknown host'}, process "
            f"{about.get('process', 'unknown')}{whose}) ended without a word: was it killed, or out of memory? The "
            f"other ranks end with it; {self.go_on()}"
        )
        if not self.place.rank:
            self._decide(text, 1, False)
            return
        here = [own for own, one in self.about.items() if own and one["host"] == socket.gethostname()]
        if self.place.rank == min(here, default=self.place.rank):  # one message a machine
            print_notice(text)
        _exit(1)


def _first_line(line: socket.socket, most: int = 200) -> bytes:
    """Without what follows."""
    content = b""
    while not content.endswith(b"\n") and len(content) < most:
        if not (byte := line.recv(1)):
            break
        content += byte
    return content


def _keep_alive(line: socket.socket) -> None:
    """Have the kernel find out that a machine is gone, which says no good-bye."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _SILENT // 3), ("TCP_KEEPINTVL", _SILENT // 6), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _exit(status: int) -> NoReturn:
    """At once, whatever other threads wait for."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)


class Forwarded(logging.Handler):
    """Warnings of all processes, each printed once."""

    def __init__(self, alive: Alive) -> None:
        super().__init__(logging.WARNING)
        self.alive = alive

    def emit(self, record: logging.LogRecord) -> None:
        """See the class."""
        self.alive.warn(record.getMessage())
