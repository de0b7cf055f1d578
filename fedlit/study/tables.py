"""A study's tables, for Markdown, terminal and report alike: scores, lifts, choices, clusters."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedlit.show.table import NOTHING, Cell, Table
from fedlit.statistics import ALONE, JOIN
from fedlit.study.collect import Collected
from fedlit.study.findings import Findings
from fedlit.study.job import each_variant, title_of
from fedlit.study.leave_one_out import OTHERS
from fedlit.study.lift import client_label, count_verdicts
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study
from fedlit.study.units import drawn, lift_unit, printed
from fedlit.tasks import Score

__all__ = ["chosen_table", "cluster_table", "joining_tables", "lift_table", "score_table", "tuned_lines"]


def _interval(score: Score, own: Mapping[str, Any], signed: bool = False) -> str:
    low, high = own["low"], own["high"]
    if not math.isfinite(low + high):
        return ""
    return f"({score.text(low, signed=signed)} to {score.text(high, signed=signed)})"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p {value:.3f}"


def _cells(frame: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """(method, client) → its row."""
    records: list[dict[str, Any]] = [
        {str(key): value for key, value in own.items()} for own in frame.to_dict("records")
    ]
    return {(own["method"], own["client"]): own for own in records}


def score_table(
    study: Study, estimates: pd.DataFrame, score: Score, clients: Sequence[str], *, short: bool = False
) -> Table:
    """Methods by clients: mean ± sd over seeds (95 % interval), and the paper's number with ours minus the paper's.

    Args:
        study: whose labels and paper.
        estimates: as :func:`fedlit.study.lift.estimates` gives them.
        score: of the table.
        clients: the columns.
        short: mean ± sd only.
    """
    most = estimates["n"].max()
    found = _cells(estimates[estimates["metric"] == score.name])
    rows = []
    for method, label in study.labels.items():
        cells = []
        for client in clients:
            own = found.get((method, client))
            if own is None:
                cells.append(Cell())
                continue
            spread = f"± {score.text(own['sd'])}" if math.isfinite(own["sd"]) else ""
            spread = spread if math.isfinite(own["mean"]) else "not finite"
            if not short:
                spread = f"{spread} {_interval(score, own)}".strip()
            paper = "" if short else _beside_paper(study, method, client, score, own["mean"])
            spread += f" n = {own['n']}" if own["n"] < most else ""
            cells.append(Cell(score.text(own["mean"]), spread, paper))
        if any(cell != Cell() for cell in cells):
            rows.append((label, cells))
    return Table([client_label(client) for client in clients], rows)


def _beside_paper(study: Study, method: str, client: str, score: Score, mean: float) -> str:
    if study.paper is None or (value := study.paper.value(method, client, score.name)) is None:
        return ""
    difference = f" ({printed(score, drawn(score, mean) - value, signed=True)})" if math.isfinite(mean) else ""
    return f"paper {printed(score, value)}{difference}" + ("†" if method in study.paper.remarks else "")


def lift_table(study: Study, lift: pd.DataFrame, score: Score, reference: str, clients: Sequence[str]) -> Table:
    """Federated methods by clients: lift over the reference (95 % interval), p; how many clients have which verdict."""
    own = lift[(lift["metric"] == score.name) & (lift["reference"] == reference)]
    found, counts, most = _cells(own), count_verdicts(lift, score.name, reference), own["n"].max()
    rows = []
    for method in own["method"].unique():
        cells = []
        for client in clients:
            cell = found.get((method, client))
            if cell is None:
                cells.append(Cell())
                continue
            p = _p(cell["p_holm"]) if math.isfinite(cell["p_holm"]) else ""
            fewer = f"n = {cell['n']}" if cell["n"] < most else ""
            spread = ", ".join(part for part in (_interval(score, cell, signed=True), p, fewer) if part)
            clear = cell["verdict"] in (JOIN, ALONE)
            cells.append(Cell(score.text(cell["mean"], signed=True), spread, marked=clear, kind=cell["verdict"]))
        cells.append(Cell(" / ".join(str(own) for own in counts.loc[method])))
        rows.append((study.labels[method], cells))
    return Table([*map(client_label, clients), " / ".join(counts.columns)], rows)


def joining_tables(found: Findings) -> list[tuple[str, Table]]:
    """Title and table for each score to choose by and each federated method, the best first: who joins by who feels it,
    the lift of the client itself and what the others gain, with 95 % intervals; none where nobody asked.
    """
    study, left_out, tables = found.study, found.left_out, []
    for score in found.choices if len(left_out) else ():
        clients = found.collected.clients_of(score.name)
        of_score = left_out[left_out["metric"] == score.name]
        for method in (BEST_FEDERATED, *(study.candidates if len(study.candidates) > 1 else ())):
            own, rows = of_score[of_score["method"] == method], []
            for client in own["joins"].unique():
                felt = {row["client"]: row for row in own[own["joins"] == client].to_dict("records")}
                order = [client, OTHERS, *("" if name == client else name for name in clients)]
                rows.append((f"{client} joins", [_gain(score, felt.get(name)) for name in order]))
            if rows:
                title = f"{study.labels[method]}: {score.label}, {lift_unit(score)}"
                tables.append((title, Table(["itself", "the others, mean", *clients], rows)))
    return tables


def _gain(score: Score, own: Mapping[Any, Any] | None) -> Cell:
    if own is None:
        return Cell()
    clear = own["verdict"] in (JOIN, ALONE)
    spread = _interval(score, {str(key): value for key, value in own.items()}, signed=True)
    return Cell(score.text(own["mean"], signed=True), spread, marked=clear, kind=own["verdict"])


def chosen_table(study: Study, chosen: pd.DataFrame) -> Table:
    """How often each model was a client's best of its kind on validation."""
    clients = sorted(chosen["client"].unique())
    rows = []
    for best, kind in ((BEST_ALONE, "alone"), (BEST_FEDERATED, "federated")):
        counts = chosen[chosen["best"] == best].groupby(["method", "client"]).size().to_dict()
        for method in study.alone if best == BEST_ALONE else study.candidates:
            cells = [Cell(str(counts.get((method, client), 0))) for client in clients]
            rows.append((f"{kind}: {study.labels[method]}", cells))
    return Table([str(client) for client in clients], rows)


def cluster_table(study: Study, collected: Collected) -> Table | None:
    """What methods that tell clients apart found at the end, and what exchanges cost, of all methods; None where no
    method tells clients apart.
    """
    if collected.clusters.empty:
        return None
    head = ["runs", "clusters", "adjusted Rand index", "runs with index 1", "s a round", "MB a round", "s a training"]
    rows = []
    for name, tuned in each_variant(study):
        # a column of records holds NaN where another run has a value
        own = [
            record
            for record in collected.records.to_dict("records")
            if record["method"] == name and (record["settings"] if tuned else {}) == tuned
        ]
        of_method = collected.clusters[collected.clusters["method"] == title_of(name, tuned)]
        runs = of_method.groupby("seed").agg({"cluster": "nunique", "adjusted_rand": "first"})
        index = runs["adjusted_rand"].dropna()
        exchanges = [record["exchange"] for record in own if isinstance(record.get("exchange"), dict)]
        exchanges = [exchange for exchange in exchanges if exchange["rounds"]]
        values = [
            str(len(own)),
            _mean(runs["cluster"], ".1f"),
            _mean(index, ".3f"),
            _mean(100.0 * (index > 1 - 1e-9), ".0f", " %"),
            _mean([exchange["seconds"] / exchange["rounds"] for exchange in exchanges], ".3g"),
            _mean([exchange["bytes"] / exchange["rounds"] / 1e6 for exchange in exchanges], ".3g"),
            _mean([record["seconds"] for record in own], ".1f"),
        ]
        rows.append((title_of(study.labels[name], tuned), [Cell(value) for value in values]))
    return Table(head, rows)


def _mean(values: Any, form: str, unit: str = "") -> str:
    known = np.asarray(list(values), float)
    known = known[np.isfinite(known)]
    return f"{known.mean():{form}}{unit}" if len(known) else NOTHING


def tuned_lines(study: Study, collected: Collected) -> list[str]:
    """Of each tuned method and key, for how many clients and seeds each value was the best on validation."""
    lines = []
    for name, method in study.methods.items():
        own = collected.tuned[(collected.tuned["method"] == name) & collected.tuned["client"].isin(collected.clients)]
        settings = [json.loads(text) for text in own["settings"]]
        if not settings:  # it is not tuned, or its runs failed
            continue
        last = [key.rpartition(".")[2] for key in method.tune]
        for key, short in zip(method.tune, last, strict=True):
            # by its value in JSON: 1 is not true
            counts = Counter(json.dumps(one[key]) for one in settings)
            values = ", ".join(
                f"{value if isinstance(value, str) else json.dumps(value)} {counts[json.dumps(value)]}x"
                for value in method.tune[key]
            )
            lines.append(f"{study.labels[name]}: {short if last.count(short) == 1 else key} {values}")
    return lines
