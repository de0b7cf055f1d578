"""Runs the jobs of a study that are not done yet, several at once in separate processes, and
reports what is running, each run's scores, and the remaining time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from pathlib import Path

from tqdm import tqdm

from fedlit.files import exclusive
from fedlit.run.worker import Call, Pool, cores
from fedlit.show.text import terminal_width
from fedlit.study.collect import of_choice
from fedlit.study.job import DONE, Job, finished, validation_scores
from fedlit.tasks import COMPARED


def default_jobs() -> int:
    """Return the default number of simultaneous runs: one per core, at most 4 to limit memory."""
    return min(4, cores())


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


def nothing(text: str) -> None:
    """Ignore a message."""


def run_jobs(
    jobs: Sequence[Job], pool: Pool | int, say: Callable[[str], None] = nothing
) -> dict[str, str]:
    """Run the jobs that are not done yet.

    Args:
        jobs: all jobs of the study.
        pool: the pool of worker processes, or their number.
        say: the function that prints messages; without one, no progress is shown.

    Returns:
        Name of each run that failed → its error.
    """
    quiet = say is nothing
    pending = [job for job in jobs if finished(job) is None]
    outdated = sum((Path(job.folder) / DONE).exists() for job in pending)
    if len(pending) < len(jobs):
        say(f"{len(jobs) - len(pending)} of {len(jobs)} runs are done already")
    if outdated:
        say(
            f"{outdated} runs were made with another configuration or data, or are damaged: they are "
            "run again"
        )
    if not pending:
        return {}
    named = {job.folder: job for job in pending}
    failures = dict[str, str]()
    calls = []
    for job in pending:
        log = Path(job.folder).with_suffix(".log")
        after = tuple(folder for folder in job.after if folder in named)
        calls.append(Call(job.folder, "fedlit.study.runs:serve", job.request, log, after))
    screen = sys.stderr if sys.stderr.isatty() else StringIO()
    pool_context = Pool(min(pool, len(pending))) if isinstance(pool, int) else nullcontext(pool)
    # These are scores of validation rows: nobody is tempted to choose by test rows while a study
    # runs.
    if not quiet:
        tqdm.write(
            "Scores as runs end: of validation rows, mean over clients (the report: test).",
            file=sys.stderr,
        )
    progress = tqdm(
        total=len(jobs),
        initial=len(jobs) - len(pending),
        disable=quiet,
        ncols=terminal_width(sys.stderr),
        unit="run",
        file=screen,
    )
    with pool_context as workers, progress as bar:
        for call, error, seconds in workers.run(calls):
            if error is None:
                bar.set_postfix_str(named[call.name].name)
                continue
            bar.update()
            if error:
                failures[named[call.name].name] = error
            if not quiet:
                _tell(bar, named[call.name], bool(error), seconds)
    return failures


def _tell(bar: tqdm, job: Job, failed: bool, seconds: float) -> None:
    """Print a line for a run that has ended, including the progress if no bar is shown."""
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
