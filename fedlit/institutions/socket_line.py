"""The Unix socket between a site's two processes, both ends. Imports no third party.

What speaks to the network asks through a :class:`Courier`; the site's own process answers at its :class:`SocketLine`,
and the network has no other way to it. A connection is one question and one answer, each a length of 8 bytes
(big-endian) and so many bytes.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, RunError

__all__ = ["MOST", "Courier", "SocketLine", "receive", "send"]

MOST = 2**30
"""Bytes of one message, where nobody says how many."""
QUIET = 120.0
"""Seconds of silence after which a site says so, and again after as many."""

_LONGEST_PATH = 107  # bytes that Linux has for a Unix socket's path
_CHUNK = 2**20
_log = logging.getLogger(__name__)


def send(line: socket.socket, content: bytes) -> None:
    """Send a message.

    Args:
        line: a connected stream socket.
        content: the message.
    """
    line.sendall(struct.pack(">Q", len(content)))
    line.sendall(content)


def receive(line: socket.socket, most: int = MOST) -> bytes:
    """Wait for a message.

    Args:
        line: a connected stream socket.
        most: bytes that it may have; no byte of a longer one is read.

    Raises:
        EOFError: the other side has left.
        RunError: the message is longer.

    Example:
        >>> here, there = socket.socketpair()
        >>> send(here, b"round 3")
        >>> receive(there)
        b'round 3'
        >>> send(here, b"much too long")
        >>> receive(there, most=4)
        Traceback (most recent call last):
        ...
        fedlit.errors.RunError: expected a message of at most 4 bytes, found one of 13; raise the limit at both ends
        >>> here.close(), there.close()
        (None, None)
    """
    (length,) = struct.unpack(">Q", _exactly(line, 8))
    if length > most:
        raise RunError(
            f"expected a message of at most {most} bytes, found one of {length}; raise the limit at both ends"
        )
    return bytes(_exactly(line, length))


def _exactly(line: socket.socket, length: int) -> bytearray:
    """So many bytes; memory grows with what has come, not with what was announced."""
    found = bytearray()
    while len(found) < length:
        part = line.recv(min(length - len(found), _CHUNK))
        if not part:
            raise EOFError
        found += part
    return found


class Courier:
    """Has at most one question under way; a new one takes its place.

    Where the site's process is away, it tries again every second until the process is back.

    Args:
        path: of the site's Unix socket.
        answers: where (token, answer) are put; or (token, error) where an answer is too long, or the socket is not for
            this user.
        most: bytes of an answer.
    """

    def __init__(self, path: Path, answers: queue.SimpleQueue[tuple[Any, bytes | RunError]], most: int = MOST) -> None:
        if len(str(path).encode()) > _LONGEST_PATH:
            raise ConfigError(
                f"{path}: expected a path of at most {_LONGEST_PATH} bytes for a Unix socket, found "
                f"{len(str(path).encode())}; choose a folder nearer to the root"
            )
        self.path, self.answers, self.most = path, answers, most
        self._changed = threading.Condition()
        self._asked: tuple[Any, bytes] | None = None
        self._line: socket.socket | None = None
        self._closed = False
        threading.Thread(target=self._live, daemon=True, name=f"courier to {path.name}").start()

    def ask(self, token: Any, content: bytes) -> None:
        """Put a question in place of the one that is under way.

        Args:
            token: put before its answer.
            content: the question.
        """
        with self._changed:
            self._asked = token, content
            self._wake()

    def close(self) -> None:
        """Carry no more."""
        with self._changed:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        if self._line is not None:
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_RDWR)
        self._changed.notify_all()

    def _connect(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(self.path))
        except PermissionError as error:
            line.close()
            raise RunError(
                f"{self.path}: expected that this user may connect, found that it may not; choose a socket in a folder "
                "that both users may enter"
            ) from error
        except OSError:
            line.close()
            raise
        return line

    def _live(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked is not None or self._closed)
                asked = self._asked
            if self._closed or asked is None:
                return
            answer: bytes | RunError | None
            try:
                answer = self._carry(asked)
            except RunError as error:
                answer = error
            except (OSError, EOFError):
                answer = None
            with self._changed:
                if self._asked is not asked:
                    continue  # a newer question is there
                if answer is None:
                    self._changed.wait(1.0)
                    continue
                self._asked = None
            self.answers.put((asked[0], answer))

    def _carry(self, asked: tuple[Any, bytes]) -> bytes:
        with self._connect() as line:
            with self._changed:
                if self._asked is not asked or self._closed:
                    raise EOFError
                self._line = line
            try:
                send(line, asked[1])
                return receive(line, self.most)
            finally:
                with self._changed:
                    self._line = None


class SocketLine:
    """Hears questions that come over a Unix socket and answers them, one after another.

    Args:
        path: of the socket; whatever was there goes.
        most: bytes of a question.
        user: who speaks, where that is another than this process's; needs root.
        watch: is called about every second while nothing is heard; raises where nothing will be.
    """

    def __init__(
        self, path: Path, most: int = MOST, watch: Callable[[], None] = lambda: None, user: str | None = None
    ) -> None:
        if len(str(path).encode()) > _LONGEST_PATH:
            raise ConfigError(
                f"{path}: expected a path of at most {_LONGEST_PATH} bytes, which is all that a Unix socket may have; "
                "move the site's folder, or set socket: /tmp/north.sock in site.yaml"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.path, self._most, self._watch = path, most, watch
        self._server = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            self._server.bind(str(path))
        finally:
            os.umask(before)
        if user is not None:
            _give(path, user)
        self._server.listen()
        self._line: socket.socket | None = None

    def hear(self, seconds: float | None = None) -> bytes:
        """Wait for a question; one whose sender leaves before it is whole is no question.

        Args:
            seconds: at most; for ever if None.

        Raises:
            RunError: it is longer than allowed.
            TimeoutError: none came.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            self._hang_up()
            since, told = time.monotonic(), 0.0
            while not select.select([self._server], [], [], 1.0)[0]:
                if (waited := time.monotonic() - since) > told + QUIET:
                    told = waited
                    _log.warning(
                        "hears nothing of the coordinator for %.0f seconds: it waits for other sites, or is away",
                        waited,
                    )
                if until is not None and time.monotonic() > until:
                    raise TimeoutError
                self._watch()
            self._line, _ = self._server.accept()
            self._line.settimeout(60)
            try:
                return receive(self._line, self._most)
            except (EOFError, OSError):
                continue
            except RunError:
                self._hang_up()
                raise

    def answer(self, content: bytes) -> bool:
        """Answer the question; False where who asked is gone. It will ask again."""
        if self._line is None:
            return False
        try:
            send(self._line, content)
        except OSError:
            return False
        finally:
            self._hang_up()
        return True

    def _hang_up(self) -> None:
        if self._line is not None:
            with suppress(OSError):
                self._line.close()
            self._line = None

    def close(self) -> None:
        """Listen no more."""
        self._hang_up()
        self._server.close()
        self.path.unlink(missing_ok=True)


def _give(path: Path, user: str) -> None:
    try:
        shutil.chown(path, user)
    except (LookupError, OSError) as error:
        path.unlink()
        raise ConfigError(
            f"user: expected a user of this machine, and root to start this, found {user!r} ({error}); leave user out, "
            "and this process's own user speaks"
        ) from error
