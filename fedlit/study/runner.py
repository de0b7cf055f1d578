"""Runs the jobs of a study that are not done yet, several at once in separate processes, and
reports what is running, each run's scores, and the remaining time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from fedlit.files import exclusive
from fedlit.jobs import runner
from fedlit.jobs.bar import JobsBar, clock_time
from fedlit.jobs.job import Job
from fedlit.jobs.pool import Pool
from fedlit.jobs.runner import Report, Say, nothing
from fedlit.jobs.workers import Room
from fedlit.show.shown import print_notice
from fedlit.study.baselines import data_key
from fedlit.study.collect import of_choice
from fedlit.study.job import validation_scores
from fedlit.tasks import COMPARED

SERVE = "fedlit.study.runs:serve"
"""Does the work of a job in a worker process."""


def slots_of(workers: int | None, say: Say) -> int:
    """Return the number of simultaneous runs: as many as were asked for or, if none were, as the
    machine can carry, which is then said. The tables must have been read.
    """
    if workers is not None:
        return workers
    room = Room.here()
    say(f"{room.sentence}.")
    return room.workers


def locked(folder: Path) -> AbstractContextManager[None]:
    """Keep other processes out of a study's folder, which is created if it does not exist. The
    system releases the lock when this process ends in any way.

    Raises:
        ConfigError: another process uses the folder, or it cannot be written to.
    """
    return exclusive(
        folder / ".lock",
        f"{folder}: expected no other study at work there",
        "wait for it, or give --out",
    )


def run_jobs(jobs: Sequence[Job], pool: Pool | int, say: Say = nothing) -> dict[str, str]:
    """Run the jobs that are not done yet.

    Args:
        jobs: all jobs of the study.
        pool: the pool of worker processes, or their number.
        say: the function that prints messages; without one, no progress is shown.

    Returns:
        Name of each run that failed → its error.
    """
    report = Report() if say is nothing else Scores(say)
    return runner.run_jobs(jobs, pool, SERVE, report, memory=data_key)


class Scores(JobsBar):
    """Shows a bar, and a line for each run that ends, with its scores."""

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Show an empty bar, and say what the scores are."""
        super().begin(jobs, pending)
        self._best: tuple[float, str] | None = None
        # These are scores of validation rows: nobody is tempted to choose by test rows while a
        # study runs.
        self.line("Scores as runs end: of validation rows, mean over clients (the report: test).")

    def line(self, text: str) -> None:
        """Print a line to standard error."""
        if self._bar.shown:
            super().line(text)
        else:
            print_notice(text)

    def outcome(self, job: Job, failed: bool, seconds: float) -> str:
        """Return a run's scores by which clients choose."""
        if failed:
            return f"FAILED, more at the end ({clock_time(seconds)})"
        values = of_choice(validation_scores(job), job.choose)
        texts = list[str]()
        for metric, group in values.groupby("metric", sort=False):
            score = COMPARED[str(metric)]
            texts.append(f"{score.label} {score.text(float(group['value'].mean(skipna=False)))}")
        # Scores of several metrics have no order.
        gain = float(values["gain"].mean(skipna=False))
        if len(texts) == 1 and (self._best is None or gain > self._best[0]):
            self._best = gain, job.name
            self.best = f"best so far {texts[0]} ({job.name})"
        return f"{'; '.join(texts)} ({clock_time(seconds)})"
