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
_CLIENT = "\x1f"
"""Stands between a job's folder and a client in the names of calls."""


def nothing(text: str) -> None:
    """Ignore a message."""


class Report:
    """Reports how far the jobs are: a line for each that ends.

    Args:
        say: prints a line.

    Attributes:
        best: the best result so far, for the user; empty if there is none.
    """

    def __init__(self, say: Say = nothing) -> None:
        self.say = say
        self.done = 0
        self.total = 0
        self.best = ""

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *error: object) -> None:
        """End the report."""

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Begin with all jobs, of which some are pending."""
        self.total = len(jobs)
        self.done = len(jobs) - len(pending)

    def began(self, job: Job) -> None:
        """Report that a job has begun."""

    def prepared(self, job: Job) -> None:
        """Report that the work of a job was done for one of its clients."""

    def ended(self, job: Job, failed: bool, seconds: float) -> None:
        """Report that a job has ended."""
        self.done += 1
        outcome = self.outcome(job, failed, seconds)
        if outcome:
            self.line(f"{self.position()} {job.name}: {outcome}")

    def outcome(self, job: Job, failed: bool, seconds: float) -> str:
        """Return what a job that has ended came to; empty to print no line."""
        return "" if failed else f"{seconds:.0f} s"

    def position(self) -> str:
        """Return how many jobs are done."""
        return f"[{self.done}/{self.total}]"

    def line(self, text: str) -> None:
        """Print a line."""
        self.say(text)


class Clock:
    """The time for jobs. Each gets an equal share of the time that remains when it begins, a local
    baseline one share for each of its folds, which its clients share.

    Args:
        seconds: the time for all jobs.
        jobs: the jobs.
        workers: how many run at once.
    """

    def __init__(self, seconds: float, jobs: Sequence[Job], workers: int) -> None:
        self._end = time.monotonic() + seconds
        self._shares = float(sum(job.trainings for job in jobs))
        self._workers = workers
        self._lock = threading.Lock()

    def share(self, trainings: float) -> float:
        """Return the seconds for what begins now, and counts for so many trainings."""
        with self._lock:
            # Rounded sums of the clients' shares may end a little beside 0.
            portion = self._workers * trainings / max(self._shares, trainings, 1e-9)
            self._shares -= trainings
            return max(0.0, min(1.0, portion) * (self._end - time.monotonic()))


def run_jobs(
    jobs: Sequence[Job],
    pool: Pool | int,
    function: str,
    progress: Report,
    *,
    here: Callable[[Mapping[str, Any]], None] | None = None,
    seconds: float | None = None,
    needed: Callable[[Job], bool] = lambda job: False,
    memory: Callable[[Job], str] = lambda job: "",
) -> dict[str, str]:
    """Run the jobs that are not done yet.

    Args:
        jobs: all jobs; those that others are computed from come before these.
        pool: the pool of worker processes, or their number.
        function: the function that a worker process calls with a request, as ``module:name``. The
            request has the job as ``job``, its time limit or None as ``seconds``, and as ``client``
            the client for which the job's work is to be prepared, or None to do all of it.
        progress: reports how far the jobs are.
        here: the same function in this process, which runs the jobs if one at a time suffices; None
            to always run them in worker processes.
        seconds: the time for all jobs; None for no limit.
        needed: returns whether nothing else is worth running if a job fails.
        memory: returns the name of what the function keeps in memory (see
            :class:`~fedlit.jobs.pool.Call`).

    Returns:
        Name of each job that failed → its error, with the name of its class.

    Raises:
        FedlitError: a job that is needed failed.
    """
    pending = [job for job in jobs if finished(job) is None]
    _report_done(jobs, pending, progress.say)
    if not pending:
        return {}
    steps = sum(len(job.pieces) or 1 for job in pending)
    workers = min(pool, steps) if isinstance(pool, int) else steps
    clock = None if seconds is None else Clock(seconds, pending, workers)
    named = {job.folder: job for job in pending}
    calls = list[Call]()
    for job in pending:
        calls += _calls(job, function, named, clock, memory(job))
    context: Any = nullcontext(pool)
    if here is not None and workers == 1:
        context = nullcontext(Here(here))
    elif isinstance(pool, int):
        context = Pool(workers, [function.partition(":")[0]])
    failures = dict[str, str]()
    progress.begin(jobs, pending)
    spent = dict.fromkeys(named, 0.0)
    with context as processes, progress:
        for event in processes.run(calls):
            folder, _, client = event.call.name.partition(_CLIENT)
            job = named[folder]
            if event.error is None:
                progress.began(job)
                continue
            spent[folder] += event.seconds
            if client:  # an error comes again when the job itself ends
                progress.prepared(job)
                continue
            progress.ended(job, bool(event.error), spent[folder])
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


def _calls(
    job: Job, function: str, pending: Mapping[str, Job], clock: Clock | None, memory: str
) -> list[Call]:
    """Return the calls for a job, which wait for the pending jobs that it is computed from: one for
    each client that can be prepared by itself, and one for the whole job, which uses what these
    have left.
    """
    path = Path(job.folder)
    log = path.with_name(f"{path.name}.log")
    after = tuple(folder for folder in job.after if folder in pending)

    def call(client: str | None, share: float, after: tuple[str, ...]) -> Call:
        def request() -> dict[str, Any]:
            seconds = None if clock is None else clock.share(share)
            return {"job": job.request(), "seconds": seconds, "client": client}

        name = job.folder if client is None else f"{job.folder}{_CLIENT}{client}"
        log_of = log if client is None else path.with_name(f"{path.name}.{client}.log")
        return Call(name, function, request, log_of, after, memory)

    pieces = [call(client, job.trainings / len(job.pieces), after) for client in job.pieces]
    rest = 0.0 if pieces else float(job.trainings)
    return [*pieces, call(None, rest, (*after, *(piece.name for piece in pieces)))]


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
