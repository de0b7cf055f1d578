"""Runs the jobs that are not done yet, in this process or several at once in worker processes, and
reports each that ends. If time is limited, the jobs that remain share it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from fedlit.errors import RunError
from fedlit.jobs.job import Job
from fedlit.jobs.pool import Call, Event, Here, Pool
from fedlit.jobs.record import finished, outdated
from fedlit.show.text import shorten

Say = Callable[[str], None]


def nothing(text: str) -> None:
    """Ignore a message."""


class Progress:
    """Reports how far the jobs are: a line for each that ends.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Say = nothing) -> None:
        self.say = say
        self.done = 0
        self.total = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        """End the report."""

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Begin with all jobs, of which some are pending."""
        self.total = len(jobs)
        self.done = len(jobs) - len(pending)

    def began(self, job: Job) -> None:
        """Report that a job has begun."""

    def ended(self, job: Job, failed: bool, seconds: float) -> None:
        """Report that a job has ended."""
        self.done += 1
        if not failed:
            self.say(f"[{self.done}/{self.total}] {job.name}: {seconds:.0f} s")


class Clock:
    """The time for jobs. Each gets an equal share of the time that remains when it begins, a local
    baseline one share for each of its folds.

    Args:
        seconds: the time for all jobs.
        jobs: the jobs.
        workers: how many run at once.
    """

    def __init__(self, seconds: float, jobs: Sequence[Job], workers: int) -> None:
        self._end = time.monotonic() + seconds
        self._shares = sum(job.trainings for job in jobs)
        self._workers = workers
        self._lock = threading.Lock()

    def share(self, job: Job) -> float:
        """Return the seconds for a job that begins now."""
        with self._lock:
            portion = self._workers * job.trainings / self._shares
            self._shares -= job.trainings
            return max(0.0, min(1.0, portion) * (self._end - time.monotonic()))


def run_jobs(
    jobs: Sequence[Job],
    pool: Pool | int,
    function: str,
    progress: Progress,
    *,
    here: Callable[[Mapping[str, Any]], None] | None = None,
    seconds: float | None = None,
    needed: Callable[[Job], bool] = lambda job: False,
) -> dict[str, str]:
    """Run the jobs that are not done yet.

    Args:
        jobs: all jobs; those that others are computed from come before these.
        pool: the pool of worker processes, or their number.
        function: the function that a worker process calls with a request, as ``module:name``. The
            request has the job as ``job``, and its time limit or None as ``seconds``.
        progress: reports how far the jobs are.
        here: the same function in this process, which runs the jobs if one at a time suffices; None
            to always run them in worker processes.
        seconds: the time for all jobs; None for no limit.
        needed: returns whether nothing else is worth running if a job fails.

    Returns:
        Name of each job that failed → its error, with the name of its class.

    Raises:
        FedlitError: a job that is needed failed.
    """
    pending = [job for job in jobs if finished(job) is None]
    _report_done(jobs, pending, progress.say)
    if not pending:
        return {}
    workers = min(pool, len(pending)) if isinstance(pool, int) else len(pending)
    clock = None if seconds is None else Clock(seconds, pending, workers)
    named = {job.folder: job for job in pending}
    calls = [_call(job, function, named, clock) for job in pending]
    context: Any = nullcontext(pool)
    if here is not None and workers == 1:
        context = nullcontext(Here(here))
    elif isinstance(pool, int):
        context = Pool(workers)
    failures = dict[str, str]()
    progress.begin(jobs, pending)
    with context as processes, progress:
        for event in processes.run(calls):
            job = named[event.call.name]
            if event.error is None:
                progress.began(job)
                continue
            progress.ended(job, bool(event.error), event.seconds)
            if event.error:
                failures[job.name] = event.error
            if event.error and needed(job):
                raise event.cause or _lost(job, event)
    return failures


def _report_done(jobs: Sequence[Job], pending: Sequence[Job], say: Say) -> None:
    if len(pending) < len(jobs):
        say(f"{len(jobs) - len(pending)} of {len(jobs)} runs are done already")
    differences = [keys for job in pending if (keys := outdated(job)) is not None]
    names = dict[str, None]()
    for keys in differences:
        names |= dict.fromkeys(keys)
    if names:
        count = sum(map(bool, differences))
        say(
            f"{count} runs were made with another configuration or data ({shorten(list(names))}): "
            "they are run again"
        )
    damaged = sum(not keys for keys in differences)
    if damaged:
        say(f"{damaged} runs are damaged, or of an earlier fedlit: they are run again")


def _call(job: Job, function: str, pending: Mapping[str, Job], clock: Clock | None) -> Call:
    """Return the call for a job, which waits for the pending jobs that it is computed from."""

    def request() -> dict[str, Any]:
        return {"job": job.request(), "seconds": None if clock is None else clock.share(job)}

    log = Path(job.folder).with_suffix(".log")
    after = tuple(folder for folder in job.after if folder in pending)
    return Call(job.folder, function, request, log, after)


def without_class(error: str) -> str:
    """Return an error without the name of its class.

    Example:
        >>> without_class("ConfigError: part 'a': expected b"), without_class("its process ended")
        ("part 'a': expected b", 'its process ended')
    """
    name, _, message = error.partition(": ")
    return message if name.endswith("Error") else error


def _lost(job: Job, event: Event) -> RunError:
    """Return the error of a job that failed in a worker process."""
    message = without_class(event.error or "")
    return RunError(f"{job.name}: {message}; see {event.call.log}. Continue with --ckpt_path last")
