"""Runs the jobs of a study that are not done yet, several at once, each in a process of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.files import advice, reason
from fedlit.locks import exclusive
from fedlit.run.worker import WorkerProcess, cores
from fedlit.study.job import DONE, Job, finished
from fedlit.study.progress import Progress

__all__ = ["default_jobs", "locked", "nothing", "run_jobs"]


def default_jobs() -> int:
    """Runs at once where nobody says how many: one per core, at most 4, for memory's sake."""
    return min(4, cores())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a second process out of a study's folder; the system lets go of the lock when this process ends, however.

    Raises:
        ConfigError: another process has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: expected a folder that can be written to, found: {reason(error)}; {advice(error)}, or give "
            "--out"
        ) from error
    with exclusive(folder / ".lock", f"{folder}: expected no other study at work there", "wait for it, or give --out"):
        yield


class _Worker(WorkerProcess):
    """A process that runs jobs of a study."""

    def run(self, job: Job) -> str:
        """Run a job; the error that ended it, or the empty string."""
        return self.call("fedlit.study.runs:serve", asdict(job), Path(job.folder).with_suffix(".log"))


def nothing(text: str) -> None:
    """Where nobody listens."""


def run_jobs(
    jobs: Sequence[Job], slots: int, *, quiet: bool = False, say: Callable[[str], None] = nothing
) -> dict[str, str]:
    """Run what is not done yet.

    Args:
        jobs: all jobs of the study.
        slots: how many at once; each gets its share of the cores.
        quiet: no progress.
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
    events: queue.SimpleQueue[tuple[Job, tuple[str, float] | None]] = queue.SimpleQueue()  # None: it begins
    unfinished, ended = {job.folder for job in left}, threading.Condition()

    def serve(worker: _Worker) -> None:
        while True:
            try:
                job = left.popleft()
            except IndexError:
                return
            with ended:  # those that it is computed from stand before it, so a worker has them already
                while unfinished.intersection(job.after):
                    ended.wait()
            begun = time.monotonic()
            events.put((job, None))
            error = worker.run(job)
            with ended:
                unfinished.discard(job.folder)
                ended.notify_all()
            events.put((job, (error, time.monotonic() - begun)))

    failures: dict[str, str] = {}
    count = len(left)
    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        while count:
            try:  # a wait without end could not be interrupted on every system
                job, end = events.get(timeout=1)
            except queue.Empty:
                progress.show()
                continue
            if end is None:
                progress.begin(job)
                continue
            count -= 1
            error, took = end
            if error:
                failures[job.name] = error
            progress.done(job, took, bool(error))
    finally:
        left.clear()
        for worker in workers:
            worker.stop()
        progress.close()
    return failures
