"""One process at a time in a folder, and who it is.

The system lets go of a lock when its process ends, however. The file also says who holds it, for whoever is refused. It
is removed when the lock is given back; so one that is left was left by a process that was killed.
"""

from __future__ import annotations

import errno
import fcntl
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

from fedlit.errors import ConfigError, RunError
from fedlit.files import advice, reason

__all__ = ["Lock", "alone"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""By this Linux tells one start of a system from another; containers see that of their machine."""

_UNABLE = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system says that knows no locks: then the process that is named decides."""


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
        self._handle: int | None = None

    def acquire(self) -> None:
        """Hold it.

        Raises:
            ConfigError: another process holds it, or one of another machine may; says which. Or its folder cannot be
                written to.
        """
        while self._handle is None:
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise ConfigError(
                    f"{self.path.parent}: expected a folder that can be written to, found: {reason(error)}; "
                    f"{advice(error)}, or give another one"
                ) from error
            try:
                self._take(handle)
                if _is_at(handle, self.path):  # else whoever held it has given it back, and removed the file
                    self._sign(handle)
                    self._handle = handle
            finally:
                if self._handle is None:
                    os.close(handle)

    def _take(self, handle: int) -> None:
        holder, known = _read(handle), True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._refusal(holder) from None
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            known = False
            if holder.get("host") == socket.gethostname() and _lives(holder):
                raise self._refusal(holder) from None
        here = holder.get("host", socket.gethostname()) == socket.gethostname()
        if not here and not (known and _same_system(holder, handle)):  # locks need not reach across machines
            raise self._refusal(holder, f"; if that process has ended, remove {self.path}")

    def _refusal(self, holder: dict[str, Any], more: str = "") -> ConfigError:
        return ConfigError(f"{self.expected}, found {_shown(holder)}; {self.do}{more}")

    @staticmethod
    def _sign(handle: int) -> None:
        """Say who holds it; a full disk does not keep it from being held."""
        by_command = "fedlit" in sys.argv[0]
        own = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "began": time.strftime("%Y-%m-%d %H:%M:%S"),
            "started": _started(os.getpid()),
            "command": shorten(shlex.join(["fedlit", *sys.argv[1:]]), 120, placeholder=" …") if by_command else "",
            **_system(handle),
        }
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(own).encode(), 0)

    @property
    def held(self) -> bool:
        """Whether this process holds it, and its file is still there."""
        return self._handle is not None and _is_at(self._handle, self.path)

    def renew(self) -> bool:
        """Hold it still, also where its folder was removed and is made again; whether it was.

        Raises:
            RunError: another process has taken its place.
        """
        if self.held:
            return False
        self._close()
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
        self._close()

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def alone(path: Path, expected: str, do: str) -> Iterator[Lock]:
    """Hold a :class:`Lock` inside the block."""
    lock = Lock(path, expected, do)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


def _is_at(handle: int, path: Path) -> bool:
    try:
        own, there = os.fstat(handle), path.stat()
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def _read(handle: int) -> dict[str, Any]:
    """Who a lock's file names; nobody where it is empty, or was cut short."""
    try:
        found = json.loads(os.pread(handle, 4096, 0))
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


def _system(handle: int) -> dict[str, Any]:
    """The running system that keeps the lock, and the file system in it: containers of one machine share them."""
    with suppress(OSError):
        return {"boot": _BOOT.read_text(encoding="ascii").strip(), "device": os.fstat(handle).st_dev}
    return {}


def _same_system(holder: dict[str, Any], handle: int) -> bool:
    """Whether a lock of that holder's would have kept this one away, whatever its host is called."""
    own = _system(handle)
    return bool(own) and all(holder.get(key) == value for key, value in own.items())


def _lives(holder: dict[str, Any]) -> bool:
    """Whether a process of this machine is still that one, and no later one of the same number."""
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return False
    except (OSError, LookupError, ValueError):
        return True
    return holder.get("started") is None or holder["started"] == _started(int(holder["pid"]))


def _started(pid: int) -> str | None:
    """When a process began, as its system counts; None where that is not told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
