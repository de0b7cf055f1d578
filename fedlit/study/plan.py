"""Plans all jobs of a study, with what each is computed from. What cannot be run is refused before
the first run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedlit.jobs.job import Combine, FitAlone, Job, variant_name
from fedlit.jobs.record import FORMAT
from fedlit.study.alone import means_of, model_for
from fedlit.study.basis import Basis, data_config
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.trained import Planned, entering_parts, planned_methods, reference_run
from fedlit.study.without import runs_without
from fedlit.tasks import Task
from fedlit.tasks.go_alone import TREES_AND_LINEAR, is_any_model

_NOT_MADE_OF = ("config", "overrides", "test", "clients")
"""What a work has that says nothing more than the keys of its configuration, or that does not
change the result."""


def plan_jobs(study: ResolvedStudy, seeds: Sequence[int], out: Path, basis: Basis) -> list[Job]:
    """Return all jobs of a study, seed by seed, so that a study that is cut short has all methods
    for its first seeds.

    Args:
        study: the study.
        seeds: the seeds of the runs.
        out: the study's folder.
        basis: the basis of the study.

    Raises:
        ConfigError: a configuration is missing or not valid; this is refused before the first run.
    """
    rows = basis.rows
    planned = planned_methods(study, basis)
    reference = reference_run(study, planned)
    data = data_config(study, study.reference, reference.settings or {})
    alone = planned_alone(study, rows.tasks, data, reference)
    # These come last: a study that is cut short has its answers, but for who should join.
    without = runs_without(study, planned, rows.tables)
    return jobs_of(study, seeds, out, [*planned, *alone], without, rows.fingerprint)


def jobs_of(
    study: ResolvedStudy,
    seeds: Sequence[int],
    out: Path,
    planned: Sequence[Planned],
    gone: Sequence[Planned] = (),
    data: str = "",
) -> list[Job]:
    """Return the jobs of the planned runs, and those that are computed from their results.

    Args:
        study: the study.
        seeds: the seeds of the runs.
        out: the study's folder.
        planned: all runs that are trained or fitted.
        gone: the runs without one of their clients.
        data: a hash that changes with any row.
    """
    jobs = list[Job]()
    for seed in seeds:
        trained = [_job(study, run, seed, out, data) for run in planned]
        jobs += [*trained, *combined_jobs(study, trained)]
    for seed in seeds:
        jobs += [_job(study, run, seed, out, data) for run in gone]
    return jobs


def _job(study: ResolvedStudy, run: Planned, seed: int, out: Path, data: str) -> Job:
    """Return the job of a planned run with a seed."""
    work = {key: value for key, value in vars(run.work).items() if key not in _NOT_MADE_OF}
    made_of = {
        "format": FORMAT,
        "method": run.method,
        "seed": seed,
        "bootstrap": study.bootstrap,
        "data": data,
        "choose": _choice(study, run),
        **work,
        **run.made_of,
    }
    variant = variant_name(run.method, run.settings, run.left_out)
    return Job(
        method=run.method,
        seed=seed,
        folder=str(out / "runs" / variant / f"seed_{seed}"),
        made_of=made_of,
        work=run.work,
        choose=study.choose,
        bootstrap=study.bootstrap,
        settings=run.settings,
        left_out=run.left_out,
    )


def _choice(study: ResolvedStudy, run: Planned) -> dict[str, str]:
    """Return the metrics that a run's result depends on: those by which local baselines and best
    checkpoints are chosen.
    """
    if isinstance(run.work, FitAlone) or study.checkpoint == "best":
        return study.choose
    return {}


def planned_alone(
    study: ResolvedStudy,
    tasks: Mapping[str, type[Task]],
    data_config: tuple[str, dict[str, Any]],
    reference: Planned,
) -> list[Planned]:
    """Return the local baselines to fit.

    Args:
        study: the study.
        tasks: maps each client to its task.
        data_config: the configuration that determines the data, and its changed keys.
        reference: the run with these data; if the reference is tuned, that of its first
            combination, as all have the same rows.
    """
    data = {key: value for key, value in reference.made_of.items() if key.startswith("data.")}
    planned = list[Planned]()
    for name, entry in study.baselines.items():
        if name == TREES_AND_LINEAR:
            continue
        grids = {}
        for task in tasks.values():
            grid = _grid(name, entry, task)
            if grid is not None:
                grids[task.name] = grid
        model = dict(entry) if entry is not None and is_any_model(entry) else None
        clients = [client for client, task in tasks.items() if task.name in grids]
        work = FitAlone(*data_config, grids, model, study.folds, study.small, clients)
        planned.append(Planned(name, work, data))
    return planned


def _grid(name: str, entry: Mapping[str, Any] | None, task: type[Task]) -> dict[str, Any] | None:
    """Return the settings to choose from of a local baseline, or None if the task has no such
    model. A model of any class has its grid inside its entry.
    """
    model = model_for(name, entry, task)
    if model is None:
        return None
    if entry is None or is_any_model(entry):
        return dict(model.grid)
    return dict(entry)


def combined_jobs(study: ResolvedStudy, trained: Sequence[Job]) -> list[Job]:
    """Return the jobs that are computed from a seed's predictions: mixtures, and means of models.

    Args:
        study: the study.
        trained: the jobs of the seed that train or fit something.
    """
    jobs = {job.method: job for job in trained}
    for name, method in study.methods.items():
        if method.of is not None:
            parts = {part: [jobs[method.of]] for part in entering_parts(study, name)}
            jobs[name] = _combined(study, name, parts, method.mixing)
    if TREES_AND_LINEAR in study.baselines:
        # The mean of two models: each client uses the first of either kind that it has.
        models = dict[str, list[Job]]()
        for kind in means_of(study.baselines):
            models[kind[0]] = [jobs[name] for name in kind]
        jobs[TREES_AND_LINEAR] = _combined(study, TREES_AND_LINEAR, models)
    return [job for job in jobs.values() if isinstance(job.work, Combine)]


def _combined(
    study: ResolvedStudy,
    name: str,
    parts: Mapping[str, Sequence[Job]],
    mixing: dict[str, Any] | None = None,
) -> Job:
    """Return the job that mixes the predictions of other jobs.

    Args:
        study: the study.
        name: the name of the new job's method.
        parts: maps each part to its jobs; a client uses the first that has it.
        mixing: how the parts of a mixture are mixed; None for the mean of models.
    """
    folders = dict[str, list[str]]()
    digests = dict[str, list[str]]()
    for part, jobs in parts.items():
        folders[part] = [job.folder for job in jobs]
        digests[part] = [job.digest for job in jobs]
    first = next(iter(parts.values()))[0]
    return replace(
        first,
        method=name,
        folder=str(Path(first.folder).parent.parent / name / f"seed_{first.seed}"),
        made_of={"method": name, "parts": digests, "mixing": mixing, "choose": study.choose},
        work=Combine(folders, mixing),
        settings=None,
    )
