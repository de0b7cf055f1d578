"""``fedlit coordinate start``: this process applies the rule; its child, Flower's SuperLink, is
what sites reach.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from fedlit.errors import FedlitError
from fedlit.files import exclusive
from fedlit.institutions.child import Child, Gone
from fedlit.institutions.extra import QUIET, Lost
from fedlit.institutions.folder import check, invite
from fedlit.institutions.settings import CoordinatorSettings, read_coordinator
from fedlit.run.config import shown
from fedlit.show.shown import say

if TYPE_CHECKING:
    from fedlit.institutions.serving.line import Line


LISTEN = 0.2
"""Seconds within which nobody listens to the SuperLink any more once the federation is over."""


class _Stopped(BaseException):
    """SIGINT or SIGTERM was received."""


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGINT and SIGTERM end the work in this context. What was written is whole, as after a
    kill.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(folder: Path, serve: Callable[[Path, Line], None] | None = None) -> int:
    """Coordinate until the federation has finished or failed, or until Ctrl-C or SIGTERM.

    Args:
        folder: a folder made by ``fedlit coordinate init``.
        serve: called with the folder and a line to the sites;
            :func:`fedlit.institutions.coordinator.serve` if None.

    Returns:
        The exit status: 0 if the federation has finished; 130 or 143 if it was stopped and will
        continue when started again.

    Raises:
        ConfigError: the folder does not fit.
        RunError: the federation failed, or the SuperLink dies again and again.
    """
    settings = read_coordinator(folder)
    for warning in check(settings):
        say(warning)
    settings.state.mkdir(exist_ok=True)
    if changed := invite(settings):
        say(
            f"Invitations written anew for {', '.join(changed)}, for federation.yaml, ca.crt or "
            "the address has changed: hand them out again"
        )
    # Flower keeps a folder of its own, else in the home of whoever starts it
    os.environ |= {**QUIET, "FLWR_HOME": str(settings.state / "flower")}
    expected = f"{shown(settings.folder)}: expected no other coordinator to run here"
    with exclusive(settings.state / "lock", expected, "end it first"), _stoppable():
        try:
            _serve(settings, serve)
        except _Stopped as error:
            say(f"Stopped; fedlit coordinate start {shown(folder)} goes on where it was")
            return 128 + int(error.args[0])
    return 0


@contextmanager
def _noted(link: Child) -> Iterator[None]:
    """Print what the SuperLink notes while this process serves."""
    over = threading.Event()

    def listen() -> None:
        with suppress(Gone, FedlitError):  # this process notices by itself
            while not over.is_set():
                link.hear(LISTEN)

    # The thread prints as this job does.
    thread = threading.Thread(target=copy_context().run, args=(listen,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _serve(settings: CoordinatorSettings, serve: Callable[[Path, Line], None] | None) -> None:
    link = Child(
        "Flower's SuperLink",
        "superlink",
        settings.state / "superlink.log",
        listen=settings.listen,
        port=settings.port,
        certificates=settings.certificates,
        keys=settings.keys,
        sites=",".join(settings.sites),
        most=settings.most,
    )
    try:
        say(f"Waits for {', '.join(settings.sites)} at {settings.address}:{settings.port}")
        # while the SuperLink imports, too
        from fedlit.institutions.flower.line import LOST, FlowerLine, open_grid

        if serve is None:
            from fedlit.institutions.coordinator import serve as coordinate

            serve = coordinate
        while True:
            try:
                while (message := link.hear(1.0)) is None:
                    pass
                with _noted(link):
                    serve(
                        settings.folder,
                        FlowerLine(
                            open_grid(**json.loads(message), most=settings.most), settings.most
                        ),
                    )
                return
            except (Gone, Lost, *LOST):
                link.again()
    finally:
        link.end()
