"""The jobs of a mixture: each part with each fold, here or in worker processes."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlit.composite.folders import CONFIG
from fedlit.composite.parts import Part
from fedlit.errors import RunError
from fedlit.run.worker import WorkerProcess, cores

__all__ = ["Job", "execute", "jobs_of", "run_jobs", "serve"]


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
        folds: list[int | None] = [None] if part.settings.go_alone is not None else list(part.each_fold)
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
    if workers > 1 and len(left) > 1:
        _at_once(left, min(workers, len(left)), say)
        return
    for number, job in enumerate(left, 1):
        begun = time.perf_counter()
        execute(job)
        say(f"[{number}/{len(left)}] {job.name}: {time.perf_counter() - begun:.0f} s")


def serve(request: Mapping[str, Any]) -> None:
    """Run one job in a process of its own.

    Args:
        request: the run's folder, the part's name, the fold.
    """
    from fedlit.composite.settings import settings_of

    folder = Path(request["folder"])
    settings = settings_of(folder / CONFIG)
    execute(Job(Part.of(settings, folder)[request["part"]], request["fold"], settings.by))


def _at_once(jobs: Sequence[Job], workers: int, say: Callable[[str], None]) -> None:
    """Several at once, each in a process of its own with its share of the cores; after an error no other one begins."""
    waiting, events = deque(jobs), queue.SimpleQueue[tuple[Job, str, float]]()
    processes = [WorkerProcess(max(1, cores() // workers)) for _ in range(workers)]

    def work(process: WorkerProcess) -> None:
        while True:
            try:
                job = waiting.popleft()
            except IndexError:
                return
            begun, part = time.perf_counter(), job.part
            request = {"folder": str(part.folder.parent.parent), "part": part.name, "fold": job.fold}
            log = part.folder / f"fold_{job.fold if job.fold is not None else 'all'}.log"
            events.put((job, process.call("fedlit.composite.jobs:serve", request, log), time.perf_counter() - begun))

    threads = [threading.Thread(target=work, args=(process,), daemon=True) for process in processes]
    try:
        for thread in threads:
            thread.start()
        for number in range(1, len(jobs) + 1):
            job, error, seconds = _next(events)
            if error:
                told = error.partition(": ")[2] if error.split(":")[0].endswith("Error") else error
                raise RunError(f"{job.name}: {told}; see {job.part.folder}/*.log. Continue with --ckpt_path last")
            say(f"[{number}/{len(jobs)}] {job.name}: {seconds:.0f} s")
    finally:
        waiting.clear()
        for process in processes:
            process.stop()


def _next(events: queue.SimpleQueue[tuple[Job, str, float]]) -> tuple[Job, str, float]:
    while True:
        try:  # a wait without end could not be interrupted on every system
            return events.get(timeout=1)
        except queue.Empty:
            continue
