"""Plans all jobs of a study, with what each is computed from. What cannot be run is refused before
the first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fedlit.jobs.job import Combine, FitAlone, Job, variant_name
from fedlit.jobs.record import FORMAT
from fedlit.study.alone import means_of, model_for
from fedlit.study.basis import Basis, data_config
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.trained import Planned, entering_parts, planned_methods, reference_run
from fedlit.study.without import runs_without
from fedlit.tasks import Task
from fedlit.tasks.go_alone import TREES_AND_LINEAR, is_any_model


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

    def job(run: Planned, seed: int) -> Job:
        chooses = isinstance(run.work, FitAlone) or study.checkpoint == "best"
        choose = study.choose if chooses else {}
        work_settings = {
            key: value
            for key, value in vars(run.work).items()
            if key not in ("config", "overrides", "test")
        }
        made_of = {
            "format": FORMAT,
            "method": run.method,
            "seed": seed,
            "bootstrap": study.bootstrap,
            "data": data,
            "choose": choose,
            **work_settings,
            **run.made_of,
        }
        folder = (
            out / "runs" / variant_name(run.method, run.settings, run.left_out) / f"seed_{seed}"
        )
        return Job(
            run.method, seed, str(folder), made_of, run.work, study.choose, study.bootstrap,
            run.settings, run.left_out,
        )  # fmt: skip

    jobs = []
    for seed in seeds:
        trained = [job(run, seed) for run in planned]
        jobs += [*trained, *_combined(study, trained)]
    for seed in seeds:
        jobs += [job(run, seed) for run in gone]
    return jobs


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
    planned = []
    for name, entry in study.baselines.items():
        if name == TREES_AND_LINEAR:
            continue
        custom = dict(entry or {}) if is_any_model(entry) else None
        grids = dict[str, dict[str, Any]]()
        for task in tasks.values():
            model = model_for(name, entry, task)
            if model is not None:
                given_grid = None if custom is not None else entry
                grids[task.name] = dict(model.grid if given_grid is None else given_grid)
        work = FitAlone(*data_config, grids, custom, study.folds, study.small)
        planned.append(Planned(name, work, data))
    return planned


def _combined(study: ResolvedStudy, trained: Sequence[Job]) -> list[Job]:
    """Return the jobs that are computed from a seed's predictions: mixtures, and means of
    models.
    """
    jobs = {job.method: job for job in trained}
    combined_jobs = list[Job]()

    def add(
        name: str, parts: Mapping[str, Sequence[Job]], mixing: dict[str, Any] | None = None
    ) -> None:
        folders = {part: _each(part_jobs, "folder") for part, part_jobs in parts.items()}
        digests = {part: _each(part_jobs, "digest") for part, part_jobs in parts.items()}
        work = Combine(folders, mixing)
        first = next(iter(parts.values()))[0]
        made_of = {"method": name, "parts": digests, "mixing": mixing, "choose": study.choose}
        folder = str(Path(first.folder).parent.parent / name / f"seed_{first.seed}")
        jobs[name] = replace(
            first, method=name, folder=folder, made_of=made_of, work=work, settings=None
        )
        combined_jobs.append(jobs[name])

    for name, method in study.methods.items():
        if method.of is not None:
            add(
                name,
                {part: [jobs[method.of]] for part in entering_parts(study, name)},
                method.mixing,
            )
    if TREES_AND_LINEAR in study.baselines:
        averaged = dict[str, list[Job]]()
        for group in means_of(study.baselines):
            averaged[group[0]] = [jobs[name] for name in group]
        add(TREES_AND_LINEAR, averaged)
    return combined_jobs


def _each(jobs: Iterable[Job], attribute: Literal["folder", "digest"]) -> list[str]:
    return [getattr(job, attribute) for job in jobs]
