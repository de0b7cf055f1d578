"""One process at a time in a folder, and who it is.

The system lets go of a lock when its process ends, however. The file also says who holds it, for whoever is refused. It
is removed when the lock is given back; so one that is left was left by a process that was killed.
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
from typing import Any

from filelock import FileLock, Timeout

from fedlit.errors import ConfigError, RunError
from fedlit.files import advice, reason

__all__ = ["Lock", "exclusive"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""By this Linux tells one start of a system from another; containers see that of their machine."""


class Lock:
    """A lock, not held yet.

    Args:
        path: of its file.
        expected: what must not be the case, for the message: ``"expected no other process …"``.
        do: what a person can do, for the message.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     lock = Lock(Path(folder, ".lock"), "expected nobody here", "wait")
        ...     lock.acquire()
        ...     try:
        ...         Lock(lock.path, "expected nobody here", "wait").acquire()
        ...     except ConfigError as error:
        ...         str(error).startswith(f"expected nobody here, found process {os.getpid()} on this machine")
        ...     lock.release()
        True
    """

    def __init__(self, path: Path, expected: str, do: str) -> None:
        self.path, self.expected, self.do = path, expected, do
        self._lock = FileLock(path, timeout=0, mode=0o644, thread_local=False, fallback_to_soft=False)
        self._file: tuple[int, int] | None = None

    def acquire(self) -> None:
        """Hold it.

        Raises:
            ConfigError: another process holds it, or one of another machine may; says which. Or its folder cannot be
                written to.
        """
        if self.held:
            return
        holder = _read(self.path)
        try:
            self._lock.acquire()
        except Timeout:
            raise self._refusal(_read(self.path)) from None
        except OSError as error:
            raise ConfigError(
                f"{self.path.parent}: expected a folder that can be written to, found: {reason(error)}; "
                f"{advice(error)}, or give another one"
            ) from error
        system = _system(self.path)
        here = holder.get("host", socket.gethostname()) == socket.gethostname()
        if not here and not (system and all(holder.get(key) == value for key, value in system.items())):
            self._lock.release()  # locks need not reach across machines
            raise self._refusal(holder, f"; if that process has ended, remove {self.path}")
        self._sign(system)
        self._file = _file_at(self.path)

    def _refusal(self, holder: dict[str, Any], more: str = "") -> ConfigError:
        return ConfigError(f"{self.expected}, found {_shown(holder)}; {self.do}{more}")

    def _sign(self, system: dict[str, Any]) -> None:
        """Say who holds it; a full disk does not keep it from being held."""
        by_command = "fedlit" in sys.argv[0]
        own = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "began": time.strftime("%Y-%m-%d %H:%M:%S"),
            "command": shorten(shlex.join(["fedlit", *sys.argv[1:]]), 120, placeholder=" …") if by_command else "",
            **system,
        }
        with suppress(OSError):
            self.path.write_text(json.dumps(own), encoding="utf-8")  # the file itself: a new one would not be locked

    @property
    def held(self) -> bool:
        """Whether this process holds the lock, and its file is still there."""
        return self._lock.is_locked and self._file == _file_at(self.path)

    def renew(self) -> bool:
        """Hold it still, also where its folder was removed and is made again; whether it was.

        Raises:
            RunError: another process has taken its place.
        """
        if self.held:
            return False
        self._lock.release(force=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.acquire()
        except ConfigError as error:
            raise RunError(f"{self.path.parent} was removed while this process wrote there. {error}") from error
        return True

    def release(self) -> None:
        """Give it back."""
        if self.held:
            with suppress(OSError):
                self.path.unlink()
        self._lock.release(force=True)


@contextmanager
def exclusive(path: Path, expected: str, do: str) -> Iterator[Lock]:
    """Hold a :class:`Lock` inside the block."""
    lock = Lock(path, expected, do)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


def _file_at(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _read(path: Path) -> dict[str, Any]:
    """Return whom a lock's file names; an empty mapping if it is empty or was cut short."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _shown(holder: dict[str, Any]) -> str:
    if "pid" not in holder:
        return "one"
    here = holder.get("host") == socket.gethostname()
    where = f"this machine ({holder['host']})" if here else str(holder.get("host"))
    what = f", {holder['command']}" if holder.get("command") else ""
    return f"process {holder['pid']} on {where}{what}, since {holder.get('began')}"


def _system(path: Path) -> dict[str, Any]:
    """The running system that keeps the lock, and the file system in it: containers of one machine share them."""
    with suppress(OSError):
        return {"boot": _BOOT.read_text(encoding="ascii").strip(), "device": path.stat().st_dev}
    return {}
