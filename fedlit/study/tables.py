"""A study's tables as frames of texts, the same for terminal, Markdown and report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedlit.answers.verdict import VERDICTS, Verdict
from fedlit.jobs.job import title_of
from fedlit.study.collect import Collected
from fedlit.study.lift import MEAN, WORST, client_label
from fedlit.study.resolve import ResolvedStudy
from fedlit.tasks import Score

NOTHING = "–"
MARKS = {Verdict.JOIN: "▲ ", Verdict.ALONE: "▼ "}
"""Before a lift: its verdict, where that is to join or to stay alone."""


def _by_method(
    study: ResolvedStudy, rows: pd.DataFrame, texts: Sequence[str], clients: Sequence[str]
) -> pd.DataFrame:
    """Return a table of methods (by name) by clients, given the rows of estimates and a text for
    each.
    """
    cells = rows.assign(text=texts)[rows["client"].isin(list(clients))]
    wide = cells.pivot(index="method", columns="client", values="text")
    methods = [method for method in study.labels if method in wide.index]
    wide = wide.reindex(index=methods, columns=list(clients)).astype(object).fillna(NOTHING)
    return wide.rename(columns=client_label)


def _interval(score: Score, row: Mapping[Any, Any], signed: bool) -> str:
    low = row["low"]
    high = row["high"]

    if not math.isfinite(low + high):
        return ""
    return f"({score.text(low, signed=signed)} to {score.text(high, signed=signed)})"


def score_table(
    study: ResolvedStudy,
    estimates: pd.DataFrame,
    score: Score,
    clients: Sequence[str],
    *,
    short: bool = False,
) -> pd.DataFrame:
    """Return a table of methods by clients: mean ± sd over seeds (95 % interval), and the paper's
    value with the difference, ours minus the paper's.

    Args:
        study: the study, for its labels and its paper.
        estimates: the estimates that :func:`fedlit.study.lift.estimates` returns.
        score: the score to show.
        clients: the clients of the columns.
        short: whether to show mean ± sd only.
    """
    most = estimates["n"].max()
    rows = estimates[estimates["metric"] == score.name]

    def cell(row: Mapping[Any, Any]) -> str:
        parts = [score.text(row["mean"])]
        if not math.isfinite(row["mean"]):
            parts.append("not finite")
        elif math.isfinite(row["sd"]):
            parts.append(f"± {score.text(row['sd'])}")
        if not short:
            parts.append(_interval(score, row, signed=False))
        if row["n"] < most:
            parts.append(f"n = {row['n']}")
        if not short:
            parts.append(_beside_paper(study, row["method"], row["client"], score, row["mean"]))
        return " ".join(filter(None, parts))

    return _by_method(study, rows, list(map(cell, rows.to_dict("records"))), clients).rename(
        index=study.labels
    )


def _beside_paper(study: ResolvedStudy, method: str, client: str, score: Score, mean: float) -> str:
    if study.paper is None or (value := study.paper.value(method, client, score.name)) is None:
        return ""
    published = value / 100 if score.percent else value
    difference = f" ({score.text(mean - published, signed=True)})" if math.isfinite(mean) else ""
    mark = "†" if method in study.paper.remarks else ""
    return f"paper {score.text(published)}{difference}{mark}"


def lift_table(
    study: ResolvedStudy, lift: pd.DataFrame, score: Score, reference: str, clients: Sequence[str]
) -> pd.DataFrame:
    """Return a table of federated methods by clients: the lift over the reference (95 % interval),
    the p-value, and the number of clients with each verdict.
    """
    rows = lift[(lift["metric"] == score.name) & (lift["reference"] == reference)]
    texts = [_lift_cell(score, row, rows["n"].max()) for row in rows.to_dict("records")]
    verdicts = (
        rows[~rows["client"].isin([MEAN, WORST])]
        .groupby("method")["verdict"]
        .value_counts()
        .to_dict()
    )
    table = _by_method(study, rows, texts, clients)
    counts = []
    for method in table.index:
        counts.append(" / ".join(str(verdicts.get((method, kind), 0)) for kind in VERDICTS))
    table[" / ".join(VERDICTS)] = counts
    return table.rename(index=study.labels)


def _lift_cell(score: Score, row: Mapping[Any, Any], most: int) -> str:
    p = row["p_holm"]
    p_value = ""
    if math.isfinite(p):
        p_value = "p < 0.001" if p < 0.001 else f"p {p:.3f}"
    fewer = f"n = {row['n']}" if row["n"] < most else ""
    beside = ", ".join(filter(None, [_interval(score, row, signed=True), p_value, fewer]))
    return (
        f"{MARKS.get(row['verdict'], '')}{score.text(row['mean'], signed=True)} {beside}".rstrip()
    )


def cluster_table(study: ResolvedStudy, collected: Collected) -> pd.DataFrame | None:
    """Return the clusters that methods found at the end of their runs; None if no method finds
    clusters.
    """
    if collected.clusters.empty:
        return None
    labels = {
        title_of(name, tuned): title_of(study.labels[name], tuned) for name, tuned in study.variants
    }
    titles = list[str]()
    rows = []
    for title, clusters in collected.clusters.groupby("method", sort=False):
        runs = clusters.groupby("seed").agg({"cluster": "nunique", "adjusted_rand": "first"})
        index = runs["adjusted_rand"].dropna()
        right = f"{100 * (index > 1 - 1e-9).mean():.0f} %" if len(index) else NOTHING
        mean_index = f"{index.mean():.3f}" if len(index) else NOTHING
        titles.append(labels[str(title)])
        rows.append([str(len(runs)), f"{runs['cluster'].mean():.1f}", mean_index, right])
    return pd.DataFrame(
        rows, titles, ["runs", "clusters", "adjusted Rand index", "runs with index 1"]
    )
