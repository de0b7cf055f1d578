"""Runs the trainings of a mixture, each part with each fold, in this process or in worker
processes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlit.errors import FedlitError, RunError
from fedlit.mixture.alone import fit_part
from fedlit.mixture.parts import MORE_TIME, Part
from fedlit.mixture.settings import CONFIG, MixtureSettings, settings_of
from fedlit.run.worker import Call, Pool

Tell = Callable[[str], None]
Ended = Iterator[tuple[str, FedlitError | None, float]]


def run_jobs(
    parts: Sequence[Part], settings: MixtureSettings, notify: Tell, seconds: float | None
) -> dict[str, str]:
    """Run the missing trainings, in the order of parts and folds.

    Args:
        parts: all parts of the mixture.
        settings: the settings of the mixture.
        notify: the function that reports progress.
        seconds: the time for all trainings. Each training gets an equal share of the remaining
            time, a local baseline one share for each fold. None for no limit.

    Returns:
        Part → why it is left out, where time is limited.

    Raises:
        FedlitError: a training failed, and either time is not limited or the part is a local
            baseline.
    """
    every = dict[str, tuple[Part, int | None]]()
    for part in parts:
        if part.settings.go_alone is None:
            every |= {f"{part.name}, fold {fold}": (part, fold) for fold in part.each_fold}
        else:
            every[part.name] = (part, None)
    total = len(every)
    jobs = {name: training for name, training in every.items() if not _is_done(*training)}
    if len(jobs) < total:
        notify(f"{total - len(jobs)} of {total} trainings are done already")
    shares = {
        name: len(part.each_fold) if fold is None else 1 for name, (part, fold) in jobs.items()
    }
    remaining = sum(shares.values())
    workers = min(settings.workers, len(jobs))
    end = time.monotonic() + (seconds or 0)

    def share(name: str) -> float | None:
        nonlocal remaining
        portion = shares[name] / remaining
        remaining -= shares[name]
        if seconds is None:
            return None
        return max(0.0, min(1.0, workers * portion) * (end - time.monotonic()))

    out = dict[str, str]()
    run = _at_once if workers > 1 else _here
    for number, (name, error, took) in enumerate(run(jobs, settings, share), 1):
        part, _ = jobs[name]
        if error is None:
            notify(f"[{number}/{len(jobs)}] {name}: {took:.0f} s")
        elif seconds is None or part.settings.go_alone is not None:
            raise error
        else:
            out[part.name] = " ".join(str(error).split())
    late = f"no time was left for it; {MORE_TIME}"
    return {part.name: late for part in parts if not part.done()} | out


def _is_done(part: Part, fold: int | None) -> bool:
    return part.done() if fold is None else part.done(fold)


Jobs = Mapping[str, tuple[Part, int | None]]


def _here(jobs: Jobs, settings: MixtureSettings, share: Callable[[str], float | None]) -> Ended:
    for name, (part, fold) in jobs.items():
        begun = time.monotonic()
        failed = None
        try:
            _train(part, fold, settings, share(name))
        except FedlitError as error:
            failed = error
        yield name, failed, time.monotonic() - begun


def _at_once(jobs: Jobs, settings: MixtureSettings, share: Callable[[str], float | None]) -> Ended:
    calls = []
    for name, (part, fold) in jobs.items():
        request = {"folder": str(part.folder.parent.parent), "part": part.name, "fold": fold}
        log = part.folder / f"fold_{'all' if fold is None else fold}.log"
        with_share = lambda request=request, name=name: {**request, "seconds": share(name)}  # noqa: E731
        calls.append(Call(name, "fedlit.mixture.jobs:serve", with_share, log))
    with Pool(min(settings.workers, len(calls))) as pool:
        for call, error, took in pool.run(calls):
            if error is not None:
                message = (
                    error.partition(": ")[2] if error.split(":")[0].endswith("Error") else error
                )
                failed = RunError(
                    f"{call.name}: {message}; see {call.log}. Continue with --ckpt_path last"
                )
                yield call.name, failed if error else None, took


def serve(request: Mapping[str, Any]) -> None:
    """Train in a worker process. The request has the run's folder, the part's name, the fold, and
    the number of seconds allowed.
    """
    folder = Path(request["folder"])
    settings = settings_of(folder / CONFIG)
    _train(
        Part.of(settings, folder)[request["part"]], request["fold"], settings, request["seconds"]
    )


def _train(part: Part, fold: int | None, settings: MixtureSettings, seconds: float | None) -> None:
    if fold is None:
        by = None if settings.mixing.by is None else str(settings.mixing.by)
        limit = math.inf if seconds is None else seconds
        fit_part(part, by, limit)
    elif seconds is None or seconds > 0:
        part.train(fold, seconds)
