"""Locks that allow only one process at a time to use a folder.

The system releases a lock when its process ends in any way. The lock's file also names the process that holds the lock,
for messages to other processes. It is removed when the lock is released. A file that is left belongs to a process that
was killed, and its lock is taken over.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten

from filelock import FileLock, Timeout

from fedlit.errors import ConfigError
from fedlit.files import advice, reason


@contextmanager
def exclusive(path: Path, expected: str, do: str) -> Iterator[None]:
    """Hold a lock inside the block.

    Args:
        path: the path of its file.
        expected: what must not be the case, as the beginning of the error message: ``"expected no other process …"``.
        do: what the user can do, for the error message.

    Raises:
        ConfigError: another process holds the lock (the message says which), or its folder cannot be written to.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, exclusive(Path(folder, ".lock"), "expected nobody here", "wait"):
        ...     try:
        ...         exclusive(Path(folder, ".lock"), "expected nobody here", "wait").__enter__()
        ...     except ConfigError as error:
        ...         str(error).startswith(f"expected nobody here, found process {os.getpid()} on ")
        True
    """
    lock = FileLock(path, timeout=0, mode=0o644, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(f"{expected}, found {_holder(path)}; {do}") from None
    except OSError as error:
        raise ConfigError(
            f"{path.parent}: expected a folder that can be written to, found: {reason(error)}; {advice(error)}, or "
            "give another one"
        ) from error
    held = os.stat(path)
    words = ["fedlit", *sys.argv[1:]] if "fedlit" in sys.argv[0] else []
    command = shorten(shlex.join(words), 120, placeholder=" …")
    began = time.strftime("%Y-%m-%d %H:%M:%S")
    own = {"pid": os.getpid(), "host": socket.gethostname(), "began": began, "command": command}
    with suppress(OSError):  # a full disk does not keep it from being held
        path.write_text(json.dumps(own), encoding="utf-8")  # the file itself: a new one would not be locked
    try:
        yield
    finally:
        with suppress(OSError):  # another process may hold a new file, where the folder was removed meanwhile
            if os.path.samestat(held, os.stat(path)):
                path.unlink()
        lock.release(force=True)


def _holder(path: Path) -> str:
    """Describe the process that a lock's file names. The file may be empty for a moment."""
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
        command = f", {own['command']}" if own["command"] else ""
        return f"process {own['pid']} on {own['host']}{command}, since {own['began']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "one"
