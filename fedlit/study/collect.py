"""Collects the results of a study's runs in tidy tables, with what each client would have chosen on
validation rows: settings, the best model alone, and the best federated method.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.errors import RunError, Told, expect
from fedlit.explain.clusters import CLUSTERS, adjusted_rand, concepts_of, judged
from fedlit.files import read_named
from fedlit.jobs.job import Job, title_of, variant_name
from fedlit.jobs.record import finished
from fedlit.study.job import BOOTSTRAP, OUT_OF_FOLD, SCORE_FILE
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT
from fedlit.tasks import COMPARED

_KEYS = ["without", "seed", "client", "method"]
_CLUSTERS = ["method", "seed", "client", "cluster", "concept", "adjusted_rand"]


@dataclass(frozen=True, eq=False)
class Collected:
    """The results of a study's finished runs.

    Attributes:
        results: one row per value: study, without (the client without which the federation was
            trained; "" for none), method, seed, client, split, metric, value.
        chosen: the choices, one row for each without, seed, client and kind (``best``): which
            ``method`` is the model alone, and the federated method, that is best on validation
            rows, and the model alone that is best in hindsight.
        records: one row per run with all clients: method, seed, seconds, versions, machine, …
        bootstrap: maps (method with its settings, seed, without) to a table with one row per
            resample and the columns (client, metric).
        fixed: whether every seed has the same test rows, so that seeds differ only in training.
        ratio: maps each client to its test rows / training rows: the mean over seeds, and the
            largest of all methods.
        tuned: the choices of tuned methods: without, seed, client, ``best`` (the method),
            ``method`` (with its settings), and the settings that were best on the client's
            validation rows, as JSON. The method's results are those of these settings.
        clusters: one row for each method that finds clusters (a tuned one with each combination of
            settings), seed and client: method, seed, client, cluster (at the end, see
            :func:`fedlit.explain.clusters.judged`), concept, and the run's adjusted_rand.
        lacking: the number of runs that were federations without one of their clients.
    """

    results: pd.DataFrame
    chosen: pd.DataFrame
    records: pd.DataFrame
    bootstrap: Mapping[tuple[str, int, str], pd.DataFrame]
    fixed: bool
    ratio: dict[str, float]
    tuned: pd.DataFrame
    clusters: pd.DataFrame
    lacking: int = 0

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The results, together with those of what was chosen, under the name of the choice, such
        as best_alone.
        """
        return pd.concat([self.results, _chosen_rows(self.results, self.chosen)], ignore_index=True)

    def values(self, metric: str, split: str = "test", without: str = "") -> pd.DataFrame:
        """Return a metric's values, with one row for each seed and the columns (method, client)."""
        scores = self.scores
        scores = scores[
            (scores["metric"] == metric)
            & (scores["split"] == split)
            & (scores["without"] == without)
        ]
        return scores.pivot(index="seed", columns=["method", "client"], values="value")

    def trained(self, method: str, seed: int, client: str, without: str = "") -> str:
        """Return the run to which a client's results belong: for a choice, the chosen method with
        its settings.
        """
        key = (without, seed, client)
        method = self._picks.get((*key, method), method)
        return self._picks.get((*key, method), method)

    @cached_property
    def _picks(self) -> dict[tuple[Any, ...], str]:
        both = pd.concat([self.chosen, self.tuned])
        return dict(
            zip(
                both[[*_KEYS[:3], "best"]].itertuples(index=False, name=None),
                both["method"],
                strict=True,
            )
        )

    @property
    def clients(self) -> list[str]:
        """The names of the clients."""
        return sorted(self.ratio)

    def clients_of(self, metric: str) -> list[str]:
        """Return the clients whose task has a metric."""
        scored = set(self.results.loc[self.results["metric"] == metric, "client"])
        return [client for client in self.clients if client in scored]


def collect(study: ResolvedStudy, jobs: Sequence[Job]) -> Collected:
    """Collect the results of the finished jobs.

    Args:
        study: the study.
        jobs: all jobs of the study.

    Raises:
        RunError: no job is done, or only parts of tuned methods are, or two methods were scored on
            different rows for the same seed and client.
    """
    done = [(job, record) for job in jobs if (record := finished(job)) is not None]
    if all(job.left_out is not None for job, _ in done):
        raise RunError("expected at least one run that was done, found none")
    fixed, ratio = _check_rows(done)
    finished_jobs = [job for job, _ in done]
    scores = [
        read_named(Path(job.folder) / SCORE_FILE).assign(
            method=job.variant, seed=job.seed, without=job.left_out or ""
        )
        for job in finished_jobs
    ]
    results = pd.concat(scores, ignore_index=True).assign(study=study.name)
    tuned = _tuned(study, results)
    results = _settled(study, results, tuned)
    if results.empty:
        raise RunError(
            "expected at least one method of which every combination of settings came to its end "
            "for a seed, found none"
        )
    of_all = [(job, record) for job, record in done if job.left_out is None]
    bootstrap = {
        (job.variant, job.seed, job.left_out or ""): pd.read_parquet(Path(job.folder) / BOOTSTRAP)
        for job in (finished_jobs if fixed else ())
        if (Path(job.folder) / BOOTSTRAP).is_file()
    }
    tidy = results[["study", *_KEYS, "split", "metric", "value"]]
    records = pd.DataFrame([record for _, record in of_all])
    clusters = _clusters(study, [job for job, _ in of_all])
    lacking = len(done) - len(of_all)
    return Collected(
        tidy, _best(study, results), records, bootstrap, fixed, ratio, tuned, clusters, lacking
    )


def _tuned(study: ResolvedStudy, results: pd.DataFrame) -> pd.DataFrame:
    """Return the settings of each tuned method that each client chose."""
    choices = [pd.DataFrame(columns=[*_KEYS, "best", "settings"])]
    for name, method in study.methods.items():
        if method.tune:
            variants = {
                variant_name(name, settings): json.dumps(settings)
                for settings in method.combinations
            }
            for without, frame in results.groupby("without"):
                chosen = best_on_validation(frame, list(variants), study.choose, undecided="first")
                choices.append(
                    chosen.assign(
                        without=without, best=name, settings=chosen["method"].map(variants)
                    )
                )
    return pd.concat(choices[1:] or choices, ignore_index=True)


def _settled(study: ResolvedStudy, frame: pd.DataFrame, tuned: pd.DataFrame) -> pd.DataFrame:
    """Replace the results of all combinations of settings by those of the chosen ones."""
    variants = [variant_name(name, settings) for name, settings in study.variants if settings]
    if not variants:
        return frame
    return pd.concat(
        [frame[~frame["method"].isin(variants)], _chosen_rows(frame, tuned)], ignore_index=True
    )


def _chosen_rows(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of what was chosen, under the name of the choice."""
    if frame.empty or chosen.empty:
        return frame[:0]
    return (
        frame.merge(chosen[[*_KEYS, "best"]], on=_KEYS)
        .drop(columns="method")
        .rename(columns={"best": "method"})
    )


def _best(study: ResolvedStudy, results: pd.DataFrame) -> pd.DataFrame:
    """Return the best method of each kind. For federations without one client, return the best of
    these.
    """
    choices = []
    for without, frame in results.groupby("without"):
        kinds = {BEST_FEDERATED: study.candidates}
        if not without:
            kinds = {BEST_ALONE: study.alone, **kinds}
        for best, candidates in kinds.items():
            picks = best_on_validation(frame, candidates, study.choose)
            choices.append(picks.assign(best=best, without=without))
        if HINDSIGHT in study.labels and not without:
            picks = best_in_hindsight(frame, study.alone, study.choose)
            choices.append(picks.assign(best=HINDSIGHT, without=without))
    chosen = pd.concat(choices, ignore_index=True)
    return chosen[(chosen["best"] != BEST_ALONE) | (BEST_ALONE in study.labels)]


def _clusters(study: ResolvedStudy, jobs: Sequence[Job]) -> pd.DataFrame:
    """Return the final clusters of each run."""
    rows = []
    titles = [title_of(name, settings) for name, settings in study.variants]
    written = list[tuple[str, int, Path]]()
    for job in jobs:
        title = title_of(job.method, job.settings)
        paths = Path(job.folder).glob(f"version_*/{CLUSTERS}")
        written += [(title, job.seed, path) for path in paths]
    written.sort(key=lambda entry: titles.index(entry[0]))
    for title, seed, path in written:
        frame = read_named(path)
        partition = judged(frame)
        concepts = concepts_of(frame)
        index = adjusted_rand(partition, concepts)
        for number, clients in enumerate(partition, 1):
            rows += [
                (title, seed, client, number, concepts.get(client, ""), index) for client in clients
            ]
    return pd.DataFrame(rows, columns=_CLUSTERS)


def _check_rows(done: Sequence[tuple[Job, dict[str, Any]]]) -> tuple[bool, dict[str, float]]:
    """Return whether all seeds have the same test rows, and each client's test rows / training
    rows: the mean over seeds, of the method for which it is largest, so that no interval of a lift
    is too narrow. With methods on folds and others that do not train on validation rows, intervals
    of the first are wider than they need to be.
    """
    seen: dict[tuple[int, str], tuple[str, dict[str, str]]] = {}
    measured = []
    for job, record in done:
        # Where clients are tested on the same rows, these are set against all that are not among
        # them.
        trained: Counter[str] = Counter()
        for client, rows in record["rows"].items():
            trained[rows["test"]["digest"]] += record["train_rows"][client]
        for client, rows in record["rows"].items():
            digests = {
                split: identity["digest"]
                for split, identity in rows.items()
                if split != OUT_OF_FOLD
            }
            first, expected = seen.setdefault((job.seed, client), (job.title, digests))
            received = Told(f"others for {job.title} than for {first}")
            do = "give their configurations the same data.source"
            same = "the same validation and test rows for all methods"
            expect(digests == expected, f"{client}, seed {job.seed}", same, received, do, RunError)
            # A federation without a client has the same test rows, but lacks that client's
            # training rows, so that its ratio would be too large.
            if job.left_out is None:
                ratio = rows["test"]["rows"] / trained[digests["test"]]
                measured.append((client, job.variant, digests["test"], ratio))
    table = pd.DataFrame(measured, columns=["client", "variant", "test", "ratio"])
    ratios = table.groupby(["client", "variant"])["ratio"].mean().groupby("client").max()
    fixed = bool((table.groupby("client")["test"].nunique() == 1).all())
    return fixed, dict(zip(map(str, ratios.index), ratios, strict=True))


def best_on_validation(
    results: pd.DataFrame,
    candidates: Sequence[str],
    choose: Mapping[str, str],
    *,
    undecided: Literal["none", "first"] = "none",
) -> pd.DataFrame:
    """Return, for each seed and client, the candidate with the best value on validation rows, the
    first among equals.

    Args:
        results: tidy results, with the validation split.
        candidates: methods, in the order in which equals are preferred. Candidates without any
            result are left out, and for each client those that it cannot have.
        choose: maps each client to its metric.
        undecided: what is chosen for clients for which the metric is undefined for all candidates:
            none of them, or the first, as a local baseline then takes its first settings.

    Candidates with out-of-fold scores are compared by these, and the best of them is compared with
    all others on validation rows, so that two models are always compared on the same rows.

    Returns:
        The columns seed, client and method. A seed without a result of one of the candidates is
        left out, because the best of fewer candidates would not be comparable.
    """
    keys = ["seed", "client", "method"]
    scores = of_choice(results, choose)
    judged = scores[scores["split"].isin(["validation", OUT_OF_FOLD])]
    # The first candidate is also chosen for clients that have no validation rows.
    available = (results if undecided == "first" else judged)[keys].drop_duplicates()
    present = [name for name in candidates if (available["method"] == name).any()]
    available, judged = (frame[frame["method"].isin(present)] for frame in (available, judged))
    expected = available.groupby("client")["method"].nunique()
    counts = available.groupby(["seed", "client"])["method"].nunique()
    complete = counts[
        counts == expected.reindex(counts.index.get_level_values("client")).to_numpy()
    ].index
    unseen, validation = (
        judged[judged["split"] == split]
        .pivot(index=["seed", "client"], columns="method", values="gain")
        .reindex(index=complete, columns=present)
        .to_numpy(float)
        for split in (OUT_OF_FOLD, "validation")
    )
    positions = [_place(*values) for values in zip(unseen, validation, strict=True)]
    if undecided == "first":
        positions = [position or 0 for position in positions]
    chosen = [None if position is None else present[position] for position in positions]
    return (
        complete.to_frame(index=False)
        .assign(method=pd.Series(chosen, dtype=object))
        .dropna()
        .reset_index(drop=True)
    )


def of_choice(results: pd.DataFrame, choose: Mapping[str, str]) -> pd.DataFrame:
    """Return the rows of the metric by which each client chooses, with a column ``gain``: the value
    with the sign by which larger is better.

    Args:
        results: a table with client, metric and value.
        choose: maps each client to its metric.
    """
    chosen = results[results["metric"] == results["client"].map(choose)]
    signs = {
        name: 1.0 if COMPARED[name].higher_is_better else -1.0 for name in chosen["metric"].unique()
    }
    return chosen.assign(gain=chosen["value"] * chosen["metric"].map(signs).astype(float))


def _place(unseen: NDArray[np.float64], validation: NDArray[np.float64]) -> int | None:
    """Return the position of the best candidate, or None if no value is known."""
    first = int(np.nanargmax(unseen)) if not np.isnan(unseen).all() else None
    beaten = ~np.isnan(unseen)
    if first is not None:
        beaten[first] = False
    values = np.where(beaten, np.nan, validation)
    return first if np.isnan(values).all() else int(np.nanargmax(values))


def best_in_hindsight(
    results: pd.DataFrame, candidates: Sequence[str], choose: Mapping[str, str]
) -> pd.DataFrame:
    """Return, for each client, the candidate with the best mean test score over seeds, which is the
    same for all seeds. This is a stricter bar than anybody could choose in advance.

    Args:
        results: tidy results, with the test split.
        candidates: methods, in the order in which equals are preferred. A method whose scores are
            not all numbers is no candidate.
        choose: maps each client to its metric.

    Returns:
        The columns seed, client and method, for the seeds that all candidates of a client have.
    """
    tested = of_choice(results, choose)
    tested = tested[(tested["split"] == "test") & tested["method"].isin(list(candidates))]
    choices = []
    for client, frame in tested.groupby("client"):
        wide = frame.pivot(index="seed", columns="method", values="gain")
        wide = wide.reindex(columns=[name for name in candidates if name in wide])
        runs = frame.pivot(index="seed", columns="method", values="metric").notna().all(axis=1)
        means = wide[runs.reindex(wide.index)].mean(skipna=False).dropna()
        if len(means):
            choices += [
                (seed, client, means.idxmax()) for seed in wide.index[runs.reindex(wide.index)]
            ]
    return pd.DataFrame(choices, columns=["seed", "client", "method"])
