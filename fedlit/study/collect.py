"""From the folders of a study's runs to one tidy table, and what each client would have chosen on validation: settings,
the best go-alone model, the best federated method.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import RunError
from fedlit.explain.clusters import CLUSTERS, adjusted_rand, concepts_of, judged, read_clusters
from fedlit.explain.judge import read_records
from fedlit.study.runs import BOOTSTRAP, CURVES, SCORES, Job, each_variant, finished, spoken
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study

__all__ = ["Collected", "best_on_validation", "collect"]

_CLUSTER_COLUMNS = ["method", "seed", "client", "cluster", "concept", "adjusted_rand"]


@dataclass(frozen=True, eq=False)
class Collected:
    """What a study's finished runs say.

    Attributes:
        results: one row per value: study, method, seed, client, split, metric, value.
        chosen: one row per seed, client and kind (``best``): the go-alone model, and the federated method, that is best
            on validation.
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

    def values(self, metric: str, split: str = "test") -> pd.DataFrame:
        """A metric's values: one row per seed, columns (method, client)."""
        own = self.results[(self.results["metric"] == metric) & (self.results["split"] == split)]
        return own.pivot(index="seed", columns=["method", "client"], values="value")

    @property
    def clients(self) -> list[str]:
        """The clients, without the union of a pooled run's."""
        return sorted(self.ratio)


def collect(study: Study, jobs: Sequence[Job]) -> Collected:
    """Read what is done.

    Raises:
        RunError: nothing is done, or only parts of tuned methods, or two methods were scored on different rows for the
            same seed and client.
    """
    done = [(job, record) for job in jobs if (record := finished(job)) is not None]
    if not done:
        raise RunError("expected at least one run that was done, found none")
    fixed, ratio = _check_rows(done)
    scores, curves, clusters, bootstrap = [], [], [], {}
    for job, _ in done:
        folder = Path(job.folder)
        own = read_records(folder / SCORES)
        scores.append(own.assign(method=job.variant, seed=job.seed))
        if fixed and (folder / BOOTSTRAP).is_file():
            bootstrap[job.variant, job.seed] = pd.read_parquet(folder / BOOTSTRAP)
        if (folder / CURVES).is_file():
            own = read_records(folder / CURVES)
            curves.append(own.assign(method=job.variant, seed=job.seed))
        if (folder / CLUSTERS).is_file():
            clusters.append(_clusters(job, read_clusters(folder / CLUSTERS)))
    results = pd.concat(scores, ignore_index=True).assign(study=study.name)
    columns = ["client", "metric", "step", "value", "method", "seed"]
    drawn = pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=columns)
    tuned = []
    for name in (name for name, method in study.methods.items() if method.tune):
        variants = {job.variant: json.dumps(job.settings) for job in jobs if job.method == name}
        own = best_on_validation(results, list(variants), study.choose, undecided="first")
        bootstrap |= _bootstrap_as(name, own[own["client"] != UNION_SITE], bootstrap)
        bootstrap = {(method, seed): frame for (method, seed), frame in bootstrap.items() if method not in variants}
        results, drawn = (
            pd.concat([frame[~frame["method"].isin(list(variants))], _as(name, own, frame)], ignore_index=True)
            for frame in (results, drawn)
        )
        tuned.append(own.assign(method=name, settings=own["method"].map(variants)))
    if results.empty:
        raise RunError(
            "expected at least one method of which every combination of settings came to its end for a seed, found none"
        )
    chosen = []
    among = results[results["client"] != UNION_SITE]
    for best, candidates in ((BEST_ALONE, study.alone), (BEST_FEDERATED, study.candidates)):
        own = best_on_validation(among, candidates, study.choose)
        chosen.append(own.assign(best=best))
        if best not in study.labels:
            continue
        results = pd.concat([results, _as(best, own, results)], ignore_index=True)
        bootstrap |= _bootstrap_as(best, own, bootstrap)
    columns = ["method", "seed", "client", "settings"]
    apart = pd.concat(clusters, ignore_index=True) if clusters else pd.DataFrame(columns=_CLUSTER_COLUMNS)
    titles = [spoken(*own) for own in each_variant(study)]
    order = {name: position for position, name in enumerate(study.labels)}
    results = results.sort_values(
        ["method", "seed", "client", "split", "metric"], key=lambda own: own.map(order) if own.name == "method" else own
    )
    return Collected(
        results[["study", "method", "seed", "client", "split", "metric", "value"]].reset_index(drop=True),
        pd.concat(chosen, ignore_index=True),
        pd.DataFrame([record for _, record in done]),
        bootstrap,
        drawn,
        fixed,
        ratio,
        pd.concat(tuned, ignore_index=True)[columns] if tuned else pd.DataFrame(columns=columns),
        apart.sort_values("method", key=lambda own: own.map(titles.index), kind="stable", ignore_index=True),
    )


def _clusters(job: Job, frame: pd.DataFrame) -> pd.DataFrame:
    """Who belongs together at the end of a run."""
    partition, concepts = judged(frame), concepts_of(frame)
    title, index = spoken(job.method, job.settings), adjusted_rand(partition, concepts)
    rows = [
        (title, job.seed, client, number, concepts.get(client, ""), index)
        for number, clients in enumerate(partition, 1)
        for client in clients
    ]
    return pd.DataFrame(rows, columns=_CLUSTER_COLUMNS)


def _as(name: str, chosen: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Of scores or curves those of what was chosen (seed, client, method), under a name of their own."""
    if frame.empty:  # its columns have no types to be merged by
        return frame
    return frame.merge(chosen, on=["seed", "client", "method"]).assign(method=name)


def _bootstrap_as(
    name: str, chosen: pd.DataFrame, bootstrap: Mapping[tuple[str, int], pd.DataFrame]
) -> dict[tuple[str, int], pd.DataFrame]:
    """The same of resamples, for the seeds of which there are all."""
    found = {}
    for seed in chosen["seed"].unique().tolist():
        picks = chosen[chosen["seed"] == seed]
        parts = {
            client: bootstrap[method, seed][client]
            for method, client in picks[["method", "client"]].itertuples(index=False)
            if (method, seed) in bootstrap
        }
        if len(parts) == len(picks):
            found[name, seed] = pd.concat(parts, axis=1)
    return found


def best_on_validation(
    results: pd.DataFrame, candidates: Sequence[str], choose: str, *, undecided: Literal["none", "first"] = "none"
) -> pd.DataFrame:
    """Per seed and client the candidate of the largest value on validation, the first of equals.

    Args:
        results: tidy, with the validation split.
        candidates: methods, in the order in which equals are preferred. Those without any result are left out.
        choose: the metric.
        undecided: what is chosen for clients for which the metric is undefined for all candidates: none of them, or
            the first, as a go-alone model takes its first settings then.

    Returns:
        Columns seed, client, method. A seed of which a candidate is missing is left out: the best of fewer would not
        be comparable.
    """
    own = results[(results["split"] == "validation") & (results["metric"] == choose)]
    if undecided == "first":  # also for clients that have no validation rows
        keys = ["seed", "client", "method"]
        own = results[keys].drop_duplicates().merge(own, on=keys, how="left")
    present = [name for name in candidates if (own["method"] == name).any()]
    own = own[own["method"].isin(present)]
    counts = own.groupby(["seed", "client"])["method"].nunique()
    wide = own.pivot(index=["seed", "client"], columns="method", values="value").reindex(columns=present)
    decided = wide.notna().any(axis=1) | (undecided == "first")
    wide = wide[(counts.reindex(wide.index) == len(present)) & decided]
    position = np.argmax(wide.fillna(-np.inf).to_numpy(float), axis=1) if len(wide) else []
    return wide.index.to_frame(index=False).assign(method=[present[column] for column in position])


def _check_rows(done: Sequence[tuple[Job, dict[str, Any]]]) -> tuple[bool, dict[str, float]]:
    """Whether all seeds have the same test rows, and each client's test / training rows."""
    seen: dict[tuple[int, str], tuple[str, dict[str, str]]] = {}
    per_client: dict[str, set[str]] = {}
    ratios: dict[str, list[float]] = {}
    for job, record in done:
        title = spoken(job.method, job.settings)
        # Where clients are tested on the same rows, these are set against all that are not among them.
        trained: Counter[str] = Counter()
        for client, rows in record["rows"].items():
            trained[rows["test"]["digest"]] += record["train_rows"][client] if client != UNION_SITE else 0
        for client, rows in record["rows"].items():
            digests = {split: own["digest"] for split, own in rows.items()}
            first, expected = seen.setdefault((job.seed, client), (title, digests))
            if digests != expected:
                raise RunError(
                    f"{client}, seed {job.seed}: expected the same validation and test rows for all methods, found "
                    f"others for {title} than for {first}; give their configurations the same data.source"
                )
            per_client.setdefault(client, set()).add(digests["test"])
            union = record["train_rows"][client] if client == UNION_SITE else 0
            ratios.setdefault(client, []).append(rows["test"]["rows"] / (trained[digests["test"]] + union))
    fixed = all(len(digests) == 1 for digests in per_client.values())
    return fixed, {client: float(np.mean(own)) for client, own in ratios.items()}
