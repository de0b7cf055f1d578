"""The jobs of a mixture: each part with each fold, here or in worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedlit.composite.parts import Part

__all__ = ["Job", "execute", "jobs_of", "run_jobs"]


@dataclass(frozen=True)
class Job:
    """What is trained in one go.

    Attributes:
        part: which part.
        fold: which fold; None for all of a go-alone model, whose settings are chosen over folds.
        by: the score that chooses settings.
    """

    part: Part
    fold: int | None
    by: str | None = None

    @property
    def name(self) -> str:
        """As people read it."""
        return self.part.name if self.fold is None else f"{self.part.name}, fold {self.fold}"

    @property
    def done(self) -> bool:
        """Whether it was run to its end."""
        folds = self.part.each_fold if self.fold is None else [self.fold]
        return all(self.part.done(fold) for fold in folds)


def jobs_of(parts: Sequence[Part], by: str | None) -> list[Job]:
    """All jobs, in the order of parts and folds."""
    found = []
    for part in parts:
        folds = [None] if part.settings.go_alone is not None else list(part.each_fold)
        found += [Job(part, fold, by) for fold in folds]
    return found


def execute(job: Job) -> None:
    """Run one job to its end."""
    if job.fold is not None:
        job.part.train(job.fold)
        return
    from fedlit.composite.alone import fit_alone

    fit_alone(job.part, job.by)


def run_jobs(jobs: Sequence[Job], workers: int, say: Callable[[str], None]) -> None:
    """Run what is not done yet.

    Args:
        jobs: all of them.
        workers: processes at once.
        say: where progress is told.

    Raises:
        FedlitError: a job could not be run; the first one's.
    """
    left = [job for job in jobs if not job.done]
    if len(left) < len(jobs):
        say(f"{len(jobs) - len(left)} of {len(jobs)} trainings are done already")
    for number, job in enumerate(left, 1):
        begun = time.perf_counter()
        execute(job)
        say(f"[{number}/{len(left)}] {job.name}: {time.perf_counter() - begun:.0f} s")
