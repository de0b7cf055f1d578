"""From the folders of a study's runs to one tidy table, and the go-alone model that each client would have chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import RunError
from fedlit.explain.judge import read_records
from fedlit.study.runs import BOOTSTRAP, CURVES, SCORES, Job, finished
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study

__all__ = ["Collected", "best_on_validation", "collect"]


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
    """

    results: pd.DataFrame
    chosen: pd.DataFrame
    records: pd.DataFrame
    bootstrap: dict[tuple[str, int], pd.DataFrame]
    curves: pd.DataFrame
    fixed: bool
    ratio: dict[str, float]

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
        RunError: nothing is done, or two methods were scored on different rows for the same seed and client.
    """
    done = [(job, record) for job in jobs if (record := finished(job)) is not None]
    if not done:
        raise RunError("expected at least one run that was done, found none")
    fixed, ratio = _check_rows(done)
    scores, curves, bootstrap = [], [], {}
    for job, _ in done:
        folder = Path(job.folder)
        own = read_records(folder / SCORES)
        scores.append(own.assign(method=job.method, seed=job.seed))
        if fixed and (folder / BOOTSTRAP).is_file():
            bootstrap[job.method, job.seed] = pd.read_parquet(folder / BOOTSTRAP)
        if (folder / CURVES).is_file():
            own = read_records(folder / CURVES)
            curves.append(own.assign(method=job.method, seed=job.seed))
    results = pd.concat(scores, ignore_index=True).assign(study=study.name)
    chosen = []
    for best, candidates in ((BEST_ALONE, study.alone), (BEST_FEDERATED, study.candidates)):
        own = best_on_validation(results, candidates, study.choose)
        chosen.append(own.assign(best=best))
        if best not in study.labels:
            continue
        as_chosen = results.merge(own, on=["seed", "client", "method"]).assign(method=best)
        results = pd.concat([results, as_chosen], ignore_index=True)
        for seed in own["seed"].unique().tolist():
            picks = own[own["seed"] == seed]
            parts = {
                client: bootstrap[method, seed][client]
                for method, client in picks[["method", "client"]].itertuples(index=False)
                if (method, seed) in bootstrap
            }
            if len(parts) == len(picks):
                bootstrap[best, seed] = pd.concat(parts, axis=1)
    order = {name: position for position, name in enumerate(study.labels)}
    results = results.sort_values(
        ["method", "seed", "client", "split", "metric"], key=lambda own: own.map(order) if own.name == "method" else own
    )
    return Collected(
        results[["study", "method", "seed", "client", "split", "metric", "value"]].reset_index(drop=True),
        pd.concat(chosen, ignore_index=True),
        pd.DataFrame([record for _, record in done]),
        bootstrap,
        pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=["client", "metric", "step", "value"]),
        fixed,
        ratio,
    )


def best_on_validation(results: pd.DataFrame, candidates: Sequence[str], choose: str) -> pd.DataFrame:
    """Per seed and client the candidate of the largest value on validation, the first of equals.

    Args:
        results: tidy, with the validation split.
        candidates: methods, in the order in which equals are preferred. Those without any result are left out.
        choose: the metric.

    Returns:
        Columns seed, client, method. A seed of which a candidate is missing is left out: the best of fewer would not
        be comparable. So are clients for which the metric is undefined for all candidates: there is no choice.
    """
    own = results[
        (results["split"] == "validation") & (results["metric"] == choose) & (results["client"] != UNION_SITE)
    ]
    present = [name for name in candidates if (own["method"] == name).any()]
    own = own[own["method"].isin(present)]
    counts = own.groupby(["seed", "client"])["method"].nunique()
    wide = own.pivot(index=["seed", "client"], columns="method", values="value").reindex(columns=present)
    wide = wide[(counts.reindex(wide.index) == len(present)) & wide.notna().any(axis=1)]
    position = np.argmax(wide.fillna(-np.inf).to_numpy(float), axis=1) if len(wide) else []
    return wide.index.to_frame(index=False).assign(method=[present[column] for column in position])


def _check_rows(done: Sequence[tuple[Job, dict[str, Any]]]) -> tuple[bool, dict[str, float]]:
    """Whether all seeds have the same test rows, and each client's test / training rows."""
    seen: dict[tuple[int, str], tuple[str, dict[str, str]]] = {}
    per_client: dict[str, set[str]] = {}
    ratios: dict[str, list[float]] = {}
    for job, record in done:
        for client, rows in record["rows"].items():
            digests = {split: own["digest"] for split, own in rows.items()}
            first, expected = seen.setdefault((job.seed, client), (job.method, digests))
            if digests != expected:
                raise RunError(
                    f"{client}, seed {job.seed}: expected the same validation and test rows for all methods, found "
                    f"others for {job.method} than for {first}; give their configurations the same data.source"
                )
            per_client.setdefault(client, set()).add(digests["test"])
            ratios.setdefault(client, []).append(rows["test"]["rows"] / record["train_rows"][client])
    fixed = all(len(digests) == 1 for digests in per_client.values())
    return fixed, {client: float(np.mean(own)) for client, own in ratios.items()}
