"""All jobs of a study, each with what it is computed from; what cannot be run is refused before the first run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from fedlit.data.table import ClientTable, leave_out
from fedlit.data.target import own_task
from fedlit.errors import ConfigError
from fedlit.mixture.settings import MixtureSettings, is_mixture
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.study.alone import means_of, model_for
from fedlit.study.job import FORMAT, Job, digest_of, each_variant, is_free, title_of, variant_name
from fedlit.study.mixtures import mixture_settings, must_have_parts, refuse_hidden_sharing, trained_with
from fedlit.study.study import Study
from fedlit.tasks import TASKS, Task
from fedlit.tasks.any_model import is_any_model
from fedlit.tasks.go_alone import TREES_AND_LINEAR

__all__ = ["left_out", "plan_jobs", "reference_tables", "tasks_of", "training_notes"]

_TRAINING = tuple(
    f"trainer.{key}"
    for key in ("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time", "limit_train_batches", "callbacks")
)  # keys that say how long is trained
_LEFT_OUT = "data.leave_out"
_ROWS = ("data.source", _LEFT_OUT)  # keys that say whose rows there are


@dataclass(frozen=True)
class _Planned:
    """What is run with every seed."""

    method: str
    config: str
    arguments: list[str]
    made_of: list[Any]
    settings: dict[str, Any] | None = None
    grid: dict[str, dict[str, list[Any]]] | None = None
    left_out: str | None = None
    model: dict[str, Any] | None = None

    def without(self, client: str) -> _Planned:
        """The same without a client."""
        settings, *rest = self.made_of
        gone = [*settings.get(_LEFT_OUT, ()), client]
        arguments = [*self.arguments, f"--{_LEFT_OUT}={json.dumps(gone)}"]
        return replace(self, arguments=arguments, made_of=[{**settings, _LEFT_OUT: gone}, *rest], left_out=client)

    @property
    def title(self) -> str:
        return title_of(self.method, self.settings)


def reference_tables(study: Study) -> list[ClientTable]:
    """The tables that all methods of a study are trained on, as a first seed deals them."""
    data = _loaded(study, study.reference, _first(study)).data
    tables = data.source.tables(0)
    return leave_out(tables, data.leave_out, [table.name for table in tables])


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
    checkpoint = [study.checkpoint, study.choose if study.checkpoint == "best" else ""]
    planned: list[_Planned] = []
    for name, tuned in each_variant(study):
        if study.methods[name].of is not None:
            must_have_parts(study, name)
            continue
        settings = _settings(study, name, tuned)
        arguments = study.methods[name].arguments(tuned)
        own = _Planned(name, str(study.config(name)), arguments, [settings, *checkpoint], tuned or None)
        _refuse_alike(own, planned)
        planned.append(own)
    # Baselines get the data of the reference; where it is tuned, of its first combination: their rows are the same.
    reference = next(own for own in planned if own.method == study.trained(study.reference))
    _refuse_other_rows(planned, reference)
    data = {key: value for key, value in reference.made_of[0].items() if key.startswith("data.")}
    planned += _baselines(study, tasks, reference, data)
    # last: a study that is cut short has its answers, but for who should join
    without = [
        own.without(client)
        for client in left_out(study, tables)
        for own in planned
        if own.method in study.candidates and not is_mixture(Path(own.config))
    ]
    fingerprint = _fingerprint(tables)

    def job(own: _Planned, seed: int) -> Job:
        return Job(
            own.method,
            seed,
            str(out / "runs" / variant_name(own.method, own.settings, own.left_out) / f"seed_{seed}"),
            digest_of([FORMAT, own.method, seed, study.bootstrap, fingerprint, *own.made_of, *_explained(study, own)]),
            own.config,
            own.arguments,
            choose=study.choose or "",
            checkpoint=study.checkpoint,
            bootstrap=study.bootstrap,
            keep_checkpoints=study.keep_checkpoints,
            grid=own.grid,
            settings=own.settings,
            left_out=own.left_out,
            explain=bool(_explained(study, own)),
            model=own.model,
            folds=study.folds if own.grid is not None else 0,
            small=study.small if own.grid is not None else 0,
        )

    jobs = []
    for seed in seeds:
        trained = [job(own, seed) for own in planned]
        jobs += [*trained, *_computed(study, seed, trained)]
    return [*jobs, *(job(own, seed) for seed in seeds for own in without)]


def _baselines(
    study: Study, tasks: Mapping[str, type[Task]], reference: _Planned, data: Mapping[str, Any]
) -> list[_Planned]:
    """The go-alone models that are fitted."""
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
        made_of = [data, grids, study.choose, own, study.folds, study.small]
        planned.append(replace(reference, method=name, settings=None, grid=grids, made_of=made_of, model=own))
    return planned


def _computed(study: Study, seed: int, trained: Sequence[Job]) -> list[Job]:
    """What is computed of a seed's predictions: mixtures, and means of models."""
    jobs, found = {own.method: own for own in trained}, []
    for name, method in study.methods.items():
        if method.of is not None:
            source = jobs[method.of]
            new = _computed_job(source, name, digest_of([name, source.digest, method.mix, study.choose]))
            found.append(replace(new, parts=[[source.folder]], mix=method.mix))
            jobs[name] = found[-1]
    means = {TREES_AND_LINEAR: means_of(study.baselines or ())} if TREES_AND_LINEAR in (study.baselines or ()) else {}
    means |= {name: [[part] for part in parts] for name, parts in study.blends.items()}
    first = jobs[study.reference]
    for name, groups in sorted(means.items(), key=lambda own: own[0] != TREES_AND_LINEAR):
        parts = [[jobs[part] for part in group] for group in groups]
        made_of = [name, [[part.digest for part in group] for group in parts]]
        new = _computed_job(first, name, digest_of(made_of))
        found.append(replace(new, parts=[[part.folder for part in group] for group in parts]))
        jobs[name] = found[-1]
    return found


def _computed_job(first: Job, name: str, digest: str) -> Job:
    folder = Path(first.folder).parent.parent / name / f"seed_{first.seed}"
    return replace(first, method=name, folder=str(folder), digest=digest, settings=None, mix=None)


def training_notes(study: Study) -> list[str]:
    """Where methods are not trained alike: of different lengths, or with other callbacks, such as early stopping. Which
    state is scored, the last or the best, is the study's matter and the same for all.

    Args:
        study: completed by its clients' tasks.
    """
    found: dict[str, dict[str, list[str]]] = {key: {} for key in _TRAINING}
    for name, tuned in each_variant(study):
        method = study.methods[name]
        if method.of is not None or is_mixture(study.config(name)):  # parts are trained as each needs it
            continue
        settings = _loaded(study, name, tuned).settings or {}
        for key, values in found.items():
            said = json.dumps(settings[key], default=str) if settings.get(key) else "not set"
            labels = values.setdefault(said, [])
            if study.labels[name] not in labels:
                labels.append(study.labels[name])
    notes = []
    for key, values in found.items():
        if len(values) > 1:
            each = "; ".join(f"{said} for {shorten(labels)}" for said, labels in values.items())
            notes.append(
                f"Methods are not trained alike: {key} is {each}. What looks like a gain may be one of training; give "
                "all methods the same"
            )
    return notes


def _explained(study: Study, own: _Planned) -> list[str]:
    """What changes the digest of a run that is explained; a federation that lacks a client is not."""
    return ["explain"] if study.explain and own.left_out is None else []


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
        raise ConfigError(
            "leave_one_out: expected a federated method, without which nobody joins, found none; add one to methods, "
            "or leave the key out"
        )
    return [table.name for table in tables] if len(tables) > 2 else []


def _first(study: Study) -> dict[str, Any]:
    return study.methods[study.reference].combinations[0]


def _loaded(study: Study, name: str, tuned: Mapping[str, Any]) -> Run:
    name = study.trained(name)
    try:
        if is_mixture(study.config(name)):  # all parts read the same rows
            first = next(iter(_parts(study, name, tuned).parts.values()))
            return _read(first.config, Path(first.config).stat().st_mtime_ns, Path.cwd(), *first.arguments)
        config = study.config(name)
        return _read(config, config.stat().st_mtime_ns, Path.cwd(), *study.methods[name].arguments(tuned))
    except ConfigError as error:
        if not tuned:
            raise
        raise ConfigError(f"methods.{title_of(name, tuned)}: {error}") from error


@lru_cache(256)
def _read(config: Path, changed: int, here: Path, *arguments: str) -> Run:
    """The run of a configuration, parsed once: that takes half a second, and several questions are asked of it."""
    return load(str(config), *arguments)


def _settings(study: Study, name: str, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration that say what is computed."""
    loaded = _loaded(study, name, tuned)
    own = loaded.settings or {}
    if is_mixture(study.config(name)):
        parts = _parts(study, name, tuned)
        refuse_hidden_sharing(study, name, parts.parts)
        rows = {key: value for key, value in own.items() if key.startswith(_ROWS)}
        return {**rows, "mixture": trained_with(parts)}
    settings = {key: value for key, value in own.items() if key != "seed" and not is_free(key)}
    method = study.methods[name]
    if not loaded.exchange.on and not (name == study.reference or method.alone or method.pooled):
        raise ConfigError(
            f"methods.{title_of(name, tuned)}: expected something in exchange.federated, found that nothing is shared; "
            "set alone: true (each client by itself) or pooled: true (all rows in one place)"
        )
    return settings


def _parts(study: Study, name: str, tuned: Mapping[str, Any]) -> MixtureSettings:
    return mixture_settings(study.config(name), study.methods[name].arguments(tuned))


def _refuse_alike(own: _Planned, planned: Sequence[_Planned]) -> None:
    for other in planned:
        if other.method == own.method and other.made_of == own.made_of:  # 1 and 1.0, or a key that changes no result
            raise ConfigError(
                f"methods.{own.method}.tune: expected combinations that differ in what is trained, found "
                f"{other.title} and {own.title} alike; drop one"
            )


def _refuse_other_rows(planned: Sequence[_Planned], reference: _Planned) -> None:
    expected = reference.made_of[0]
    for own in planned:
        found = own.made_of[0]
        keys = dict.fromkeys((*found, _LEFT_OUT))
        different = [key for key in keys if key.startswith(_ROWS) and found.get(key) != expected.get(key)]
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
