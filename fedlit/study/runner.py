"""Runs the jobs of a study that are not done yet, several at once, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from fedlit.errors import ConfigError
from fedlit.files import advice, reason
from fedlit.locks import exclusive
from fedlit.run.worker import WorkerProcess, cores
from fedlit.study.job import DONE, Job, finished
from fedlit.study.progress import Progress

__all__ = ["Pool", "default_jobs", "locked", "nothing", "run_jobs"]


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
        return self.call("fedlit.study.runs:serve", job.request(), Path(job.folder).with_suffix(".log"))


def nothing(text: str) -> None:
    """Where nobody listens."""


class Pool:
    """Worker processes, each with its share of the cores; one that dies takes only its job with it.

    Args:
        slots: how many.
    """

    def __init__(self, slots: int) -> None:
        self.slots = max(1, slots)
        self._workers = [_Worker(max(1, cores() // self.slots)) for _ in range(self.slots)]
        self._idle = SimpleQueue[_Worker]()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(self.slots)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def run(self, jobs: Sequence[Job], begin: Callable[[Job], None]) -> Iterator[tuple[Job, str, float]]:
        """Run jobs; of each that ends the error that ended it, or the empty string, and its seconds.

        Args:
            jobs: those that another one is computed from stand before it.
            begin: is called when a job begins.
        """
        ended = {job.folder: Event() for job in jobs}

        def work(job: Job) -> tuple[str, float]:
            for folder in job.after:
                if folder in ended:
                    ended[folder].wait()
            worker = self._idle.get()
            begin(job)
            begun = time.monotonic()
            try:
                return worker.run(job), time.monotonic() - begun
            finally:
                self._idle.put(worker)
                ended[job.folder].set()

        running: dict[Future[tuple[str, float]], Job] = {self._threads.submit(work, job): job for job in jobs}
        while running:
            # a wait without end could not be interrupted on every system
            for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), *future.result()


def run_jobs(
    jobs: Sequence[Job], pool: Pool | int, *, quiet: bool = False, say: Callable[[str], None] = nothing
) -> dict[str, str]:
    """Run what is not done yet.

    Args:
        jobs: all jobs of the study.
        pool: of worker processes, or how many.
        quiet: no progress.
        say: where messages go.

    Returns:
        Name of each run that failed → its error.
    """
    left = [job for job in jobs if finished(job) is None]
    other = sum((Path(job.folder) / DONE).exists() for job in left)
    if len(left) < len(jobs):
        say(f"{len(jobs) - len(left)} of {len(jobs)} runs are done already")
    if other:
        say(f"{other} runs were made with another configuration or data, or are damaged: they are run again")
    if not left:
        return {}
    if isinstance(pool, int):
        with Pool(min(pool, len(left))) as own:
            return _run(jobs, left, own, quiet)
    return _run(jobs, left, pool, quiet)


def _run(jobs: Sequence[Job], left: Sequence[Job], pool: Pool, quiet: bool) -> dict[str, str]:
    failures = {}
    with Progress(len(jobs), len(left), quiet) as progress:
        for job, error, seconds in pool.run(left, progress.begin):
            if error:
                failures[job.name] = error
            progress.done(job, seconds, bool(error))
    return failures
