"""Ends a command within seconds of Ctrl-C, or of SIGTERM during training, whatever it is doing.

Python raises ``KeyboardInterrupt`` wherever the main thread is. A library may swallow it there, or wait for one of its
threads. Therefore a timer starts with the first signal. Files on disk are complete at any moment.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from fedlit.exchange.place import says_the_end

PATIENCE = 4.0
"""Seconds for an orderly end."""
STATUS = 130
"""Exit status after Ctrl-C, as of a shell's own."""
_came: list[int] = []
_clocks: list[threading.Timer] = []


def came() -> bool:
    """Return whether Ctrl-C was pressed. An error that follows is then attributed to it."""
    return signal.SIGINT in _came


@contextmanager
def heeded() -> Iterator[None]:
    """Make signals end the work inside the block."""
    _came.clear()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # nohup, or somebody else's
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, _interrupted)
    if before[signal.SIGTERM] == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        while _clocks:
            _clocks.pop().cancel()
            faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(status: int) -> None:
    """End the process at once if a signal came, because the shutdown of Python and libraries may take long."""
    if _came:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if number in _came:
        _end(STATUS, "interrupted again: ended at once")
    _start(number, STATUS, "interrupted")
    raise KeyboardInterrupt


def _terminated(number: int, frame: FrameType | None) -> None:
    if signal.getsignal(signal.SIGTERM) is _terminated:  # Lightning, which ends the training, has put itself before it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    elif number not in _came:
        _start(number, 1, "error: the run was terminated (SIGTERM)")


def _start(number: int, status: int, what: str) -> None:
    _came.append(number)
    text = f"{what}; it had not ended after {PATIENCE:.0f} seconds, and was ended at once"
    _clocks.append(clock := threading.Timer(PATIENCE, _end, (status, text)))
    clock.daemon = True
    clock.start()
    with suppress(Exception):  # for who keeps Python from running threads
        faulthandler.dump_traceback_later(PATIENCE + 0.7, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115


def _end(status: int, text: str) -> None:
    """End the process at once, whatever other threads wait for, and whichever thread holds the lock of a stream."""
    told = f"fedlit: {text}; continue with --ckpt_path last, if a checkpoint was written\n"
    with suppress(OSError, ValueError):
        if says_the_end():
            os.write(sys.stderr.fileno(), told.encode())
    os._exit(status)
