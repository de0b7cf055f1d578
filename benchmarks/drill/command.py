"""The fedlit command in processes that are forked from this one, which has imported it already
(:mod:`drill.forks`).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drill.forks import ended, kill, start

LONGEST = 300.0
"""Seconds after which a command counts as one that hangs."""


@dataclass
class Running:
    """A command that was started."""

    pid: int
    log: Path

    def wait(self, seconds: float = LONGEST) -> tuple[int, str]:
        """Exit status (of a signal, its negative), and all that was printed; it is killed behind
        that time.
        """
        status = ended(self.pid, seconds)
        if status is None:
            kill(self.pid)
            status = ended(self.pid, 5)
        return status or 0, self.log.read_text(encoding="utf-8", errors="replace")

    def send(self, number: int) -> None:
        """Send a signal; nothing where it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Commands:
    """Starts commands: ``Commands(folder).run("fit", ...)``.

    Args:
        folder: where they run, and where what they print is kept.
    """

    def __init__(self, folder: Path) -> None:
        import fedlit.__main__
        import fedlit.cli.runs
        import fedlit.run.load  # noqa: F401

        self.folder = folder
        self.count = 0

    def start(self, *args: str, most: int = 0) -> Running:
        """Start a command.

        Args:
            args: behind ``fedlit``.
            most: bytes that a file may have; any number if 0.
        """
        self.count += 1
        log = self.folder / f"said_{self.count}.txt"
        return Running(start(lambda: _become(args, self.folder, most), log), log)

    def run(self, *args: str, **limits: int) -> tuple[int, str]:
        """Start a command and wait for its end."""
        return self.start(*args, **limits).wait()


def _become(args: tuple[str, ...], folder: Path, most: int) -> int:
    from fedlit.__main__ import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(folder)
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    sys.argv = ["fedlit", *args]
    return main()


def in_one_message(said: str) -> bool:
    """Whether nobody saw a traceback or another library's words."""
    return (
        "Traceback" not in said and "FEDLIT_DEBUG" not in said and "Exception ignored" not in said
    )
