"""A study's tables in Markdown: scores by method and client, what federation gained, and what the words mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fedlit.study.lift import MEAN, WORST, count_verdicts
from fedlit.study.study import BEST_ALONE, METRICS, Study

__all__ = ["best_methods", "interval_words", "lift_table", "markdown_tables", "paper_notes", "score_table", "words"]


def _percent(value: float, signed: bool = False) -> str:
    return "–" if not math.isfinite(value) else f"{100 * value:{'+' if signed else ''}.2f}"


def _interval(low: float, high: float, signed: bool = False) -> str:
    return f"({_percent(low, signed)} to {_percent(high, signed)})" if math.isfinite(low + high) else "(–)"


def best_methods(estimates: pd.DataFrame, metric: str) -> dict[str, str]:
    """Client → the method of the largest mean; the best go-alone model, which repeats one of the others, is left out."""
    own = estimates[(estimates["metric"] == metric) & (estimates["method"] != BEST_ALONE)]
    return {
        str(client): str(rows.loc[rows["mean"].idxmax(), "method"])
        for client, rows in own.groupby("client")
        if rows["mean"].notna().any()
    }


def score_table(
    study: Study, estimates: pd.DataFrame, metric: str, clients: Sequence[str], *, short: bool = False
) -> str:
    """Methods by clients: mean ± sd over seeds (95 % interval); the best of a client in bold; the paper's number and
    ours minus the paper's.

    Args:
        study: whose labels and paper.
        estimates: as :func:`fedlit.study.lift.estimates` gives them.
        metric: of the table.
        clients: the columns.
        short: mean ± sd only.
    """
    best = best_methods(estimates, metric)
    cells = estimates[estimates["metric"] == metric].set_index(["method", "client"])
    rows = []
    for method, label in study.labels.items():
        row = []
        for client in clients:
            if (method, client) not in cells.index:
                row.append("–")
                continue
            own = cells.loc[(method, client)]
            mean = _percent(own["mean"])
            mean = f"**{mean}**" if best.get(client) == method else mean
            text = mean + (f" ± {_percent(own['sd'])}" if math.isfinite(own["sd"]) else "")
            if not short:
                text += f" {_interval(own['low'], own['high'])}"
                text += _beside_paper(study, method, client, metric, own["mean"])
            row.append(text)
        if set(row) != {"–"}:
            rows.append([label, *row])
    return _table(["", *map(_client, clients)], rows)


def _beside_paper(study: Study, method: str, client: str, metric: str, mean: float) -> str:
    value = study.paper.value(method, client, metric) if study.paper is not None else None
    if study.paper is None or value is None:
        return ""
    return f"<br>paper {value:.2f} ({100 * mean - value:+.2f})" + ("*" if method in study.paper.remarks else "")


def paper_notes(study: Study, methods: Sequence[str]) -> list[str]:
    """In what the paper's figures differ from ours: of all methods, then of those marked *."""
    remarks = study.paper.remarks if study.paper is not None else {}
    own = [f"\\* {study.labels[method]}: {remarks[method]}" for method in methods if method in remarks]
    return [*([remarks["all"]] if "all" in remarks else []), *own]


def lift_table(study: Study, lift: pd.DataFrame, metric: str, reference: str, clients: Sequence[str]) -> str:
    """Federated methods by clients: lift over the reference in percentage points (95 % interval), verdict."""
    own = lift[(lift["metric"] == metric) & (lift["reference"] == reference)].set_index(["method", "client"])
    counts = count_verdicts(lift, metric, reference)
    rows = []
    for method in own.index.get_level_values("method").unique():
        row = []
        for client in clients:
            if (method, client) not in own.index:
                row.append("–")
                continue
            cell = own.loc[(method, client)]
            p = f", p {_p(cell['p_holm'])}" if math.isfinite(cell["p_holm"]) else ""
            shown = _percent(cell["mean"], signed=True)
            shown = f"**{shown}**" if cell["verdict"] in ("helped", "harmed") else shown
            row.append(f"{shown} {_interval(cell['low'], cell['high'], signed=True)}{p}")
        count = counts.loc[method]
        unknown = f" / {count['unknown']} unknown" if count["unknown"] else ""
        row.append(f"{count['helped']} / {count['unchanged']} / {count['harmed']}{unknown}")
        rows.append([study.labels[method], *row])
    return _table(["", *map(_client, clients), "helped / unchanged / harmed"], rows)


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _client(name: str) -> str:
    return {MEAN: "mean over clients", WORST: "worst client"}.get(name, name)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval_words(fixed: bool, bootstrap: bool) -> str:
    """What the intervals are of."""
    if not fixed:
        return (
            "Each seed draws its own test rows from the same table. Such re-splits share rows and are not independent, "
            "so the 95 % interval is the corrected resampled t interval of Nadeau and Bengio (2003): the variance over "
            "seeds times 1/n + test rows / training rows. It speaks of tables of this size from the same source. "
            "Wilcoxon's test knows no such correction: take its p for too small."
        )
    if bootstrap:
        return (
            "All seeds have the same test rows and differ in training alone (initial values, order of rows). The 95 % "
            "interval adds two variances: training noise over seeds (Student's t) and the choice of test rows "
            "(bootstrap, paired between methods). lift.csv has both parts. It does not speak of other training rows."
        )
    return (
        "All seeds have the same test rows and differ in training alone (initial values, order of rows): the 95 % "
        "interval (Student's t) is of training noise only. Other test rows, or other training rows, could change more."
    )


def words(study: Study, fixed: bool, bootstrap: bool) -> dict[str, str]:
    """Word → what it means in this study."""
    candidates = ", ".join(study.labels[name] for name in study.alone)
    metric = METRICS[study.choose]
    return {
        "mean ± sd": "mean and standard deviation over seeds, in %",
        "interval": interval_words(fixed, bootstrap),
        study.labels[study.reference]: "each client's network trained on its own rows, without exchange",
        "best go-alone": f"per seed and client the one of {candidates} that has the largest {metric} on validation rows: "
        "what a client can have without asking anyone",
        "lift": "a method's score minus the reference's, seed by seed, in percentage points",
        "helped, harmed": "the interval of the lift excludes zero. Harmed is negative transfer: this client does better "
        "by staying out",
        "unchanged": "the interval holds zero: this study cannot tell the lift from none. That is not proof of none",
        "p": "Wilcoxon's signed-rank test over seeds, after Holm's correction for the number of methods and clients; given for 8 "
        "seeds or more. It asks whether training again gives the same sign, not whether other rows would",
        "mean over clients, worst client": "of each seed, then averaged; the worst client may differ from seed to seed",
        "validation, test": "settings, checkpoints and the best go-alone model are chosen on validation rows; each run's test "
        f"rows are scored once, {'after the last epoch' if study.checkpoint == 'last' else 'at the best checkpoint'}",
    }


def markdown_tables(
    study: Study,
    estimates: pd.DataFrame,
    lift: pd.DataFrame,
    clients: Sequence[str],
    *,
    seeds: Sequence[int],
    fixed: bool,
    bootstrap: bool,
    footer: Sequence[str],
) -> str:
    """All tables of a study as one Markdown text."""
    parts = [f"# {study.name}", study.about, f"{len(seeds)} seeds: {seed_words(seeds)}. Scores are in %, on test rows."]
    for metric in study.metrics:
        parts += [f"## {METRICS[metric]}", score_table(study, estimates, metric, clients)]
    if study.paper is not None:
        notes = "\n".join(f"- {note}" for note in paper_notes(study, list(study.labels)))
        parts.append(f"Paper: {study.paper.source}; behind it in brackets, ours minus the paper's. {notes and 'Note:'}")
        parts.append(notes)
    for metric in study.metrics:
        for reference in lift["reference"].unique():
            title = f"## Lift over {study.labels[reference]}: {METRICS[metric]}, percentage points"
            parts += [title, lift_table(study, lift, metric, reference, clients)]
    meaning = "\n".join(f"- *{word}*: {text}." for word, text in words(study, fixed, bootstrap).items())
    parts += ["## What the words mean", meaning, "## How this was made", "\n".join(f"- {line}" for line in footer)]
    return "\n\n".join(part for part in parts if part) + "\n"


def seed_words(seeds: Sequence[int]) -> str:
    """``8:17`` for a run of numbers, else the numbers.

    Example:
        >>> seed_words([8, 9, 10]), seed_words([1, 5])
        ('8:10', '1, 5')
    """
    own = sorted(seeds)
    if len(own) > 1 and own == list(range(own[0], own[-1] + 1)):
        return f"{own[0]}:{own[-1]}"
    return ", ".join(map(str, own))
