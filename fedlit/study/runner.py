"""Runs the jobs of a study that are not done yet, several at once, each in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from fedlit.errors import ConfigError
from fedlit.study.job import DONE, Job, finished

__all__ = ["Progress", "cores", "default_jobs", "locked", "nothing", "run_jobs"]


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_jobs() -> int:
    """Runs at once where nobody says how many: one per core, at most 4, for memory's sake."""
    return min(4, cores())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of a study's folder; the system lets go of the lock when this process ends, however.

    Raises:
        ConfigError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ConfigError(
            f"{folder}: expected no other study at work there, found one; wait for it, or give --out"
        ) from error
    try:
        yield
    finally:
        lock.release()


class _Worker:
    """A process of :mod:`fedlit.study.worker`, started when first needed and again after a crash."""

    def __init__(self, threads: int) -> None:
        self.environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))}
        self.process: subprocess.Popen[str] | None = None

    def run(self, job: Job) -> str:
        """Run a job; the error that ended it, or the empty string."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fedlit.study.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.environment,
                text=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({**asdict(job), "path": sys.path[::-1]}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        if not answer:
            status = self.process.wait()
            self.process = None
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            return f"its process ended ({how}); out of memory?" if status == -9 else f"its process ended ({how})"
        return str(json.loads(answer).get("error", ""))

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Progress:
    """One bar over all runs, with the time that is left: by how long each method's runs took, not by their number.

    Args:
        jobs: all of them.
        seconds: method → how long its finished runs took.
        slots: runs at once.
        quiet: no bar.
    """

    def __init__(
        self, jobs: Sequence[Job], left: Iterable[Job], seconds: dict[str, list[float]], slots: int, quiet: bool
    ) -> None:
        self.left, self.seconds, self.slots = [job.method for job in left], seconds, slots
        self.bar = tqdm(
            total=len(jobs),
            initial=len(jobs) - len(self.left),
            disable=quiet,
            unit="run",
            dynamic_ncols=True,
            bar_format="{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} runs [{elapsed}{postfix}]",
        )
        self._show()

    def done(self, job: Job, seconds: float, failed: bool) -> None:
        """A run has ended."""
        if not failed:
            self.seconds.setdefault(job.method, []).append(seconds)
        self.left.remove(job.method)
        self.bar.update()
        self._show()

    def time_left(self) -> float | None:
        """Seconds, None as long as nothing is known."""
        means = {method: sum(own) / len(own) for method, own in self.seconds.items() if own}
        if not means:
            return None
        usual = sum(means.values()) / len(means)
        return sum(means.get(method, usual) for method in self.left) / self.slots

    def _show(self) -> None:
        left = self.time_left() if self.left else 0.0
        self.bar.set_postfix_str("time left unknown yet" if left is None else f"{_duration(left)} left")

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.close()


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def nothing(text: str) -> None:
    """Where nobody listens."""


def run_jobs(
    jobs: Sequence[Job], slots: int, *, quiet: bool = False, say: Callable[[str], None] = nothing
) -> dict[str, str]:
    """Run what is not done yet.

    Args:
        jobs: all jobs of the study.
        slots: how many at once; each gets its share of the cores.
        quiet: no progress bar.
        say: where messages go.

    Returns:
        Name of each run that failed → its error.
    """
    records = {job.name: finished(job) for job in jobs}
    left = deque(job for job in jobs if records[job.name] is None)
    other = sum((Path(job.folder) / DONE).exists() for job in left)
    if len(left) < len(jobs):
        say(f"{len(jobs) - len(left)} of {len(jobs)} runs are done already")
    if other:
        say(f"{other} runs were made with another configuration or data, or are damaged: they are run again")
    if not left:
        return {}
    slots = max(1, min(slots, len(left)))
    seconds: dict[str, list[float]] = {}
    for record in records.values():
        if record is not None and record.get("seconds"):
            seconds.setdefault(record["method"], []).append(record["seconds"])
    progress = Progress(jobs, left, seconds, slots, quiet)
    workers = [_Worker(max(1, cores() // slots)) for _ in range(slots)]
    ended: queue.SimpleQueue[tuple[Job, str, float]] = queue.SimpleQueue()

    def serve(worker: _Worker) -> None:
        while True:
            try:
                job = left.popleft()
            except IndexError:
                return
            begun = time.monotonic()
            ended.put((job, worker.run(job), time.monotonic() - begun))

    failures: dict[str, str] = {}
    count = len(left)
    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in range(count):
            job, error, took = _next(ended)
            if error:
                failures[job.name] = error
            progress.done(job, took, bool(error))
    finally:
        left.clear()
        for worker in workers:
            worker.stop()
        progress.close()
    return failures


def _next(ended: queue.SimpleQueue[Any]) -> Any:
    while True:  # a wait without end could not be interrupted on every system
        try:
            return ended.get(timeout=1)
        except queue.Empty:
            continue
