"""The site's end of its Unix socket: what speaks to the network asks here, and has no other way to the site."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from fedlit.errors import ConfigError, RunError
from fedlit.institutions.courier import LONGEST_PATH, MOST, receive, send

__all__ = ["SocketLine"]

QUIET = 120.0
"""Seconds of silence after which a site says so, and again after as many."""

_log = logging.getLogger(__name__)


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
        if len(str(path).encode()) > LONGEST_PATH:
            raise ConfigError(
                f"{path}: expected a path of at most {LONGEST_PATH} bytes, which is all that a Unix socket may have; "
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
            with contextlib.suppress(OSError):
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
