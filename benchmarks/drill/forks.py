"""Processes that have imported everything already: each is forked from one that did nothing but
import. A hundred kills would otherwise be a hundred times ten seconds of imports.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def start(work: Callable[[], int | None], log: Path, **environment: str) -> int:
    """Begin work in a process, and a process group, of its own; what it prints goes to ``log``.

    Returns:
        Its number, and the group's.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return child
    os.setsid()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environment)
    status = 0
    try:
        import torch

        torch.set_num_threads(1)
        status = work() or 0
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException:
        status = 1
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exc()
        else:
            sys.last_value = sys.exc_info()[1]  # type: ignore[assignment]
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        atexit._run_exitfuncs()
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def ended(process: int, seconds: float) -> int | None:
    """The exit status of a process, None where it has not ended in time."""
    until = time.monotonic() + seconds
    while True:
        try:
            found, status = os.waitpid(process, os.WNOHANG)
        except ChildProcessError:
            return 0
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(0.01)


def alive(group: int) -> bool:
    """Whether anything of a process group lives, zombies apart."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            _, _, rest = path.read_text().rpartition(")")
            state, _, own, *_ = rest.split()
            if int(own) == group and state not in "ZX":
                return True
    return False


def kill(group: int) -> None:
    """Everything of a group, at once."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def told(log: Path, most: int = 600) -> str:
    """The end of what a process printed."""
    return log.read_text(encoding="utf-8", errors="replace")[-most:] if log.is_file() else ""


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])
