"""Settings of tuned methods, settled once for all clients on validation rows of seeds that are not reported."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.data.table import ClientTable
from fedlit.study.job import Job, finished, validation_scores
from fedlit.study.plan import plan_jobs
from fedlit.study.runner import nothing, run_jobs
from fedlit.study.seeds import seed_words
from fedlit.study.study import Study
from fedlit.tasks import COMPARED

__all__ = ["SETTLED", "settle"]

SETTLED = "settled.csv"
TRIALS = "tuning"
"""Where runs of these seeds lie, in the study's folder."""
_COLUMNS = ["method", "settings", "value", "chosen"]


def settle(
    study: Study,
    folder: Path,
    tables: Sequence[ClientTable],
    jobs: int,
    *,
    quiet: bool = False,
    say: Callable[[str], None] = nothing,
) -> tuple[Study, pd.DataFrame]:
    """Train every combination of settings on the study's ``tune_seeds``, and keep of each method the best.

    No test row is scored. A combination is judged by the mean over clients and seeds of the metric to choose by; one
    that failed, or whose predictions are not finite, is out.

    Args:
        study: completed by its clients' tasks; without ``tune_seeds`` it stays as it is, and clients choose.
        folder: the study's.
        tables: of its clients.
        jobs: runs at once.
        quiet: no progress.
        say: where messages go.

    Returns:
        The study with what was chosen in the place of what is tuned; all combinations: method, settings as JSON, value,
        whether it was chosen.
    """
    if study.tune_seeds is None:
        return study, pd.DataFrame(columns=_COLUMNS)
    tuned = {name: method for name, method in study.methods.items() if len(method.combinations) > 1}
    methods = {  # one combination is no choice
        name: method if name in tuned else replace(method, set={**method.set, **method.combinations[0]}, tune={})
        for name, method in study.methods.items()
    }
    if not tuned:
        return replace(study, methods=methods, tune={}), pd.DataFrame(columns=_COLUMNS)
    planned = _trials(study, [*tuned], folder, tables)
    runs = sum(job.method in tuned for job in planned)
    where = f"validation rows of seed {seed_words(study.tune_seeds)}"
    say(f"Settings of {len(tuned)} methods are settled by {where}: {runs} runs")
    failures = run_jobs(planned, jobs, quiet=quiet, say=say)
    rows = []
    for name, method in tuned.items():
        values = [_value(study, [job for job in planned if job.method == name and job.settings == own])
                  for own in method.combinations]  # fmt: skip
        if all(math.isnan(value) for value in values):
            reason = next((error for run, error in failures.items() if run.startswith(name)), "no score is known")
            say(f"{name}: no combination of settings came to its end, so it has its first ones: {reason}")
        best = max(range(len(values)), key=lambda place: -math.inf if math.isnan(values[place]) else values[place])
        methods[name] = replace(method, set={**method.set, **method.combinations[best]}, tune={})
        for place, own in enumerate(method.combinations):
            rows.append((name, json.dumps(own), values[place], place == best))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    score = COMPARED[study.choices[0]]
    frame["value"] = [score.gain(value, 0.0) for value in frame["value"]]  # as it was measured
    some = frame.groupby("method")["value"].transform("count") > 0
    failed = frame[frame["value"].isna() & some]
    for name, settings in zip(failed["method"], failed["settings"], strict=True):
        say(f"{name}: {settings} has no value: its run failed, or predicted what is not finite")
    return replace(study, methods=methods, tune={}), frame


def _trials(study: Study, tuned: Sequence[str], folder: Path, tables: Sequence[ClientTable]) -> list[Job]:
    """The runs of all combinations; they never see test rows."""
    kept = {study.reference, *tuned}
    methods = {name: replace(own, reference=None) for name, own in study.methods.items() if name in kept}
    trials = replace(study, methods=methods, baselines={}, blends={}, bootstrap=0, explain=False,
                     leave_one_out=False, search=None, tune={}, tune_seeds=None)  # fmt: skip
    seeds = study.tune_seeds or []
    planned = plan_jobs(trials, seeds, folder / TRIALS, tables)
    return [replace(job, test=False) for job in planned if job.method in tuned]


def _value(study: Study, jobs: Sequence[Job]) -> float:
    """How good a combination is, the larger the better; NaN where that is not known."""
    values = []
    for job in jobs:
        if finished(job) is None:
            return math.nan
        own = validation_scores(job)
        metric = own["client"].map({client: study.choice_of(client) for client in own["client"].unique()})
        chosen = own[own["metric"] == metric].dropna(subset=["value"])
        gains: list[Any] = [
            COMPARED[name].gain(value, 0.0) for name, value in zip(chosen["metric"], chosen["value"], strict=True)
        ]
        values.append(sum(gains) / len(gains) if gains else math.nan)
    return sum(values) / len(values) if values else math.nan
