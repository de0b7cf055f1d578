"""Ends a command within seconds of Ctrl-C, or of SIGTERM during training, whatever it is doing.

Python raises ``KeyboardInterrupt`` wherever the main thread is. A library may swallow it there, or
wait for one of its threads. Therefore a timer starts with the first signal. Files on disk are
complete at any moment.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

from fedlit.exchange.place import find_place, says_the_end

PATIENCE = 4.0
"""Seconds for an orderly end."""
STATUS = 130
"""Exit status after Ctrl-C, as of a shell's own."""
_came: list[int] = []


def came() -> bool:
    """Return whether Ctrl-C was pressed. An error that follows is then attributed to it."""
    return signal.SIGINT in _came


def heed() -> None:
    """Make signals end this process, unless it ignores them (nohup) or has handlers of its own."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _signalled)
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _signalled)


def ignore_termination() -> None:
    """Ignore SIGTERM from here on, so that the process can say why it ends: a launcher sends it to
    the other ranks as soon as one has ended.
    """
    if signal.getsignal(signal.SIGTERM) is _signalled:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def leave(status: int) -> None:
    """End the process at once if a signal came, because the shutdown of Python and libraries may
    take long.
    """
    if _came:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _signalled(number: int, frame: FrameType | None) -> None:
    interrupt = number == signal.SIGINT
    status = 1
    message = "error: the run was terminated (SIGTERM)"
    if interrupt:
        status = STATUS
        message = "interrupted"
    # This handler is in place outside of training: Lightning installs its own for training.
    if not interrupt and signal.getsignal(number) is _signalled:
        # The launcher ends all ranks because one has ended, perhaps without a message.
        if find_place() is not None:
            _end(status, message)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    if interrupt and number in _came:
        _end(status, "interrupted again: ended at once")
    if number not in _came:
        _came.append(number)
        text = f"{message}; it had not ended after {PATIENCE:.0f} seconds, and was ended at once"
        clock = threading.Timer(PATIENCE, _end, (status, text))
        clock.daemon = True
        clock.start()
    if interrupt:
        raise KeyboardInterrupt


def _end(status: int, text: str) -> None:
    """End the process at once, whatever other threads wait for, and whichever thread holds the lock
    of a stream.
    """
    line = f"fedlit: {text}; continue with --ckpt_path last, if a checkpoint was written\n"
    with suppress(OSError, ValueError):
        if says_the_end():
            os.write(sys.stderr.fileno(), line.encode())
    os._exit(status)
