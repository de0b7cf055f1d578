"""``fedlit coordinate watch``: the coordinator's progress as a table."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.institutions.settings import read_coordinator
from fedlit.run.config import shown
from fedlit.show.shown import Grid

ENDS = ("finished", "failed")
"""States after which nothing changes."""


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Read a coordinator's ``state/progress.json``; None if it has not begun.

    The coordinator writes it (``round``, ``rounds``, ``in``, ``away``, ``seconds`` and ``bytes`` of the last round,
    ``updated`` in seconds since 1970, ``state``).

    Raises:
        ConfigError: the folder is not a coordinator's, or the file was not written by a coordinator.
    """
    path = read_coordinator(folder).state / "progress.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shown(path)}: expected what a coordinator writes, found: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{shown(path)}: expected what a coordinator writes, found another file")
    return found


def lines_of(progress: Mapping[str, Any], now: float) -> list[str]:
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
    return Grid(["round", "state", "in", "away", "seconds", "bytes", "told"], [cells]).text().splitlines()


def watch(folder: Path, *, once: bool = False) -> int:
    """Print a folder's progress, a line for each change, until the federation has ended.

    Args:
        folder: of the coordinator.
        once: print it once.

    Returns:
        The exit status: 1 if the federation has failed.
    """
    before: Any = None
    while True:
        progress = read_progress(folder)
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
