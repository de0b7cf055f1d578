"""Tunes settings: trains each combination with a few seeds, and evaluates it on validation rows
only.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedlit.errors import FedlitError
from fedlit.jobs.job import Job, Train, variant_name
from fedlit.jobs.pool import Pool
from fedlit.jobs.runner import nothing
from fedlit.study.basis import Basis
from fedlit.study.collect import of_choice
from fedlit.study.job import validation_scores
from fedlit.study.method import Method
from fedlit.study.plan import plan_jobs
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.runner import run_jobs
from fedlit.study.seeds import seed_words
from fedlit.tasks import COMPARED

TUNED = "settled.csv"
TUNING = "tuning"
"""Where runs of ``tune_seeds`` lie, in the study's folder."""


Judged = tuple[float, str]
"""The value of a combination of settings, of which larger is better, and why there is none: a run
failed, or its predictions were not finite; then the value is NaN."""

_COLUMNS = ["method", "settings", "value", "chosen"]


class Tried(NamedTuple):
    """A combination of settings that was tried.

    Attributes:
        settings: the settings.
        gain: its value, of which larger is better; NaN if there is none.
        error: why there is none.
    """

    settings: dict[str, Any]
    gain: float
    error: str


def judged(
    study: ResolvedStudy,
    settings: Sequence[tuple[str, Mapping[str, Any]]],
    seeds: Sequence[int],
    folder: Path,
    basis: Basis,
    pool: Pool | int,
    say: Callable[[str], None] = nothing,
) -> list[Judged]:
    """Train combinations of settings, and judge each by the mean over seeds and clients of the
    metric by which a client chooses.

    Args:
        study: the study.
        settings: pairs of a method and the keys to change.
        seeds: the seeds of each training.
        folder: the folder of the runs; finished runs are not repeated.
        basis: the basis of the study.
        pool: the pool of worker processes, or their number.
        say: the function that prints messages; without one, no progress is shown.
    """
    planned: list[list[Job]] = []
    errors: dict[int, str] = {}
    for position, (name, changed) in enumerate(settings):
        try:
            planned.append(tuning_jobs(study, name, changed, seeds, folder, basis))
        except FedlitError as error:
            planned.append([])
            errors[position] = str(error)
    failures = run_jobs(list(itertools.chain.from_iterable(planned)), pool, say)
    results = []
    for position, jobs in enumerate(planned):
        failed = [f"seed {job.seed}: {failures[job.name]}" for job in jobs if job.name in failures]
        why = errors.get(position) or "; ".join(failed)
        results.append((math.nan, why) if why else _judge(study, jobs))
    return results


def tuning_jobs(
    study: ResolvedStudy,
    name: str,
    changed: Mapping[str, Any],
    seeds: Sequence[int],
    folder: Path,
    basis: Basis,
) -> list[Job]:
    """Return the jobs of a combination of settings, one for each seed. They never see test rows."""
    method = study.methods[name]
    method = replace(method, set={**method.set, **changed}, reference=None, tune={})
    alone = replace(
        study,
        methods={name: method},
        reference=name,
        baselines={},
        bootstrap=0,
        leave_one_out=False,
    )
    runs = folder / "runs" / variant_name(name, changed)
    jobs = list[Job]()
    for job in plan_jobs(alone, seeds, folder, basis):
        assert isinstance(job.work, Train)  # a study of one method fits no local baseline
        work = replace(job.work, test=False)
        folder_of_seed = str(runs / f"seed_{job.seed}")
        jobs.append(replace(job, work=work, settings=dict(changed), folder=folder_of_seed))
    return jobs


def _judge(study: ResolvedStudy, jobs: Sequence[Job]) -> Judged:
    gains = list[float]()
    for job in jobs:
        every = validation_scores(job)
        every = every[every["metric"].isin(list(COMPARED))].sort_values("client")
        # A client without any score had predictions that were not finite: then there is no value,
        # as for a run that failed.
        lost = every.groupby("client")["value"].count().eq(0).any()
        chosen = of_choice(every, study.choose)
        gains.append(math.nan if lost else float(chosen["gain"].mean()))
    gain = sum(gains) / len(gains)
    reason = (
        f"its {', '.join(study.choices)} on validation is not a number: predictions that are "
        "not finite, or one class"
    )
    return gain, reason if math.isnan(gain) else ""


def _at_ends(best: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Map each key whose best value is the smallest or the largest of three or more numbers to that
    value.

    Example:
        >>> _at_ends({"lr": 0.1, "width": 8}, [{"lr": lr, "width": 8} for lr in (0.001, 0.01, 0.1)])
        {'lr': 0.1}
    """
    ends = {}
    for key, value in best.items():
        values = {
            combination[key]
            for combination in tried
            if isinstance(combination.get(key), int | float)
        }
        if len(values) > 2 and value in (min(values), max(values)):
            ends[key] = value
    return ends


def tune(
    study: ResolvedStudy,
    folder: Path,
    basis: Basis,
    slots: int,
    say: Callable[[str], None] = nothing,
) -> tuple[ResolvedStudy, pd.DataFrame]:
    """Train every combination of settings with the study's ``tune_seeds``, and keep the best of
    each method.

    Args:
        study: the study; without ``tune_seeds`` it stays unchanged, and clients choose.
        folder: the folder of the study.
        basis: the basis of the study.
        slots: the number of simultaneous runs.
        say: the function that prints messages; without one, no progress is shown.

    Returns:
        The study with the chosen settings instead of those to tune, and a table of all
        combinations: method, settings as JSON, value, and whether it was chosen.
    """
    if not study.tune_seeds:
        return study, pd.DataFrame(columns=_COLUMNS)
    plan_jobs(study, [], folder, basis)  # refuses what cannot be run, before anything is tuned
    settings = list[tuple[str, dict[str, Any]]]()
    for name, method in study.methods.items():
        # One combination is no choice.
        if len(method.combinations) > 1:
            settings += [(name, combination) for combination in method.combinations]
    if settings:
        count = len({name for name, _ in settings})
        say(
            f"Settings of {count} methods are tuned by validation rows of seed "
            f"{seed_words(study.tune_seeds)}: {len(settings) * len(study.tune_seeds)} runs"
        )
    results = judged(study, settings, study.tune_seeds, folder / TUNING, basis, slots, say)
    score = COMPARED[study.choices[0]]
    methods = dict[str, Method]()
    rows = list[tuple[str, str, float, bool]]()
    for name, method in study.methods.items():
        tried = [
            Tried(combination, *result)
            for (whose, combination), result in zip(settings, results, strict=True)
            if whose == name
        ]
        best = _best(tried, method.combinations[0])
        methods[name] = replace(method, set={**method.set, **best}, tune={})
        _say_tuned(name, tried, best, say)
        for trial in tried:
            # The table has the value as it was measured, not the gain.
            value = score.gain(trial.gain, 0.0)
            rows.append((name, json.dumps(trial.settings), value, trial.settings is best))
    return replace(study, methods=methods), pd.DataFrame(rows, columns=_COLUMNS)


def _best(tried: Sequence[Tried], first: dict[str, Any]) -> dict[str, Any]:
    """Return the best settings that came to their end, the first of equals; if none did, the first
    ones.
    """
    valued = [trial for trial in tried if not trial.error]
    if not valued:
        return first
    return max(valued, key=lambda trial: trial.gain).settings


def _say_tuned(
    name: str, tried: Sequence[Tried], best: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Say what a reader of the chosen settings should know: a best value at the end of its grid,
    and combinations that failed.
    """
    valued = [trial for trial in tried if not trial.error]
    for key, value in _at_ends(best, [trial.settings for trial in valued]).items():
        say(
            f"{name}: the best {key} is {value:g}, the end of what was tried: a value beyond it "
            "may be better"
        )
    if tried and not valued:
        say(
            f"{name}: no combination of settings came to its end, so it has its first ones: "
            f"{tried[0].error}"
        )
        return
    for trial in tried:
        if trial.error:
            say(f"{name}: {json.dumps(trial.settings)} has no value: {trial.error}")
