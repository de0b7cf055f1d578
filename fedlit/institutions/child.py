"""A process that ends when its parent does, and the pipe between the two.

The child reads the pipe before it imports anything large, so a parent that dies during these
imports leaves no orphan: the pipe is closed when the parent ends, even by SIGKILL, and a closed
pipe stays closed. Messages are bytes that nobody unpickles. The pipe has no name, so no other
process can reach it.
"""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.institutions.extra import QUIET

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 2**30
"""The bytes of one message, where nobody sets another limit."""

_AGAIN = 75
_GRACE = 5.0
_PATIENCE = 10.0
_DEATHS = 8
_WITHIN = 120.0
# between them the exit statuses of errors
_MESSAGE = 0
_NOTE = 3
_ERRORS: dict[int, type[FedlitError]] = {
    error.exit_status: error for error in (RunError, ConfigError)
}


class Gone(Exception):
    """The child has ended."""


class Parent:
    """The parent process, as its child sees it.

    Args:
        pipe: the pipe to the parent.

    Attributes:
        said: the messages of the parent that have not been taken yet.
        gone: called when the parent is gone. The process ends 5 s later, whatever this function
            does.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.said: SimpleQueue[bytes] = SimpleQueue()
        self.gone: Callable[[], object] = partial(os._exit, _AGAIN)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    self.said.put(self._pipe.recv_bytes())
            self.gone()
            time.sleep(_GRACE)
        finally:
            os._exit(_AGAIN)

    def tell(self, content: bytes) -> None:
        """Send a message."""
        self._send(_MESSAGE, content)

    def note(self, text: str) -> None:
        """Let the parent print a line."""
        self._send(_NOTE, text.encode())

    def fail(self, error: FedlitError) -> int:
        """Let the parent raise an error; returns the exit status."""
        kind = ConfigError if isinstance(error, ConfigError) else RunError
        self._send(kind.exit_status, str(error).encode())
        return kind.exit_status

    def _send(self, kind: int, content: bytes) -> None:
        with suppress(OSError):  # the parent is gone, which the other thread notices
            self._pipe.send_bytes(bytes([kind]) + content)


class Child:
    """A process that runs a module's ``main(arguments, parent)``, and that is started again if it
    is killed.

    Args:
        what: its name, for messages.
        module: the name of a module in this package.
        log: the file that its standard output and error are appended to.
        most: the largest number of bytes of a message; it is an option of the module, too.
        **arguments: the options of the module and their values.
    """

    def __init__(
        self, what: str, module: str, log: Path, most: int = MOST, **arguments: object
    ) -> None:
        self.what = what
        self._log = log
        self._most = most
        self._words = [
            module,
            *(f"--{key}={value}" for key, value in {**arguments, "most": most}.items()),
        ]
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._start()

    def _start(self) -> None:
        self._pipe, child_end = Pipe()
        with child_end, self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(child_end.fileno()), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **QUIET},
                pass_fds=[child_end.fileno()],
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
            )

    def tell(self, content: bytes) -> bool:
        """Send a message; returns False if the child cannot take it."""
        try:
            self._pipe.send_bytes(content)
        except OSError:
            return False
        return True

    def hear(self, seconds: float) -> bytes | None:
        """Wait for a message; returns None if none comes in time.

        Raises:
            Gone: the child has ended.
            FedlitError: the child cannot continue, or sent a message that is too long.
        """
        from fedlit.show.shown import say

        try:
            if not self._pipe.poll(seconds):
                return None
            content = self._pipe.recv_bytes(self._most + 1)
        except (EOFError, ConnectionError) as error:
            raise Gone from error
        except OSError as error:
            raise RunError(
                f"{self.what}: expected a message of at most {self._most:,} bytes, found a longer "
                "one; raise `most` at both ends"
            ) from error
        kind = content[0]
        content = content[1:]
        if kind == _MESSAGE:
            return content
        text = content.decode(errors="replace")
        if kind in _ERRORS:
            raise _ERRORS[kind](text)
        say(text)
        return None

    def again(self) -> None:
        """Start the child again, after a pause that grows.

        Raises:
            RunError: the child failed by itself, or was killed again and again.
        """
        from fedlit.show.shown import say

        code = self.end()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
        self._deaths.append(time.monotonic())
        often = len(self._deaths) == _DEATHS and self._deaths[-1] - self._deaths[0] < _WITHIN
        if often or 0 < code != _AGAIN:
            times = f", the {_DEATHS}th time within {_WITHIN:.0f} s" if often else ""
            raise RunError(
                f"{self.what} {how}{times}; look at {self._log}, then start again to go on"
            )
        say(f"{self.what} {how}; started again")
        time.sleep(0.1 * 2 ** len(self._deaths))
        self._start()

    def end(self) -> int:
        """End the child, if necessary by force; returns its exit status."""
        self._pipe.close()
        for send in (None, self.process.terminate, self.process.kill):
            if send is not None:
                send()
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(_PATIENCE)
        return self.process.wait()


def main() -> int:
    """Run the module that the second argument names; the first is the pipe. Returns the module's
    exit status.
    """
    parent = Parent(Connection(int(sys.argv[1])))
    try:
        status: int = import_module(f"fedlit.institutions.{sys.argv[2]}").main(sys.argv[3:], parent)
    except FedlitError as error:
        return parent.fail(error)
    return status


if __name__ == "__main__":
    sys.exit(main())
