"""Tells a person how far a federation is: lines with their time, ``progress.json``, and ``fedlit
coordinate watch``.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.errors import ConfigError
from fedlit.files import write_text
from fedlit.institutions.plain import Message
from fedlit.institutions.settings import read_coordinator
from fedlit.run.config import shown
from fedlit.session import session
from fedlit.show.shown import Grid, Notices, print_notice

if TYPE_CHECKING:
    from fedlit.institutions.serving.hub import Hub

ENDS = ("finished", "failed")
"""States after which nothing changes."""


def with_time(level: int = logging.WARNING) -> None:
    """Put the date and time before everything that this job prints or logs from now on.

    Args:
        level: the lowest level of fedlit's messages that is logged.
    """
    session().prints = lambda text: print_notice(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")
    log = logging.getLogger("fedlit")
    log.handlers = [Notices()]
    log.setLevel(level)


def write_json(path: Path, content: Message) -> None:
    """Write plain data as JSON."""
    write_text(json.dumps(content, indent=1, default=str), path)


class Progress:
    """The file ``progress.json``, which ``fedlit coordinate watch`` reads (``round``, ``rounds``,
    ``in``, ``away``, ``seconds`` and ``bytes`` since the start, ``updated`` in seconds since 1970,
    ``state``).

    Args:
        state: the folder ``state`` of the coordinator.
        rounds: the number of rounds that are planned.
    """

    def __init__(self, state: Path, rounds: int) -> None:
        self.path = state / "progress.json"
        self.rounds = rounds
        self.begun = time.time()
        self.written = 0.0

    def write(self, hub: Hub, state: str = "running") -> None:
        """Write where the federation is; at most once a second while it runs."""
        now = time.time()
        if now - self.written < 1 and state == "running":
            return
        self.written = now
        desk = hub.desk
        sites = set(hub.sites)
        present = desk.line.sites() - desk.away
        content = {
            "state": state,
            "round": max(hub.journal.number, 0),
            "rounds": self.rounds,
            "in": sorted(present & sites),
            "away": sorted(sites - present),
            "answered": sorted(desk.waiting),
            "refused": desk.refused,
            "seconds": round(now - self.begun, 1),
            "bytes": desk.bytes,
            "scores": desk.scores,
            "updated": now,
        }
        write_json(self.path, content)


def read_progress(state: Path) -> dict[str, Any] | None:
    """Read what :class:`Progress` wrote; None if there is nothing yet.

    Args:
        state: the folder ``state`` of a coordinator.

    Raises:
        ConfigError: the file was not written by a coordinator.
    """
    path = state / "progress.json"
    try:
        progress = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{shown(path)}: expected what a coordinator writes, found: {error}; move it away"
        ) from error
    if not isinstance(progress, dict):
        raise ConfigError(f"{shown(path)}: expected what a coordinator writes, found another file")
    return progress


def lines_of(progress: Message, now: float) -> list[str]:
    """Return a coordinator's progress as lines for the user.

    Args:
        progress: see :func:`read_progress`.
        now: the time in seconds since 1970.

    Example:
        >>> told = {"round": 3, "rounds": 10, "in": ["north", "south"], "away": ["east"], "seconds": 1.25,
        ...         "bytes": 5 * 2**20, "updated": 100.0, "state": "trains"}
        >>> for line in lines_of(told, 102.4):
        ...     print(line)
         round  state   in            away  seconds    bytes     told
        3 / 10  trains  north, south  east     1.25  5.0 MiB  2 s ago
    """
    cells = [
        f"{progress.get('round', '?')} / {progress.get('rounds', '?')}",
        str(progress.get("state", "?")),
        ", ".join(progress.get("in", ())) or "nobody",
        ", ".join(progress.get("away", ())) or "nobody",
        f"{float(progress.get('seconds', 0)):.2f}",
        f"{float(progress.get('bytes', 0)) / 2**20:,.1f} MiB",
        f"{max(0.0, now - float(progress.get('updated', now))):.0f} s ago",
    ]
    return (
        Grid(["round", "state", "in", "away", "seconds", "bytes", "told"], [cells])
        .text()
        .splitlines()
    )


def watch(folder: Path, *, once: bool = False) -> int:
    """Print a folder's progress, a line for each change, until the federation has ended.

    Args:
        folder: of the coordinator.
        once: print it once.

    Returns:
        The exit status: 1 if the federation has failed.
    """
    before: object = None
    state = read_coordinator(folder).state
    while True:
        progress = read_progress(state)
        if progress is None and once:
            print(f"{shown(folder)}: no round yet; fedlit coordinate start {shown(folder)}")
            return 0
        now = progress and [progress.get(key) for key in ("round", "state", "in", "away")]
        if progress is not None and now != before:
            header, row = lines_of(progress, time.time())
            print(*([header] if before is None else []), row, sep="\n", flush=True)
            before = now
        if progress is not None and (once or progress.get("state") in ENDS):
            return int(progress.get("state") == "failed")
        time.sleep(1.0)
