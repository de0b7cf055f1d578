"""Runs the jobs of a study that are not done yet, several at once in separate processes, and
reports what is running, each run's scores, and the remaining time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import StringIO
from pathlib import Path

from tqdm import tqdm

from fedlit.files import exclusive
from fedlit.jobs import runner
from fedlit.jobs.job import Job
from fedlit.jobs.pool import Pool
from fedlit.jobs.runner import Progress, Say, nothing
from fedlit.jobs.workers import Room
from fedlit.show.text import terminal_width
from fedlit.study.baselines import data_key
from fedlit.study.collect import of_choice
from fedlit.study.job import validation_scores
from fedlit.tasks import COMPARED

SERVE = "fedlit.study.runs:serve"
"""Does the work of a job in a worker process."""


def slots_of(jobs: int | None, say: Say) -> int:
    """Return the number of simultaneous runs: as many as were asked for or, if none were, as the
    machine can carry, which is then said. The tables must have been read.
    """
    if jobs is not None:
        return jobs
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
    progress = Progress() if say is nothing else Bar(say)
    return runner.run_jobs(jobs, pool, SERVE, progress, memory=data_key)


class Bar(Progress):
    """Shows a bar on a terminal, and a line for each run that ends, with its scores."""

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Show an empty bar."""
        super().begin(jobs, pending)
        # These are scores of validation rows: nobody is tempted to choose by test rows while a
        # study runs.
        tqdm.write(
            "Scores as runs end: of validation rows, mean over clients (the report: test).",
            file=sys.stderr,
        )
        screen = sys.stderr if sys.stderr.isatty() else StringIO()
        self.bar = tqdm(
            total=self.total,
            initial=self.done,
            ncols=terminal_width(sys.stderr),
            unit="run",
            file=screen,
        )

    def __exit__(self, *error: object) -> None:
        self.bar.close()

    def began(self, job: Job) -> None:
        """Show which job has begun."""
        self.bar.set_postfix_str(job.name)

    def ended(self, job: Job, failed: bool, seconds: float) -> None:
        """Print a line for a run that has ended, including the progress if no bar is shown."""
        bar = self.bar
        bar.update()
        remaining = ", {remaining} left" if bar.n < bar.total else ""
        position = bar.format_meter(
            **{**bar.format_dict, "bar_format": "[{n_fmt}/{total_fmt}" + remaining + "] "}
        )
        outcome = "FAILED, more at the end" if failed else _scores(job)
        line = f"{job.name}: {outcome} ({bar.format_interval(round(seconds))})"
        tqdm.write(line if sys.stderr.isatty() else f"{position}{line}", file=sys.stderr)


def _scores(job: Job) -> str:
    """Describe a run's scores by which clients choose."""
    values = of_choice(validation_scores(job), job.choose).groupby("metric", sort=False)["value"]
    scores = [(COMPARED[str(name)], group.mean(skipna=False)) for name, group in values]
    return "; ".join(f"{score.label} {score.text(float(mean))}" for score, mean in scores)
