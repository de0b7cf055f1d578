"""The part of a site that uses the network, in a process of its own (see
:mod:`fedlit.institutions.child`).

It carries questions from the coordinator to the site's own process, and answers back. It opens no
table, holds no model, and runs nothing that it is sent: of Flower it uses the interface for nodes,
and no more.
"""

from __future__ import annotations

import argparse
import os
import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import ConfigError, expect
from fedlit.institutions.child import Parent
from fedlit.institutions.extra import Lost

if TYPE_CHECKING:
    from fedlit.institutions.flower.node import Speaker

_SLOW = 1.0
_FAST = 0.1


def speak(speaker: Speaker, parent: Parent, ended: threading.Event) -> None:
    """Carry messages until ``ended`` is set. The site has one question at a time. If others come
    meanwhile, it gets the newest one, and its answer to the old one, for which nobody waits any
    more, is dropped.

    Args:
        speaker: the speaker of this site.
        parent: the site's own process.
        ended: set when the function is to end.
    """
    since: float | None = None
    request: object = None
    newest: tuple[object, bytes] | None = None
    answer: tuple[object, bytes] | None = None
    begun = time.monotonic()
    connected = False
    while not ended.is_set():
        try:
            if not connected:
                speaker.connect()
                connected = True
                since = None
                parent.note(f"speaks to {speaker.address}")
            if answer is not None:
                speaker.answer(*answer)
                answer = None
            speaker.beat()
            newest = speaker.hear() or newest
        except Lost as error:
            # a node that comes back is asked again; what it kept may be for a run that nobody knows
            # any more
            answer = None
            connected = False
            if since is None:
                since = time.monotonic()
                parent.note(f"{_why(speaker.address, str(error))}; tries again")
            ended.wait(_SLOW)
            continue
        if request is None and newest is not None:
            request, content = newest
            parent.tell(content)
            newest = None
            begun = time.monotonic()
        try:
            content = parent.said.get(timeout=_FAST if time.monotonic() - begun < 30 else _SLOW)
        except queue.Empty:
            continue
        answer = (request, content) if newest is None else None
        request = None
        begun = time.monotonic()


def _why(address: str, why: str) -> str:
    if why == "401":
        return (
            f"{address}: the coordinator refuses this site's signature; do the clocks of both "
            "machines agree within five minutes?"
        )
    return f"{address}: expected the coordinator to answer, found: {why or 'nothing'}"


def _become(user: str) -> None:
    """Continue as another user, who may read no table."""
    import pwd

    expect(os.getuid() == 0, "user", "root to start this", "another user", "leave user out")
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise ConfigError(
            f"user: expected a user of this machine, found {user!r}; leave user out, and this "
            "process's own user speaks"
        ) from error
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def main(argv: list[str], parent: Parent) -> int:
    """Speak for a site until the parent is gone.

    Args:
        argv: the arguments.
        parent: the site's own process.

    Raises:
        FedlitError: the node cannot take part.
    """
    parser = argparse.ArgumentParser(prog="fedlit.institutions.speaker")
    for name in ("--address", "--certificate", "--key"):
        parser.add_argument(name, required=True)
    parser.add_argument("--most", type=int, required=True)
    parser.add_argument("--user")
    arguments = parser.parse_args(argv)
    ended = threading.Event()
    parent.gone = ended.set
    certificate = Path(arguments.certificate).read_bytes()
    key = Path(arguments.key).read_bytes()
    from fedlit.institutions.flower.node import (
        Speaker,  # before it becomes a user who may not read it
    )

    speaker = Speaker(arguments.address, certificate, key, arguments.most)
    if arguments.user:
        _become(arguments.user)
    try:
        speak(speaker, parent, ended)
    finally:
        speaker.leave()
    return 0
