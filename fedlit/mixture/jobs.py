"""Runs the trainings of a mixture, each part with each fold, in this process or in worker
processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedlit.jobs import runner
from fedlit.jobs.bar import JobsBar
from fedlit.jobs.job import FitAlone, Job
from fedlit.jobs.record import Output, execute, finished
from fedlit.jobs.runner import Report, Say, nothing, without_class
from fedlit.mixture.alone import fit_client, fit_part
from fedlit.mixture.folders import CONFIG
from fedlit.mixture.parts import MORE_TIME, Part
from fedlit.mixture.written import settings_of
from fedlit.tasks import SCORES


def run_jobs(
    parts: Mapping[str, Part], workers: int, say: Say, seconds: float | None
) -> dict[str, str]:
    """Run the missing trainings, in the order of parts and folds.

    Args:
        parts: all parts of the mixture.
        workers: the number of processes that train at once.
        say: the function that reports progress.
        seconds: the time for all trainings; None for no limit.

    Returns:
        Part → why it is left out, where time is limited.

    Raises:
        FedlitError: a training failed, and either time is not limited or the part is a local
            baseline.
    """

    def here(request: Mapping[str, Any]) -> None:
        _execute(parts, request)

    def needed(job: Job) -> bool:
        return seconds is None or isinstance(job.work, FitAlone)

    jobs = list[Job]()
    for part in parts.values():
        jobs += part.jobs()
    report = Report() if say is nothing else _Candidates(say)
    failures = runner.run_jobs(
        jobs,
        workers,
        "fedlit.mixture.jobs:serve",
        report,
        here=here,
        seconds=seconds,
        needed=needed,
        memory=lambda job: _run_of(job.folder),  # the tables that all parts share
    )
    late = f"no time was left for it; {MORE_TIME}"
    out = {name: late for name, part in parts.items() if not part.done()}
    for job in jobs:
        if job.name in failures:
            out[job.method] = " ".join(without_class(failures[job.name]).split())
    return out


class _Candidates(JobsBar):
    """Shows a bar, a line for each training that ends, and the best part so far by the score that
    decides.
    """

    def begin(self, jobs: Sequence[Job], pending: Sequence[Job]) -> None:
        """Show a bar with the trainings that were done before."""
        super().begin(jobs, pending)
        self._jobs = jobs

    def ended(self, job: Job, failed: bool, seconds: float) -> None:
        """Report that a training has ended."""
        self.best = best_so_far(self._jobs)
        super().ended(job, failed, seconds)


def best_so_far(jobs: Sequence[Job]) -> str:
    """Return the part with the best mean over its folds, among those whose folds are all trained,
    for the user; empty if there is none, or if parts have different scores.
    """
    values = dict[str, list[float]]()
    scores = set[str]()
    for job in jobs:
        held_out = (finished(job) or {}).get("held_out", {"value": math.nan})
        values.setdefault(job.method, []).append(held_out["value"])
        scores |= {held_out["score"]} if "score" in held_out else set()
    if len(scores) != 1:
        return ""
    score = SCORES[scores.pop()]
    means = {part: sum(of_folds) / len(of_folds) for part, of_folds in values.items()}
    best = score.best(means)
    return "" if best is None else f"best so far {score.label} {score.text(means[best])} ({best})"


def serve(request: Mapping[str, Any]) -> None:
    """Do the work of a job, or of one of its clients, in a worker process."""
    _execute(_read(_run_of(request["job"]["folder"])), request)


def _run_of(folder: str) -> str:
    """Return the folder of the run to which the folder of a job belongs."""
    return str(next(parent for parent in Path(folder).parents if parent.name == "parts").parent)


@lru_cache(maxsize=1)
def _read(run: str) -> dict[str, Part]:
    """Read a mixture from its folder, once for all jobs of a worker process."""
    folder = Path(run)
    return Part.of(settings_of(folder / CONFIG), folder)


def _execute(parts: Mapping[str, Part], request: Mapping[str, Any]) -> None:
    limit = math.inf if request["seconds"] is None else request["seconds"]
    if request["client"] is not None:
        job = Job.of(request["job"])
        fit_client(parts[job.method], request["client"], job.digest, limit)
        return

    def work(job: Job, seconds: float | None) -> Output | None:
        part = parts[job.method]
        if job.fold is None:
            return fit_part(part, job.digest, limit)
        if seconds is None or seconds > 0:
            return part.train(job.fold, seconds)
        return None

    execute(Job.of(request["job"]), work, request["seconds"])
