"""How many worker processes this machine can carry: one for each core, unless its memory is too
small for as many.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedlit.jobs.pool import cores

_GROWTH = 1.5
"""How much a job is assumed to need, times what this process holds: it holds the same packages and
tables, but no optimizer and no batch."""
_UNKNOWN = 4
"""The largest number of workers on a machine that does not say how much memory is free."""
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Room:
    """What a machine has for worker processes.

    Attributes:
        cores: the number of cores.
        free: the free memory in bytes; None if it is not known.
        need: the memory in bytes that a worker is assumed to need.

    Example:
        >>> Room(16, 8 * 2**30, 2**30).workers, Room(4, 2**29, 2**30).workers
        (8, 1)
        >>> Room(16, 8 * 2**30, 2**30).sentence
        'Up to 8 jobs run at once: 16 cores, but memory for 8 (8.0 GiB free, a job may need 1.0 GiB)'
    """

    cores: int
    free: int | None
    need: int

    @classmethod
    def here(cls) -> Room:
        """Return what is there now, when this process has read the tables."""
        return cls(cores(), _free(), max(1, int(_GROWTH * _held())))

    @property
    def workers(self) -> int:
        """The number of worker processes, at least 1."""
        if self.free is None:
            return min(self.cores, _UNKNOWN)
        return max(1, min(self.cores, self.free // self.need))

    @property
    def sentence(self) -> str:
        """The number of jobs that run at once, and why there are not more."""
        number = self.workers
        jobs = "1 job runs at a time" if number == 1 else f"Up to {number} jobs run at once"
        if self.free is None and number < self.cores:
            return f"{jobs}: {self.cores} cores, but the free memory is not known"
        if self.free is not None and number < self.cores:
            memory = f"{self.free / 2**30:.1f} GiB free, a job may need {self.need / 2**30:.1f} GiB"
            return f"{jobs}: {self.cores} cores, but memory for {number} ({memory})"
        return f"{jobs}: one for each core"


def _held() -> int:
    """Return the memory in bytes that this process holds."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 2**30  # Lightning and its tables of medium size


def _free() -> int | None:
    """Return the free memory in bytes of the machine or, if that is less, of the container."""
    limits = list[int]()
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        limits.append(1024 * int(available.split()[1]))
    # Without a limit, the file says "max".
    with suppress(OSError, ValueError, LookupError):
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        # What files have left in memory is given back when it is needed.
        statistics = dict(map(str.split, (_CGROUP / "memory.stat").read_text().splitlines()))
        limits.append(limit - used + int(statistics["inactive_file"]))
    return max(0, min(limits)) if limits else None
