"""What speaks to the network at a site, in a process of its own (see :mod:`fedlit.institutions.child`).

It carries questions from the coordinator to the site's own process and answers back, over a Unix socket. It opens no
table, holds no model, and runs nothing that it is sent: of Flower it speaks the interface for nodes, and no more.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from fedlit.errors import FedlitError, RunError
from fedlit.institutions.child import Parent
from fedlit.institutions.extra import Lost, Refusal, needs_flower, quiet
from fedlit.institutions.log import stamped
from fedlit.institutions.socket_line import MOST, Courier

if TYPE_CHECKING:
    from fedlit.institutions.flower import Speaker

__all__ = ["main", "speak"]

_SLOW, _FAST = 1.0, 0.1


def speak(speaker: Speaker, answers: queue.SimpleQueue[Any], ended: threading.Event, patience: float | None) -> None:
    """Carry until told to end.

    Args:
        speaker: of this site.
        answers: in which the courier puts them.
        ended: set where it is to end.
        patience: seconds without a coordinator after which it gives up; never if None.
    """
    since: float | None = None
    begun, connected, kept, last = time.monotonic(), False, None, ""
    while not ended.is_set():
        try:
            if not connected:
                speaker.connect()
                connected, since = True, None
                print(stamped(f"speaks to {speaker.address}"), flush=True)
            if kept is not None:
                speaker.answer(*kept)
                kept = None
            speaker.beat()
            question = speaker.hear()
            if question is not None:
                begun = time.monotonic()
                speaker.courier.ask(question[0], question[1])
        except Lost as error:
            # a node that comes back is asked again; what it kept may be for a run that nobody knows any more
            kept = None
            since, connected, last = since or time.monotonic(), False, str(error)
            if patience is not None and time.monotonic() - since > patience:
                why, told = _told(speaker.address, last)
                raise Refusal(why, told) from error
            if time.monotonic() - since < 1:
                print(stamped(_told(speaker.address, last)[1] + "; tries again"), file=sys.stderr, flush=True)
            ended.wait(_SLOW)
            continue
        try:
            wait = _FAST if time.monotonic() - begun < 30 else _SLOW
            message, answer = answers.get(timeout=wait)
        except queue.Empty:
            continue
        if isinstance(answer, RunError):
            raise Refusal("site", f"this site's own process: {answer}")
        kept, begun = (message, answer), time.monotonic()


def _told(address: str, why: str) -> tuple[str, str]:
    if why == "401":
        return "clock", (
            f"{address}: the coordinator refuses this site's signature; do the clocks of both machines agree within "
            "five minutes?"
        )
    return "unreachable", f"{address}: expected the coordinator to answer, found: {why or 'nothing'}"


def _become(user: str) -> None:
    """Go on as another user, who may read no table."""
    import pwd

    if os.getuid() != 0:
        raise Refusal("settings", "--user: expected to be root, found another user; leave --user out")
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise Refusal("settings", f"--user: expected a user of this machine, found {user!r}") from error
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def _read(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Refusal("settings", f"{what}: {path}: expected a file, found: {error.strerror}") from error


def main(argv: list[str], parent: Parent) -> int:
    """Speak for a site until SIGTERM, or until the parent is gone.

    Args:
        argv: the arguments.
        parent: the site's own process.

    Returns:
        See :data:`~fedlit.institutions.extra.EXITS`.
    """
    quiet()
    parser = argparse.ArgumentParser(prog="fedlit.institutions.speaker")
    for name in ("--address", "--certificate", "--key", "--socket"):
        parser.add_argument(name, required=True)
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--user")
    parser.add_argument("--patience", type=float)
    arguments = parser.parse_args(argv)
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    parent.gone = ended.set
    try:
        certificate, key = _read(arguments.certificate, "--certificate"), _read(arguments.key, "--key")
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        courier = Courier(Path(arguments.socket), answers, arguments.most)
        with needs_flower():
            from fedlit.institutions.flower import Speaker  # before it becomes a user who may not read it
        speaker = Speaker(arguments.address, certificate, key, courier, arguments.most)
        if arguments.user:
            _become(arguments.user)
        try:
            speak(speaker, answers, ended, arguments.patience)
        finally:
            speaker.leave()
            courier.close()
    except FedlitError as error:
        print(stamped(f"fedlit: error: {error}"), file=sys.stderr, flush=True)
        return error.exit_status
    return 0
