"""A study's tables as frames of texts, the same for terminal, Markdown and report: scores, lifts, choices, clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedlit.statistics import ALONE, JOIN, TITLES
from fedlit.study.collect import Collected
from fedlit.study.job import each_variant, title_of
from fedlit.study.lift import MEAN, WORST, client_label
from fedlit.study.study import Study
from fedlit.tasks import Score

__all__ = ["MARKS", "NOTHING", "cluster_table", "lift_table", "score_table"]

NOTHING = "–"
MARKS = {JOIN: "▲ ", ALONE: "▼ "}
"""Before a lift: its verdict, where that is to join or to stay alone."""
_Rows = list[tuple[str, list[str]]]


def _frame(head: Sequence[str], rows: _Rows) -> pd.DataFrame:
    return pd.DataFrame([cells for _, cells in rows], [label for label, _ in rows], list(head), dtype=object)


def _by_client(frame: pd.DataFrame) -> dict[tuple[str, str], Mapping[Any, Any]]:
    """Map each (method, client) to its row."""
    return {(own["method"], own["client"]): own for own in frame.to_dict("records")}


def _interval(score: Score, own: Mapping[Any, Any], signed: bool) -> str:
    low, high = own["low"], own["high"]
    known = math.isfinite(low + high)
    return f"({score.text(low, signed=signed)} to {score.text(high, signed=signed)})" if known else ""


def score_table(
    study: Study, estimates: pd.DataFrame, score: Score, clients: Sequence[str], *, short: bool = False
) -> pd.DataFrame:
    """Return a table of methods by clients: mean ± sd over seeds (95 % interval), and the paper's value with the
    difference, ours minus the paper's.

    Args:
        study: the study, for its labels and its paper.
        estimates: the estimates that :func:`fedlit.study.lift.estimates` returns.
        score: the score to show.
        clients: the clients of the columns.
        short: whether to show mean ± sd only.
    """
    most, found = estimates["n"].max(), _by_client(estimates[estimates["metric"] == score.name])

    def cell(method: str, client: str) -> str:
        own = found.get((method, client))
        if own is None:
            return NOTHING
        parts = [score.text(own["mean"])]
        if not math.isfinite(own["mean"]):
            parts.append("not finite")
        elif math.isfinite(own["sd"]):
            parts.append(f"± {score.text(own['sd'])}")
        if not short:
            parts.append(_interval(score, own, signed=False))
        parts.append(f"n = {own['n']}" if own["n"] < most else "")
        if not short:
            parts.append(_beside_paper(study, method, client, score, own["mean"]))
        return " ".join(filter(None, parts))

    known = {method for method, client in found if client in clients}
    rows = [
        (label, [cell(method, client) for client in clients])
        for method, label in study.labels.items()
        if method in known
    ]
    return _frame([client_label(client) for client in clients], rows)


def _beside_paper(study: Study, method: str, client: str, score: Score, mean: float) -> str:
    if study.paper is None or (value := study.paper.value(method, client, score.name)) is None:
        return ""
    published = value / 100 if score.percent else value
    difference = f" ({score.text(mean - published, signed=True)})" if math.isfinite(mean) else ""
    return f"paper {score.text(published)}{difference}" + ("†" if method in study.paper.remarks else "")


def lift_table(study: Study, lift: pd.DataFrame, score: Score, reference: str, clients: Sequence[str]) -> pd.DataFrame:
    """Return a table of federated methods by clients: the lift over the reference (95 % interval), the p-value, and the
    number of clients with each verdict.
    """
    own = lift[(lift["metric"] == score.name) & (lift["reference"] == reference)]
    found, most = _by_client(own), own["n"].max()
    verdicts = own[~own["client"].isin([MEAN, WORST])].groupby("method")["verdict"].value_counts().to_dict()
    rows = []
    for method in own["method"].unique():
        cells = [_lift_cell(score, found.get((method, client)), most) for client in clients]
        counts = " / ".join(str(verdicts.get((method, kind), 0)) for kind in TITLES)
        rows.append((study.labels[method], [*cells, counts]))
    return _frame([*map(client_label, clients), " / ".join(TITLES)], rows)


def _lift_cell(score: Score, own: Mapping[Any, Any] | None, most: int) -> str:
    if own is None:
        return NOTHING
    p = own["p_holm"]
    told = "" if not math.isfinite(p) else "p < 0.001" if p < 0.001 else f"p {p:.3f}"
    fewer = f"n = {own['n']}" if own["n"] < most else ""
    beside = ", ".join(filter(None, [_interval(score, own, signed=True), told, fewer]))
    return f"{MARKS.get(own['verdict'], '')}{score.text(own['mean'], signed=True)} {beside}".rstrip()


def cluster_table(study: Study, collected: Collected) -> pd.DataFrame | None:
    """Return the clusters that methods found at the end of their runs; None if no method finds clusters."""
    if collected.clusters.empty:
        return None
    labels = {title_of(name, tuned): title_of(study.labels[name], tuned) for name, tuned in each_variant(study)}
    rows: _Rows = []
    for title, own in collected.clusters.groupby("method", sort=False):
        runs = own.groupby("seed").agg({"cluster": "nunique", "adjusted_rand": "first"})
        index, right = runs["adjusted_rand"].dropna(), NOTHING
        if len(index):
            right = f"{100 * (index > 1 - 1e-9).mean():.0f} %"
        told = f"{index.mean():.3f}" if len(index) else NOTHING
        rows.append((labels[str(title)], [str(len(runs)), f"{runs['cluster'].mean():.1f}", told, right]))
    return _frame(["runs", "clusters", "adjusted Rand index", "runs with index 1"], rows)
