"""From the folders of a study's runs to one tidy table, with what each client would have chosen on validation: its
settings, the best model alone, the best federated method.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import RunError
from fedlit.explain.clusters import CLUSTERS, adjusted_rand, concepts_of, judged
from fedlit.files import read_named
from fedlit.study.choose import best_in_hindsight, best_on_validation, bootstrap_of, scores_of
from fedlit.study.explained import FILES
from fedlit.study.job import BOOTSTRAP, CURVES, SCORE_FILE, Job, each_variant, finished, title_of
from fedlit.study.out_of_fold import OUT_OF_FOLD
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, Study

__all__ = ["Collected", "collect"]

_CLUSTER_COLUMNS = ["method", "seed", "client", "cluster", "concept", "adjusted_rand"]


@dataclass(frozen=True, eq=False)
class Left:
    """What runs without a client say of the others: see :class:`Collected`."""

    results: pd.DataFrame
    bootstrap: dict[tuple[str, int], pd.DataFrame]


@dataclass(frozen=True, eq=False)
class Collected:
    """What a study's finished runs say.

    Attributes:
        results: one row per value: study, method, seed, client, split, metric, value.
        chosen: one row per seed, client and kind (``best``): the go-alone model, and the federated method, that is best
            on validation; or the go-alone model that is best in hindsight.
        records: one row per run: method, seed, seconds, versions, machine, …
        bootstrap: (method, seed) → one row per resample, columns (client, metric).
        curves: validation scores over epochs: method, seed, client, metric, step, value.
        fixed: whether every seed has the same test rows, so that seeds differ in training alone.
        ratio: client → test rows / training rows, mean over seeds.
        tuned: one row per tuned method, seed and client (also the union of a pooled run's): method, seed, client, and
            the settings that were best on its validation rows, as JSON. Its results are those of these settings.
        clusters: one row per method that tells clients apart (a tuned one with each combination of settings), seed and
            client: method, seed, client, cluster (at the end, see :func:`fedlit.explain.clusters.judged`), concept, and
            the run's adjusted_rand.
        without: client → the same results and resamples of the federations that were trained without it.
        lacking: records of those runs.
        explained: file of :data:`fedlit.study.explained.FILES` → its rows, with method and seed.
    """

    results: pd.DataFrame
    chosen: pd.DataFrame
    records: pd.DataFrame
    bootstrap: dict[tuple[str, int], pd.DataFrame]
    curves: pd.DataFrame
    fixed: bool
    ratio: dict[str, float]
    tuned: pd.DataFrame
    clusters: pd.DataFrame
    without: Mapping[str, Left] = field(default_factory=dict)
    lacking: pd.DataFrame = field(default_factory=pd.DataFrame)
    explained: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def values(self, metric: str, split: str = "test") -> pd.DataFrame:
        """A metric's values: one row per seed, columns (method, client)."""
        own = self.results[(self.results["metric"] == metric) & (self.results["split"] == split)]
        return own.pivot(index="seed", columns=["method", "client"], values="value")

    @property
    def clients(self) -> list[str]:
        """The clients, without the union of a pooled run's."""
        return sorted(self.ratio)

    def clients_of(self, metric: str) -> list[str]:
        """Those whose task has a metric."""
        known = set(self.results.loc[self.results["metric"] == metric, "client"])
        return [client for client in self.clients if client in known]


def collect(study: Study, jobs: Sequence[Job]) -> Collected:
    """Read what is done.

    Args:
        study: completed by its clients' tasks (:meth:`~fedlit.study.study.Study.for_tasks`).
        jobs: all of it.

    Raises:
        RunError: nothing is done, or only parts of tuned methods, or two methods were scored on different rows for the
            same seed and client.
    """
    found = [(job, record) for job in jobs if (record := finished(job)) is not None]
    done = [own for own in found if own[0].left_out is None]
    if not done:
        raise RunError("expected at least one run that was done, found none")
    lacking = [own for own in found if own[0].left_out is not None]
    fixed, ratio = _check_rows([*done, *lacking])
    own = _read(study, [job for job, _ in done], fixed)
    whole = [job for job in jobs if job.left_out is None]
    tuned = [_take_tuned(study, name, whole, own) for name, method in study.methods.items() if method.tune]
    if own.results.empty:
        raise RunError(
            "expected at least one method of which every combination of settings came to its end for a seed, found none"
        )
    chosen = _add_best(study, own, [(BEST_ALONE, study.alone), (BEST_FEDERATED, study.candidates)])
    if HINDSIGHT in study.labels:
        among = own.results[own.results["client"] != UNION_SITE]
        hindsight = best_in_hindsight(among, study.alone, study.choose or "")
        chosen = pd.concat([chosen, _add(HINDSIGHT, hindsight, own)], ignore_index=True)
    order = {name: position for position, name in enumerate(study.labels)}
    results = own.results.sort_values(
        ["method", "seed", "client", "split", "metric"],
        key=lambda column: column.map(order) if column.name == "method" else column,
    )
    columns = ["method", "seed", "client", "settings"]
    return Collected(
        results[["study", "method", "seed", "client", "split", "metric", "value"]].reset_index(drop=True),
        chosen,
        pd.DataFrame([record for _, record in done]),
        own.bootstrap,
        own.curves,
        fixed,
        ratio,
        pd.concat(tuned, ignore_index=True)[columns] if tuned else pd.DataFrame(columns=columns),
        own.clusters,
        {client: left for client in ratio if (left := _left(study, client, jobs, lacking, fixed)) is not None},
        pd.DataFrame([record for _, record in lacking]),
        own.explained,
    )


def _left(
    study: Study, client: str, jobs: Sequence[Job], lacking: Sequence[tuple[Job, dict[str, Any]]], fixed: bool
) -> Left | None:
    """What the runs without a client say; None where there are none."""
    done = [job for job, _ in lacking if job.left_out == client]
    if not done:
        return None
    own, planned = _read(study, done, fixed), [job for job in jobs if job.left_out == client]
    for name in study.candidates:
        if study.methods[name].tune:
            _take_tuned(study, name, planned, own)
    _add_best(study, own, [(BEST_FEDERATED, study.candidates)])
    return Left(own.results, own.bootstrap)


@dataclass
class _Files:
    """What lies in the folders of runs, before anything is chosen."""

    results: pd.DataFrame
    curves: pd.DataFrame
    clusters: pd.DataFrame
    bootstrap: dict[tuple[str, int], pd.DataFrame]
    explained: dict[str, pd.DataFrame]


def _read(study: Study, jobs: Sequence[Job], fixed: bool) -> _Files:
    scores, curves, clusters, bootstrap = [], [], [], {}
    explained: dict[str, list[pd.DataFrame]] = {name: [] for name in FILES}
    for job in jobs:
        folder = Path(job.folder)
        scores.append(read_named(folder / SCORE_FILE).assign(method=job.variant, seed=job.seed))
        if fixed and (folder / BOOTSTRAP).is_file():
            bootstrap[job.variant, job.seed] = pd.read_parquet(folder / BOOTSTRAP)
        for name in FILES:
            if job.explain and (folder / name).is_file():
                explained[name].append(read_named(folder / name).assign(method=job.variant, seed=job.seed))
        if (folder / CURVES).is_file():
            curves.append(read_named(folder / CURVES).assign(method=job.variant, seed=job.seed))
        if (folder / CLUSTERS).is_file():
            clusters.append(_clusters(job, read_named(folder / CLUSTERS)))
    columns = ["client", "metric", "step", "value", "method", "seed"]
    titles = [title_of(*own) for own in each_variant(study)]
    apart = pd.concat(clusters, ignore_index=True) if clusters else pd.DataFrame(columns=_CLUSTER_COLUMNS)
    return _Files(
        pd.concat(scores, ignore_index=True).assign(study=study.name),
        pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=columns),
        apart.sort_values("method", key=lambda own: own.map(titles.index), kind="stable", ignore_index=True),
        bootstrap,
        {name: pd.concat(parts, ignore_index=True) for name, parts in explained.items() if parts},
    )


def _take_tuned(study: Study, name: str, jobs: Sequence[Job], files: _Files) -> pd.DataFrame:
    """Put what each client chose of a tuned method's combinations in their place; what was chosen."""
    variants = {job.variant: json.dumps(job.settings) for job in jobs if job.method == name}
    own = best_on_validation(files.results, list(variants), study.choose or "", undecided="first")
    files.bootstrap |= bootstrap_of(name, own[own["client"] != UNION_SITE], files.bootstrap)
    files.bootstrap = {key: frame for key, frame in files.bootstrap.items() if key[0] not in variants}
    files.results, files.curves, *explained = (
        pd.concat([frame[~frame["method"].isin(list(variants))], scores_of(name, own, frame)], ignore_index=True)
        for frame in (files.results, files.curves, *files.explained.values())
    )
    files.explained = dict(zip(files.explained, explained, strict=True))
    return own.assign(method=name, settings=own["method"].map(variants))


def _add_best(study: Study, files: _Files, kinds: Sequence[tuple[str, Sequence[str]]]) -> pd.DataFrame:
    """Add the best of each kind as a method of its own; what was chosen."""
    chosen = []
    among = files.results[files.results["client"] != UNION_SITE]
    for best, candidates in kinds:
        own = best_on_validation(among, candidates, study.choose or "")
        chosen.append(_add(best, own, files) if best in study.labels else own.assign(best=best))
    return pd.concat(chosen, ignore_index=True)


def _add(best: str, chosen: pd.DataFrame, files: _Files) -> pd.DataFrame:
    """Add what was chosen as a method of its own."""
    files.results = pd.concat([files.results, scores_of(best, chosen, files.results)], ignore_index=True)
    files.bootstrap |= bootstrap_of(best, chosen, files.bootstrap)
    for name, frame in files.explained.items():
        files.explained[name] = pd.concat([frame, scores_of(best, chosen, frame)], ignore_index=True)
    return chosen.assign(best=best)


def _clusters(job: Job, frame: pd.DataFrame) -> pd.DataFrame:
    """Who belongs together at the end of a run."""
    partition, concepts = judged(frame), concepts_of(frame)
    title, index = title_of(job.method, job.settings), adjusted_rand(partition, concepts)
    rows = [
        (title, job.seed, client, number, concepts.get(client, ""), index)
        for number, clients in enumerate(partition, 1)
        for client in clients
    ]
    return pd.DataFrame(rows, columns=_CLUSTER_COLUMNS)


def _check_rows(done: Sequence[tuple[Job, dict[str, Any]]]) -> tuple[bool, dict[str, float]]:
    """Whether all seeds have the same test rows, and each client's test / training rows."""
    seen: dict[tuple[int, str], tuple[str, dict[str, str]]] = {}
    per_client: dict[str, set[str]] = {}
    ratios: dict[str, list[float]] = {}
    for job, record in done:
        title = job.title
        # Where clients are tested on the same rows, these are set against all that are not among them.
        trained: Counter[str] = Counter()
        for client, rows in record["rows"].items():
            trained[rows["test"]["digest"]] += record["train_rows"][client] if client != UNION_SITE else 0
        for client, rows in record["rows"].items():
            digests = {split: own["digest"] for split, own in rows.items() if split != OUT_OF_FOLD}
            first, expected = seen.setdefault((job.seed, client), (title, digests))
            if digests != expected:
                raise RunError(
                    f"{client}, seed {job.seed}: expected the same validation and test rows for all methods, found "
                    f"others for {title} than for {first}; give their configurations the same data.source"
                )
            if job.left_out is not None:  # its rows were the same, but it lacks those of a client to be set against
                continue
            per_client.setdefault(client, set()).add(digests["test"])
            union = record["train_rows"][client] if client == UNION_SITE else 0
            ratios.setdefault(client, []).append(rows["test"]["rows"] / (trained[digests["test"]] + union))
    fixed = all(len(digests) == 1 for digests in per_client.values())
    return fixed, {client: float(np.mean(own)) for client, own in ratios.items()}
