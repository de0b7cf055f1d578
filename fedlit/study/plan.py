"""Plans all jobs of a study, with what each is computed from. What cannot be run is refused before
the first run.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fedlit.data.examine.ledger import answerable_findings
from fedlit.data.findings import Findings
from fedlit.data.module import FederatedData
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable, choose_columns, leave_out
from fedlit.data.targets import task_for
from fedlit.errors import ConfigError, expect, must_be_known
from fedlit.files import write_text
from fedlit.mixture.settings import PartSettings, is_mixture
from fedlit.outcomes import DEFAULT_TASK
from fedlit.run.arguments import read
from fedlit.run.config import shown
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.run.scoring import ScoreSettings
from fedlit.show.text import shorten
from fedlit.study.alone import means_of, model_for
from fedlit.study.job import (
    FORMAT,
    Combine,
    FitAlone,
    Job,
    Train,
    digest_of,
    is_free,
    title_of,
    variant_name,
)  # fmt: skip
from fedlit.study.mixtures import mixture_settings
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.study import Lineup
from fedlit.tasks import Task, task_named
from fedlit.tasks.go_alone import TREES_AND_LINEAR, is_any_model

_TRAINER = (
    "max_epochs",
    "min_epochs",
    "max_steps",
    "min_steps",
    "max_time",
    "limit_train_batches",
    "callbacks",
)
_STOP = ("monitor", "patience", "min_delta", "min_epochs")
_TRAINING = (*(f"trainer.{key}" for key in _TRAINER), *(f"model.stop.{key}" for key in _STOP))
"""Keys that say how long is trained."""
KEPT = "plan.json"
"""In a study's folder: what its configurations say."""
_OURS = ("fedlit", "torch", "lightning")
_LEFT_OUT = "data.leave_out"
_ROWS = ("data.source", _LEFT_OUT)  # keys that say whose rows there are


@dataclass(frozen=True)
class Said:
    """The content of a configuration.

    Attributes:
        keys: all keys that determine what is computed, by dotted name, without the seed.
        shares: whether clients exchange anything.
        pools: whether clients' rows are put in one place.
    """

    keys: dict[str, Any]
    shares: bool
    pools: bool


class Basis:
    """The data on which the plans of a study are based, which are read once: configurations, the
    clients' tables, and their tasks.

    Args:
        study: the study; its variants with the same reference can be planned, too.
        folder: the folder in which the content of configurations is cached for the next time; None
            to always read them.

    Raises:
        ConfigError: the reference's configuration is not valid.
    """

    def __init__(self, study: Lineup, folder: Path | None = None) -> None:
        self._where = self.where(
            study, study.reference, study.methods[study.reference].combinations[0]
        )
        self._folder = folder
        self._said = dict[str, Said]()
        self._kept = dict[str, Any]()
        self._before: dict[str, Any] = {}
        # If the file is missing or damaged, all is read anew.
        with suppress(OSError, ValueError):
            if folder is not None:
                self._before = json.loads((folder / KEPT).read_text(encoding="utf-8"))

    def where(
        self, study: Lineup, name: str, tuned: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Return the configuration that determines a method's rows, and the changed keys. For a
        mixture it is that of the first part, because all parts read the same rows.
        """
        name = study.trained(name)
        config = study.config(name)
        overrides = study.methods[name].overrides(tuned)
        if is_mixture(config):
            first = next(iter(mixture_settings(config, overrides).parts.values()))
            return str(first.config), first.set
        return str(config), overrides

    def said(self, config: str | Path, overrides: Mapping[str, Any]) -> Said:
        """Return the content of a configuration. Building it takes a tenth of a second and is often
        repeated, so the content is cached by the text of all layers. A configuration with classes
        outside fedlit, torch and lightning, or that names another file, is always built again,
        because their defaults may have changed.
        """
        content = repr(read("fit", ["--config", str(config)], overrides=overrides).content)
        key = digest_of([content, installed()])
        if key in self._said:
            return self._said[key]
        if key in self._before:
            self._said[key] = Said(**self._before[key])
        else:
            run = load(str(config), overrides=overrides)
            keys = {
                key: value
                for key, value in (run.settings or {}).items()
                if key != "seed" and not is_free(key)
            }
            self._said[key] = Said(
                json.loads(json.dumps(keys, default=str)), run.exchange.on, bool(run.data.pool)
            )
        if key in self._before or not _foreign(content + repr([*self._said[key].keys.values()])):
            self._kept[key] = vars(self._said[key])
        return self._said[key]

    def keep(self) -> None:
        """Write the content of the configurations to the folder."""
        if self._folder is not None:
            write_text(json.dumps(self._kept), self._folder / KEPT)

    @cached_property
    def tables(self) -> list[ClientTable]:
        """The tables on which all methods are trained, as they are dealt with seed 0."""
        tables = self._data.source.tables(0)
        return leave_out(tables, self._data.leave_out or (), [table.name for table in tables])

    @cached_property
    def findings(self) -> Findings:
        """The findings about the tables."""
        data = self._data
        tables = choose_columns(self.tables, data.columns) if data.columns else self.tables
        return answerable_findings(tables, data.source, data.known)

    @property
    def open_questions(self) -> Iterator[str]:
        """A sentence on what has to be decided about the tables; none if nothing has to be."""
        return self.findings.open_questions(shlex.quote(shown(Path(self._where[0]))))

    @cached_property
    def _run(self) -> Run:
        return load(self._where[0], overrides=self._where[1])

    @property
    def _data(self) -> FederatedData:
        return self._run.data

    @property
    def score(self) -> ScoreSettings:
        """What the reference's configuration asks for beside the scores."""
        return self._run.score

    @property
    def source(self) -> Source:
        """The source of the tables."""
        return self._data.source

    @cached_property
    def tasks(self) -> dict[str, type[Task]]:
        """Maps each client to its task."""
        return tasks_of(self.tables)

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes with any value, label or split, because a result must not outlive the
        data that it was computed from.
        """
        digest = hashlib.blake2b(digest_size=8)
        for table in self.tables:
            digest.update(
                repr((table.name, list(table.features), table.categorical, table.positive)).encode()
            )
            for values in (table.features, table.target):
                digest.update(pd.util.hash_pandas_object(values).to_numpy().tobytes())
            for split, rows in sorted(table.splits.items()):
                digest.update(split.encode() + rows.tobytes())
        return digest.hexdigest()


def _foreign(content: str) -> bool:
    """Return whether a configuration may name a class or function outside fedlit, torch and
    lightning, or another file.
    """
    if re.search(r"""\.(ya?ml|json)['"]""", content):  # a file that is no layer may have changed
        return True
    roots = set(re.findall(r"""['"]([A-Za-z_]\w*)\.[A-Za-z_][\w.]*['"]""", content))
    return any(
        root not in _OURS and (root in sys.modules or find_spec(root) is not None) for root in roots
    )


@cache
def installed() -> list[Any]:
    """Return a value that changes with fedlit's files, and with the packages whose defaults a
    configuration contains.
    """
    newest = max(path.stat().st_mtime_ns for path in Path(__file__).parents[1].rglob("*.py"))
    return [newest, *(version(name) for name in ("fedlit", "torch", "lightning"))]


def tasks_of(tables: Sequence[ClientTable]) -> dict[str, type[Task]]:
    """Map each client to its task."""
    names = {
        table.name: task_for(table.task, table.name) or {"name": DEFAULT_TASK} for table in tables
    }
    return {client: task_named(settings["name"]) for client, settings in names.items()}


@dataclass(frozen=True)
class Planned:
    """A run that is planned for every seed.

    Attributes:
        method: the name of the method or baseline.
        work: the work to do.
        made_of: the keys of the configuration that determine what is computed.
        settings: the combination of settings of a tuned method.
        left_out: the client without which it is trained.
    """

    method: str
    work: Train | FitAlone
    made_of: dict[str, Any]
    settings: dict[str, Any] | None = None
    left_out: str | None = None

    @property
    def title(self) -> str:
        """The name of the run, for the user."""
        return title_of(self.method, self.settings)

    def without(self, client: str) -> Planned:
        """Return the same run without a client."""
        gone = {_LEFT_OUT: [*self.made_of.get(_LEFT_OUT, ()), client]}
        work = replace(self.work, overrides={**self.work.overrides, **gone})
        return replace(self, work=work, made_of={**self.made_of, **gone}, left_out=client)


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
    planned = planned_methods(study, basis)
    reference = next(run for run in planned if run.method == study.trained(study.reference))
    candidates = [
        run
        for run in planned
        if run.method in study.candidates and isinstance(run.work, Train) and not run.work.mixture
    ]
    # These come last: a study that is cut short has its answers, but for who should join.
    gone = list[Planned]()
    for client in left_out(study, basis.tables):
        gone += [run.without(client) for run in candidates]
    data_config = basis.where(study, study.reference, reference.settings or {})
    alone = planned_alone(study, basis.tasks, data_config, reference)
    return jobs_of(study, seeds, out, [*planned, *alone], gone, basis.fingerprint)


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
        made_of = [
            FORMAT,
            run.method,
            seed,
            study.bootstrap,
            data,
            run.made_of,
            work_settings,
            choose,
        ]
        folder = (
            out / "runs" / variant_name(run.method, run.settings, run.left_out) / f"seed_{seed}"
        )
        return Job(
            run.method, seed, str(folder), digest_of(made_of), run.work, study.choose, study.bootstrap,
            run.settings, run.left_out,
        )  # fmt: skip

    jobs = []
    for seed in seeds:
        trained = [job(run, seed) for run in planned]
        jobs += [*trained, *_combined(study, trained)]
    for seed in seeds:
        jobs += [job(run, seed) for run in gone]
    return jobs


def planned_methods(study: Lineup, basis: Basis) -> list[Planned]:
    """Return all methods to train, with each of their combinations of settings. This reads no
    table.

    Args:
        study: the study whose methods they are.
        basis: the basis of the study.

    Raises:
        ConfigError: a method cannot be run, or two cannot be compared.
    """
    planned: list[Planned] = []
    for name, tuned in study.variants:
        if study.methods[name].of is None:
            planned.append(_planned(study, basis, name, tuned))
            _refuse_alike(planned)
        else:
            parts = _parts(study, name)
            _check_sharing(study, name, name, _shared(basis, parts), parts)
    _refuse_other_rows(
        planned, next(run for run in planned if run.method == study.trained(study.reference))
    )
    return planned


def _planned(study: Lineup, basis: Basis, name: str, tuned: dict[str, Any]) -> Planned:
    """Plan a method with a combination of settings."""
    config = study.config(name)
    overrides = study.methods[name].overrides(tuned)
    try:
        content = basis.said(*basis.where(study, name, tuned))
    except ConfigError as error:
        if not tuned:
            raise
        raise ConfigError(f"methods.{title_of(name, tuned)}: {error}") from error
    title = title_of(name, tuned)
    if not is_mixture(config):
        shared = [name] if content.shares or content.pools else []
        _check_sharing(study, name, title, shared, [])
        return Planned(
            name, Train(str(config), overrides, study.checkpoint), content.keys, tuned or None
        )
    settings = mixture_settings(config, overrides)
    _check_sharing(study, name, title, _shared(basis, settings.parts), settings.parts)
    made_of = {key: value for key, value in content.keys.items() if key.startswith(_ROWS)}
    parts = {
        part: [
            basis.said(part_settings.config, part_settings.set).keys,
            part_settings.go_alone,
            part_settings.grid,
        ]
        for part, part_settings in settings.parts.items()
    }
    made_of["mixture"] = {"folds": settings.folds, "parts": parts, "mixing": vars(settings.mixing)}
    return Planned(name, Train(str(config), overrides, mixture=True), made_of, tuned or None)


def _parts(study: Lineup, name: str) -> dict[str, PartSettings]:
    """Return the parts of another method that a method mixes again.

    Raises:
        ConfigError: the other method is not a mixture, or does not have these parts.
    """
    method = study.methods[name]
    source = study.trained(name)
    has_parts = is_mixture(study.config(source))
    expect(
        has_parts,
        f"methods.{name}.of",
        "a method whose configuration has several parts (mixture:)",
        source,
    )
    parts = mixture_settings(study.config(source), study.methods[source].overrides()).parts
    must_be_known(f"methods.{name}.parts", method.parts, parts)
    entering = method.parts or list(parts)
    if isinstance(method.weights, dict):
        must_be_known(f"methods.{name}.weights", method.weights, entering)
        entering = [part for part in entering if method.weights.get(part)]
    return {part: parts[part] for part in entering}


def _shared(basis: Basis, parts: Mapping[str, PartSettings]) -> list[str]:
    """Return the parts in which other clients have a share."""
    contents = {
        name: basis.said(part.config, part.set)
        for name, part in parts.items()
        if part.go_alone is None
    }
    return [name for name, content in contents.items() if content.shares or content.pools]


def _check_sharing(study: Lineup, name: str, title: str, shared: Any, parts: Iterable[str]) -> None:
    """Refuse a method alone that shares something, and a federated method that does not, because
    federated methods are compared with the methods alone.
    """
    method = study.methods[name]
    key = f"methods.{title}"
    reference = name == study.reference
    # To tune a method, a study is made that has no other method than its reference.
    alone = method.alone or (reference and len(study.methods) > 1)
    expected = "nothing that clients share, because each client trains alone here"
    advice = "set exchange.federated: [], name other parts or another reference, or drop alone"
    expect(not (alone and shared), key, expected, shared, advice)
    expect(
        bool(method.alone or method.pooled or shared or reference),
        key, "something in exchange.federated", [*parts],
        "set alone: true (each client by itself) or pooled: true (all rows in one place)",
    )  # fmt: skip


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
        made_of = [name, digests, mixing, study.choose]
        folder = str(Path(first.folder).parent.parent / name / f"seed_{first.seed}")
        jobs[name] = replace(
            first, method=name, folder=folder, digest=digest_of(made_of), work=work, settings=None
        )
        combined_jobs.append(jobs[name])

    for name, method in study.methods.items():
        if method.of is not None:
            add(name, {part: [jobs[method.of]] for part in _parts(study, name)}, method.mixing)
    if TREES_AND_LINEAR in study.baselines:
        averaged = dict[str, list[Job]]()
        for group in means_of(study.baselines):
            averaged[group[0]] = [jobs[name] for name in group]
        add(TREES_AND_LINEAR, averaged)
    return combined_jobs


def _each(jobs: Iterable[Job], attribute: Literal["folder", "digest"]) -> list[str]:
    return [getattr(job, attribute) for job in jobs]


def training_notes(study: ResolvedStudy, basis: Basis) -> list[str]:
    """Return notes on differences in training between methods: different lengths, or different
    rules for an early stop. Whether the last or the best state is scored is a setting of the study
    and the same for all methods.

    Args:
        study: the study.
        basis: the basis of the study.
    """
    differences: dict[str, dict[str, list[str]]] = {key: {} for key in _TRAINING}
    for name, tuned in study.variants:
        # Each part of a mixture is trained as it needs it.
        if study.methods[name].of is not None or is_mixture(study.config(name)):
            continue
        keys = basis.said(*basis.where(study, name, tuned)).keys
        for key, values in differences.items():
            value = json.dumps(keys[key], default=str) if keys.get(key) else "not set"
            labels = values.setdefault(value, [])
            if study.labels[name] not in labels:
                labels.append(study.labels[name])
    notes = []
    for key, values in differences.items():
        if len(values) > 1:
            listing = "; ".join(
                f"{value} for {shorten(labels)}" for value, labels in values.items()
            )
            notes.append(
                f"Methods are not trained alike: {key} is {listing}. What looks like a gain may be "
                "one of training; give all methods the same"
            )
    return notes


def left_out(study: ResolvedStudy, tables: Sequence[ClientTable]) -> list[str]:
    """Return the clients without which federations are also trained: all clients, or none if the
    study does not ask for it.

    Raises:
        ConfigError: the study asks for it, but has fewer than three clients, or no federated
            method.
    """
    if not study.leave_one_out:
        return []
    names = [table.name for table in tables]
    do = "of two, what the other gains is its lift over going alone"
    expect(len(names) > 2, "leave_one_out", "three clients or more", names, do)
    expect(
        bool(study.candidates), "leave_one_out", "a federated method", [*study.methods], "add one"
    )
    return names


def _refuse_alike(planned: Sequence[Planned]) -> None:
    *before, latest = planned
    for earlier in before:
        # Such are 1 and 1.0, or a key that changes no result.
        same = earlier.method == latest.method and earlier.made_of == latest.made_of
        both = [earlier.title, latest.title]
        expected = "combinations that differ in what is trained"
        expect(
            not same, f"methods.{latest.method}.tune", expected, both, "these are alike; drop one"
        )


def _refuse_other_rows(planned: Sequence[Planned], reference: Planned) -> None:
    expected = reference.made_of
    for run in planned:
        keys = dict.fromkeys((*run.made_of, _LEFT_OUT))
        different = [
            key
            for key in keys
            if key.startswith(_ROWS) and run.made_of.get(key) != expected.get(key)
        ]
        expect(
            not different, f"methods.{run.title}", f"the rows of {reference.method}, with the same "
                "data", different,
            "methods are compared on the same rows",
        )  # fmt: skip
