"""``fedlit coordinate start``: runs Flower's SuperLink and ServerApp, and starts again what was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any

from fedlit.errors import ConfigError, RunError
from fedlit.institutions.child import command
from fedlit.institutions.extra import QUIET, needs_flower
from fedlit.institutions.folder import check, invite
from fedlit.institutions.settings import CoordinatorSettings, read_coordinator
from fedlit.locks import exclusive
from fedlit.run.config import shown
from fedlit.show.shown import say

__all__ = ["SERVE", "start"]

SERVE = "fedlit.institutions.coordinator:serve"
"""What the ServerApp calls with the folder and a line to the sites."""
_DEATHS, _WITHIN = 8, 120.0
_GRACE = 10.0


class _Gone(Exception):
    """A child has ended."""


class _Child:
    """A process that ends when this one does (see :mod:`fedlit.institutions.child`)."""

    def __init__(self, module: str, arguments: list[str], settings: CoordinatorSettings, log: IO[str] | None) -> None:
        # Flower keeps a folder of its own, else in the home of whoever starts it
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(settings.state / "flower"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command(module, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if log is not None else None,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends them
        )

    def tell(self, message: dict[str, Any]) -> None:
        """Say a line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise _Gone from error

    def hear(self) -> dict[str, Any]:
        """Wait for a line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise _Gone
        heard: dict[str, Any] = json.loads(line)
        return heard

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say a line, and wait for the answer."""
        self.tell(message)
        return self.hear()

    def end(self) -> int:
        """End it, at last by force."""
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        for send in (None, self.process.terminate, self.process.kill):
            if send is not None:
                send()
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(_GRACE)
        return self.process.wait()


class _Coordinator:
    """Both children, and how often one has died."""

    def __init__(self, settings: CoordinatorSettings, serve: str, stop: threading.Event) -> None:
        self.settings, self._serve, self._stop = settings, serve, stop
        self._log = settings.state / "superlink.log"
        self._link: _Child | None = None
        self._app: _Child | None = None
        self._address: dict[str, Any] = {}
        self._deaths: deque[float] = deque(maxlen=_DEATHS)

    def run(self) -> int:
        """Wait until the ServerApp has ended by itself, and return its exit status."""
        while not self._stop.is_set():
            try:
                code = self._once()
            except _Gone:
                self._died("Flower's SuperLink", self._link)
                self._link = None
                continue
            if code in (0, 1, 2):
                return self._finished(code)
            if not self._stop.is_set():
                with suppress(_Gone):
                    self._close("failed", f"exit status {code}")
                self._died("The coordinator's ServerApp", self._app)
        return -1

    def end(self) -> None:
        """Leave no process behind."""
        for child in (self._app, self._link):
            if child is not None:
                child.end()
        self._app = self._link = None

    def _once(self) -> int | None:
        settings = self.settings
        most = str(settings.most)
        arguments = ["--folder", str(settings.folder), "--serve", self._serve, "--most", most]
        # first, for it imports while the SuperLink does
        self._app = _Child("fedlit.institutions.serverapp", arguments, settings, None)
        if self._link is None:
            self._link = self._start_link()
        run = self._link.ask({"do": "begin"})
        with suppress(_Gone):  # it may have died already
            self._app.tell({**self._address, **run})
        while not self._stop.wait(0.1):
            if self._link.process.poll() is not None:
                raise _Gone
            if (code := self._app.process.poll()) is not None:
                return code
        return None

    def _start_link(self) -> _Child:
        settings = self.settings
        arguments = {
            "--listen": settings.listen,
            "--port": str(settings.port),
            "--certificates": str(settings.certificates),
            "--keys": str(settings.keys),
            "--sites": ",".join(settings.sites),
            "--most": str(settings.most),
        }
        with self._log.open("a", encoding="utf-8") as log:
            before = log.tell()
            link = _Child("fedlit.institutions.superlink", [f"{k}={v}" for k, v in arguments.items()], settings, log)
        try:
            self._address = link.hear()
        except _Gone:
            if (code := link.end()) in (1, 2):
                told = self._log.read_text(encoding="utf-8")[before:]
                wrong = [line for line in told.splitlines() if line.startswith("fedlit: error: ")]
                kind = ConfigError if code == 2 else RunError
                raise kind(wrong[-1].removeprefix("fedlit: error: ") if wrong else told) from None
            self._link = link
            raise
        return link

    def _close(self, kind: str, details: str) -> dict[str, Any]:
        if self._link is None:
            raise _Gone
        return self._link.ask({"do": "end", "kind": kind, "details": details})

    def _finished(self, code: int) -> int:
        """The exit status that is true: the ServerApp's own, Flower's status of the run and the folder must agree."""
        with suppress(_Gone):
            status = self._close("failed" if code else "completed", f"exit status {code}")
            say(f"Flower carried {status['sent']:,} bytes to the sites and {status['received']:,} from them")
            if code:
                return code
            if (status["status"], status["sub_status"]) != ("finished", "completed"):
                raise RunError(f"expected Flower to say that the run has finished, found {status}")
        path = self.settings.state / "progress.json"
        try:
            state = json.loads(path.read_text(encoding="utf-8"))["state"]
        except (OSError, ValueError, KeyError):
            state = "nothing"
        if not code and state != "finished":
            raise RunError(
                f"{shown(path)}: expected the federation to have finished, found {state!r}; start again to go on"
            )
        return code

    def _died(self, what: str, child: _Child | None) -> None:
        code = child.process.wait() if child is not None else 0
        if self._app is not None:
            self._app.end()
            self._app = None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
        self._deaths.append(time.monotonic())
        if len(self._deaths) == _DEATHS and self._deaths[-1] - self._deaths[0] < _WITHIN:
            raise RunError(
                f"{what} {how}, the {_DEATHS}th time within {_WITHIN:.0f} s; look at {shown(self._log)}, then start "
                "again to go on"
            )
        say(f"{what} {how}; started again")
        self._stop.wait(0.1 * 2 ** len(self._deaths))


@contextmanager
def _signals(stop: threading.Event) -> Iterator[list[int]]:
    """While inside, SIGINT and SIGTERM ask to stop; those that came."""
    came: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        came.append(number)
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(folder: Path, serve: str = SERVE, stop: threading.Event | None = None) -> int:
    """Coordinate until the federation has finished, failed, or Ctrl-C or SIGTERM came.

    Args:
        folder: made by ``fedlit coordinate init``.
        serve: a module and a function, divided by a colon: called with the folder and a line to the sites.
        stop: set from elsewhere to stop.

    Returns:
        Exit status: 0 only if the federation has finished; 1 where it failed, 2 for what cannot be run, 130 or 143
        where it was stopped, and goes on when started again.

    Raises:
        ConfigError: the folder does not fit.
        RunError: what was started dies again and again.
    """
    settings = read_coordinator(folder)
    with needs_flower():
        pass
    for warning in check(settings):
        say(warning)
    settings.state.mkdir(exist_ok=True)
    if changed := invite(settings):
        say(
            f"Invitations written anew for {', '.join(changed)}, for federation.yaml, ca.crt or the address has "
            "changed: hand them out again"
        )
    stop = stop or threading.Event()
    expected = f"{shown(settings.folder)}: expected no other coordinator to run here"
    with exclusive(settings.state / "lock", expected, "end it first"), _signals(stop) as came:
        coordinator = _Coordinator(settings, serve, stop)
        say(f"Waits for {', '.join(settings.sites)} at {settings.address}:{settings.port}")
        try:
            code = coordinator.run()
        finally:
            coordinator.end()
        if code < 0:
            say(f"Stopped; fedlit coordinate start {shown(folder)} goes on where it was")
            return 128 + (came[0] if came else signal.SIGTERM)
        return code
