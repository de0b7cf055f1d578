"""Runs the jobs of a study that are not done yet, several at once, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.files import advice, reason
from fedlit.locks import exclusive
from fedlit.run.worker import Call, Pool, cores
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


def nothing(text: str) -> None:
    """Where nobody listens."""


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
    named, failures = {job.folder: job for job in left}, {}
    calls = [_call(job, named) for job in left]
    with Progress(len(jobs), len(left), quiet) as progress:
        for call, error, seconds in pool.run(calls):
            job = named[call.name]
            if error is None:
                progress.begin(job)
                continue
            if error:
                failures[job.name] = error
            progress.done(job, seconds, bool(error))
    return failures


def _call(job: Job, left: Mapping[str, Job]) -> Call:
    after = tuple(folder for folder in job.after if folder in left)
    return Call(job.folder, "fedlit.study.runs:serve", job.request, Path(job.folder).with_suffix(".log"), after)
