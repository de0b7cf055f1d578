"""Runs the jobs of a study that are not done yet, several at once, each in a process of its own, and says what is
running, each run's scores, how long it may take still.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from fedlit.errors import ConfigError
from fedlit.files import advice, reason
from fedlit.locks import exclusive
from fedlit.run.worker import Call, Pool, cores
from fedlit.show.text import terminal_width
from fedlit.study.choose import of_choice
from fedlit.study.job import DONE, Job, finished, validation_scores
from fedlit.tasks import COMPARED

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
    named, failures = {job.folder: job for job in left}, dict[str, str]()
    calls = [
        Call(
            job.folder, "fedlit.study.runs:serve", job.request, Path(job.folder).with_suffix(".log"),
            tuple(folder for folder in job.after if folder in named),
        )
        for job in left
    ]  # fmt: skip
    own = Pool(min(pool, len(left))) if isinstance(pool, int) else nullcontext(pool)
    with own as workers, Progress(len(jobs), len(left), quiet) as progress:
        for call, error, seconds in workers.run(calls):
            job = named[call.name]
            if error is None:
                progress.begin(job)
                continue
            if error:
                failures[job.name] = error
            progress.done(job, seconds, bool(error))
    return failures


class Progress:
    """A line for each run that ends, with its scores; on a terminal a bar below them.

    Scores are those of validation rows: looking at them while a study runs tempts nobody to choose by test rows.

    Args:
        total: how many runs the study has.
        left: how many of them are not done yet.
        quiet: nothing is said.
        stream: where to; standard error by default.
    """

    def __init__(self, total: int, left: int, quiet: bool, stream: TextIO | None = None) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.total, self.begun, self.left = total, time.monotonic(), left
        self.first, self.quiet = left, quiet
        self._bar = tqdm(
            total=total, initial=total - left, file=self.stream, disable=quiet or not self.stream.isatty(),
            ncols=terminal_width(self.stream), unit="run",
        )  # fmt: skip
        if not quiet:
            self._say("Scores as runs end: of validation rows, mean over clients (the report: test).")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def begin(self, job: Job) -> None:
        """A run is started."""
        self._bar.set_postfix_str(job.name)

    def done(self, job: Job, seconds: float, failed: bool) -> None:
        """A run has ended."""
        self.left -= 1
        self._bar.update()
        if self.quiet:
            return
        own = "FAILED, more at the end" if failed else _scores(job)
        where = "" if not self._bar.disable else f"[{self._meter()}] "
        self._say(f"{where}{job.name}: {own} ({tqdm.format_interval(round(seconds))})")

    def _meter(self) -> str:
        text: str = tqdm.format_meter(
            self.total - self.left, self.total, time.monotonic() - self.begun, initial=self.total - self.first,
            bar_format="{n_fmt}/{total_fmt}, {remaining} left" if self.left else "{n_fmt}/{total_fmt}",
        )  # fmt: skip
        return text

    def _say(self, line: str) -> None:
        tqdm.write(line, file=self.stream)
        self.stream.flush()


def _scores(job: Job) -> str:
    """A run's scores by which clients choose."""
    values = of_choice(validation_scores(job), job.choose).groupby("metric", sort=False)["value"]
    scores = [(COMPARED[str(name)], own.mean(skipna=False)) for name, own in values]
    return "; ".join(f"{score.label} {score.text(float(mean))}" for score, mean in scores)
