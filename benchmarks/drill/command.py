"""The fedlit command in processes that have imported it already: each is forked from one that did nothing but import.

``python command.py`` is that process: it reads requests, one JSON object a line, and answers with a line each.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 300.0
"""Seconds after which a command counts as one that hangs."""


@dataclass
class Running:
    """A command that was started."""

    pid: int
    log: Path
    server: Any

    def wait(self, seconds: float = LONGEST) -> tuple[int, str]:
        """Exit status (of a signal, its negative), and all that was printed; it is killed behind that time."""
        status = self.server.ask({"wait": self.pid, "seconds": seconds})["status"]
        return status, self.said

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def await_line(self, pattern: str, seconds: float = 120.0) -> bool:
        """Wait until it has printed that, or has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if re.search(pattern, self.said):
                return True
            if not Path(f"/proc/{self.pid}").exists():
                return False
            time.sleep(0.02)
        return False

    def send(self, number: int) -> None:
        """Send a signal; nothing where it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Commands:
    """Starts commands. ``with Commands(folder) as commands: commands.run("fit", ...)``.

    Args:
        folder: where they run, and where what they print is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        folder.mkdir(parents=True, exist_ok=True)
        own = Path(__file__).resolve()
        path = os.pathsep.join([str(own.parents[2]), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        self.server = subprocess.Popen(
            [sys.executable, str(own)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *error: object) -> None:
        self.server.kill()
        self.server.wait()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask the process that forks."""
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def start(self, *args: str, most: int = 0) -> Running:
        """Start a command.

        Args:
            args: behind ``fedlit``.
            most: bytes that a file may have; any number if 0.
        """
        self.count += 1
        log = self.folder / f"said_{self.count}.txt"
        request = {"args": args, "folder": str(self.folder), "log": str(log), "most": most}
        return Running(self.ask(request)["pid"], log, self)

    def run(self, *args: str, **limits: Any) -> tuple[int, str]:
        """Start a command and wait for its end."""
        return self.start(*args, **limits).wait()


def in_one_message(said: str) -> bool:
    """Whether nobody saw a traceback or another library's words."""
    return "Traceback" not in said and "FEDLIT_DEBUG" not in said and "Exception ignored" not in said


# ---------------------------------------------------------------------- the process that forks


def serve() -> None:
    """Fork a child for each request."""
    import fedlit.__main__
    import fedlit.cli.runs
    import fedlit.run.load  # noqa: F401

    while line := sys.stdin.readline():
        request = json.loads(line)
        if "wait" in request:
            answer = {"status": _wait(request["wait"], request["seconds"])}
        else:
            child = os.fork()
            if not child:
                _become(request)
            answer = {"pid": child}
        print(json.dumps(answer), flush=True)


def _wait(pid: int, seconds: float) -> int:
    handle = os.pidfd_open(pid)
    try:
        if not select.select([handle], [], [], seconds)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(request: dict[str, Any]) -> None:
    import resource

    from fedlit.__main__ import main

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for own in (1, 2):
        os.dup2(log, own)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["folder"])
    if request["most"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["most"], resource.RLIM_INFINITY))
    sys.argv = ["fedlit", *request["args"]]
    sys.exit(main())


if __name__ == "__main__":
    serve()
