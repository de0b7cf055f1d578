"""All jobs of a study, each with what it is computed from; what cannot be run is refused before the first run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.data.table import ClientTable, leave_out
from fedlit.data.target import own_task
from fedlit.errors import ConfigError
from fedlit.mixture.settings import is_mixture
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.study.alone import means_of, model_for
from fedlit.study.job import (
    FORMAT,
    Average,
    FitAlone,
    Job,
    MixAnew,
    Train,
    TrainMixture,
    Work,
    digest_of,
    each_variant,
    is_free,
    title_of,
    variant_name,
)
from fedlit.study.mixtures import mixture_settings, must_have_parts, read_run, refuse_hidden_sharing, trained_with
from fedlit.study.study import Study
from fedlit.tasks import TASKS, Task
from fedlit.tasks.go_alone import TREES_AND_LINEAR, is_any_model

__all__ = ["Planned", "jobs_of", "left_out", "plan_jobs", "reference_tables", "tasks_of", "training_notes"]

_TRAINING = tuple(
    f"trainer.{key}"
    for key in ("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "limit_train_batches", "callbacks")
)  # keys that say how long is trained
_LEFT_OUT = "data.leave_out"
_ROWS = ("data.source", _LEFT_OUT)  # keys that say whose rows there are


@dataclass(frozen=True)
class Planned:
    """What is run with every seed.

    Attributes:
        method: name of the method, or of the baseline.
        work: what is done.
        made_of: the keys of the configuration that say what is computed.
        settings: of a tuned method, the combination.
        left_out: the client without which it is trained.
    """

    method: str
    work: Work
    made_of: dict[str, Any]
    settings: dict[str, Any] | None = None
    left_out: str | None = None

    @property
    def title(self) -> str:
        """As people read it."""
        return title_of(self.method, self.settings)

    def without(self, client: str) -> Planned:
        """The same without a client."""
        assert isinstance(self.work, Train)
        gone = [*self.made_of.get(_LEFT_OUT, ()), client]
        work = replace(self.work, arguments=[*self.work.arguments, f"--{_LEFT_OUT}={json.dumps(gone)}"])
        return replace(self, work=work, made_of={**self.made_of, _LEFT_OUT: gone}, left_out=client)


def reference_tables(study: Study) -> list[ClientTable]:
    """The tables that all methods of a study are trained on, as a first seed deals them."""
    data = _loaded(study, study.reference, study.methods[study.reference].combinations[0]).data
    tables = data.source.tables(0)
    return leave_out(tables, data.leave_out or (), [table.name for table in tables])


def tasks_of(tables: Sequence[ClientTable]) -> dict[str, type[Task]]:
    """Client → its task."""
    said = {table.name: own_task(table.task, table.name) for table in tables}
    return {name: TASKS[own["name"] if own else "classification"] for name, own in said.items()}


def plan_jobs(study: Study, seeds: list[int], out: Path, tables: Sequence[ClientTable] | None = None) -> list[Job]:
    """All runs of a study, seed by seed, so that a study that is cut short has all methods of its first seeds.

    Args:
        study: what it leaves out is completed by the clients' tasks.
        seeds: of the runs.
        out: the study's folder.
        tables: those of :func:`reference_tables`, if they are known already.

    Raises:
        ConfigError: a configuration is missing or not valid: refused before the first run.
    """
    tables = reference_tables(study) if tables is None else tables
    tasks = tasks_of(tables)
    study = study.for_tasks(tasks)
    planned: list[Planned] = []
    for name, tuned in each_variant(study):
        if study.methods[name].of is None:
            planned.append(_planned(study, name, tuned))
            _refuse_alike(planned)
        else:
            must_have_parts(study, name)
    reference = next(own for own in planned if own.method == study.trained(study.reference))
    _refuse_other_rows(planned, reference)
    # last: a study that is cut short has its answers, but for who should join
    gone = [
        own.without(client)
        for client in left_out(study, tables)
        for own in planned
        if own.method in study.candidates and isinstance(own.work, Train)
    ]
    return jobs_of(study, seeds, out, tasks, planned, gone, _fingerprint(tables))


def jobs_of(
    study: Study,
    seeds: Sequence[int],
    out: Path,
    tasks: Mapping[str, type[Task]],
    planned: Sequence[Planned],
    gone: Sequence[Planned] = (),
    data: str = "",
) -> list[Job]:
    """The jobs of methods that are planned, and of the study's local baselines and means.

    Args:
        study: completed by its clients' tasks.
        seeds: of the runs.
        out: the study's folder.
        tasks: client → its task.
        planned: all that is trained; local baselines get the data of the reference. Where it is tuned, of its first
            combination: their rows are the same.
        gone: the same without a client.
        data: changes with any row.
    """
    reference = next(own for own in planned if own.method == study.trained(study.reference))
    every = [*planned, *_alone(study, tasks, reference)]

    def job(own: Planned, seed: int) -> Job:
        explain = study.explain and own.left_out is None
        choose = study.choose if isinstance(own.work, FitAlone) or study.checkpoint == "best" else ""
        kept = {key: value for key, value in vars(own.work).items() if key not in ("config", "arguments", "test")}
        made_of = [FORMAT, own.method, seed, study.bootstrap, data, own.made_of, kept, choose, explain]
        folder = out / "runs" / variant_name(own.method, own.settings, own.left_out) / f"seed_{seed}"
        return Job(
            own.method, seed, str(folder), digest_of(made_of), own.work, study.choose or "", study.bootstrap,
            own.settings, own.left_out, explain,
        )  # fmt: skip

    jobs = []
    for seed in seeds:
        trained = [job(own, seed) for own in every]
        jobs += [*trained, *_computed(study, trained)]
    return [*jobs, *(job(own, seed) for seed in seeds for own in gone)]


def _planned(study: Study, name: str, tuned: dict[str, Any]) -> Planned:
    """A method with a combination of settings."""
    method, config, loaded = study.methods[name], study.config(name), _loaded(study, name, tuned)
    arguments = method.arguments(tuned)
    keys = {key: value for key, value in (loaded.settings or {}).items() if key != "seed" and not is_free(key)}
    if is_mixture(config):
        parts = mixture_settings(config, arguments)
        refuse_hidden_sharing(study, name, parts.parts)
        keys = {key: value for key, value in keys.items() if key.startswith(_ROWS)}
        keys["mixture"] = trained_with(parts)
        return Planned(name, TrainMixture(str(config), arguments), keys, tuned or None)
    if not loaded.exchange.on and not (name == study.reference or method.alone or method.pooled):
        raise ConfigError(
            f"methods.{title_of(name, tuned)}: expected something in exchange.federated, found that nothing is shared; "
            "set alone: true (each client by itself) or pooled: true (all rows in one place)"
        )
    return Planned(name, Train(str(config), arguments, study.checkpoint), keys, tuned or None)


def _alone(study: Study, tasks: Mapping[str, type[Task]], reference: Planned) -> list[Planned]:
    """The local baselines that are fitted."""
    assert isinstance(reference.work, Train | TrainMixture)
    config, arguments = reference.work.config, reference.work.arguments
    if isinstance(reference.work, TrainMixture):
        first, arguments = _of_rows(Path(config), arguments)
        config = str(first)
    data = {key: value for key, value in reference.made_of.items() if key.startswith("data.")}
    planned = []
    for name, found in (study.baselines or {}).items():
        if name == TREES_AND_LINEAR:
            continue
        own = dict(found or {}) if is_any_model(found) else None
        models = {task.name: model_for(name, found, task) for task in tasks.values()}
        grids = {
            task: dict(model.grid) if own is not None or found is None else dict(found)
            for task, model in models.items()
            if model is not None
        }
        planned.append(Planned(name, FitAlone(config, arguments, grids, own, study.folds, study.small), data))
    return planned


def _computed(study: Study, trained: Sequence[Job]) -> list[Job]:
    """What is computed of a seed's predictions: mixtures, and means of models."""
    jobs = {own.method: own for own in trained}
    first, found = trained[0], list[Job]()

    def add(name: str, work: Work, source: Job, made_of: list[Any]) -> None:
        folder = str(Path(source.folder).parent.parent / name / f"seed_{source.seed}")
        digest = digest_of([name, *made_of])
        jobs[name] = replace(source, method=name, folder=folder, digest=digest, work=work, settings=None)
        found.append(jobs[name])

    for name, method in study.methods.items():
        if method.of is not None:
            source = jobs[method.of]
            add(name, MixAnew(source.folder, method.mix), source, [source.digest, method.mix, study.choose])
    means = {name: [[part] for part in parts] for name, parts in study.blends.items()}
    if TREES_AND_LINEAR in (study.baselines or ()):
        means = {TREES_AND_LINEAR: means_of(study.baselines or ()), **means}
    for name, groups in means.items():
        parts = [[jobs[part] for part in group] for group in groups]
        work = Average([[part.folder for part in group] for group in parts])
        add(name, work, first, [[[part.digest for part in group] for group in parts]])
    return found


def training_notes(study: Study) -> list[str]:
    """Where methods are not trained alike: of different lengths, or with other callbacks, such as early stopping. Which
    state is scored, the last or the best, is the study's matter and the same for all.

    Args:
        study: completed by its clients' tasks.
    """
    found: dict[str, dict[str, list[str]]] = {key: {} for key in _TRAINING}
    for name, tuned in each_variant(study):
        if study.methods[name].of is not None or is_mixture(study.config(name)):  # parts are trained as each needs it
            continue
        settings = _loaded(study, name, tuned).settings or {}
        for key, values in found.items():
            said = json.dumps(settings[key], default=str) if settings.get(key) else "not set"
            labels = values.setdefault(said, [])
            if study.labels[name] not in labels:
                labels.append(study.labels[name])
    return [
        f"Methods are not trained alike: {key} is "
        + "; ".join(f"{said} for {shorten(labels)}" for said, labels in values.items())
        + ". What looks like a gain may be one of training; give all methods the same"
        for key, values in found.items()
        if len(values) > 1
    ]


def left_out(study: Study, tables: Sequence[ClientTable]) -> list[str]:
    """The clients without whom federations are also trained: each, where at least two stay; else none.

    Raises:
        ConfigError: it is asked for, and there is one client alone, or no federated method.
    """
    if not study.leave_one_out:
        return []
    if len(tables) < 2:
        raise ConfigError(
            f"leave_one_out: expected two clients or more, found {tables[0].name} alone; leave the key out"
        )
    if not study.candidates:
        raise ConfigError("leave_one_out: expected a federated method, found none; add one, or leave the key out")
    return [table.name for table in tables] if len(tables) > 2 else []


def _of_rows(config: Path, arguments: Sequence[str]) -> tuple[Path, list[str]]:
    """The configuration, and changed keys, of a mixture's first part: all parts read the same rows."""
    first = next(iter(mixture_settings(config, arguments).parts.values()))
    return first.config, first.arguments


def _loaded(study: Study, name: str, tuned: Mapping[str, Any]) -> Run:
    name = study.trained(name)
    config, arguments = study.config(name), study.methods[name].arguments(tuned)
    try:
        if is_mixture(config):
            config, arguments = _of_rows(config, arguments)
        return read_run(config, *arguments)
    except ConfigError as error:
        if not tuned:
            raise
        raise ConfigError(f"methods.{title_of(name, tuned)}: {error}") from error


def _refuse_alike(planned: Sequence[Planned]) -> None:
    *others, own = planned
    for other in others:
        if other.method == own.method and other.made_of == own.made_of:  # 1 and 1.0, or a key that changes no result
            raise ConfigError(
                f"methods.{own.method}.tune: expected combinations that differ in what is trained, found "
                f"{other.title} and {own.title} alike; drop one"
            )


def _refuse_other_rows(planned: Sequence[Planned], reference: Planned) -> None:
    expected = reference.made_of
    for own in planned:
        keys = dict.fromkeys((*own.made_of, _LEFT_OUT))
        different = [key for key in keys if key.startswith(_ROWS) and own.made_of.get(key) != expected.get(key)]
        if different:
            raise ConfigError(
                f"methods.{own.title}: expected the rows of {reference.method}, found another {', '.join(different)}; "
                "methods are compared on the same rows"
            )


def _fingerprint(tables: Sequence[ClientTable]) -> str:
    """Changes with any value, label or split: an answer must not outlive the data that it was computed from."""
    digest = hashlib.blake2b(digest_size=8)
    for table in tables:
        digest.update(repr((table.name, list(table.features), table.categorical, table.positive)).encode())
        for values in (table.features, table.target):
            digest.update(pd.util.hash_pandas_object(values).to_numpy().tobytes())
        for split, rows in sorted(table.splits.items()):
            digest.update(split.encode() + rows.tobytes())
    return digest.hexdigest()
