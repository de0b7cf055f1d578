"""A study's tables, for Markdown, terminal and report alike: scores, what federation gained, what the words mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedlit.plan import text_table
from fedlit.study.lift import MEAN, WORST, Answer, count_verdicts
from fedlit.study.study import BEST_ALONE, METRICS, Study

if TYPE_CHECKING:
    from fedlit.study.compare import Comparison

__all__ = [
    "Cell",
    "Table",
    "answer_words",
    "best_methods",
    "chosen_table",
    "client_label",
    "lift_table",
    "markdown_tables",
    "paper_notes",
    "score_table",
    "seed_words",
    "words",
]

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        value: what one looks for.
        spread: standard deviation, interval.
        paper: the published figure and the difference.
        marked: the best of its column, or a lift whose interval excludes zero.
        kind: a verdict, for its colour.
    """

    value: str = NOTHING
    spread: str = ""
    paper: str = ""
    marked: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """Rows with a label each.

    Attributes:
        head: what stands above the cells.
        rows: (label, cells).
    """

    head: list[str]
    rows: list[tuple[str, list[Cell]]]

    def markdown(self) -> str:
        """With the marked values in bold."""
        lines = [["", *self.head], ["---"] * (len(self.head) + 1)]
        for label, cells in self.rows:
            lines.append(
                [label, *(_joined(cell, bold="**") + (f"<br>{cell.paper}" if cell.paper else "") for cell in cells)]
            )
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def __str__(self) -> str:
        """For a terminal; the marked values have a star."""
        body = [
            [label, *(_joined(cell) + ("*" if cell.marked else "") for cell in cells)] for label, cells in self.rows
        ]
        return text_table(["", *self.head], body)


def _joined(cell: Cell, bold: str = "") -> str:
    value = f"{bold}{cell.value}{bold}" if cell.marked else cell.value
    return f"{value} {cell.spread}".strip()


def _percent(value: float, signed: bool = False) -> str:
    return NOTHING if not math.isfinite(value) else f"{100 * value + 0.0:{'+' if signed else ''}.2f}"


def _interval(own: Mapping[str, Any], signed: bool = False) -> str:
    low, high = own["low"], own["high"]
    return f"({_percent(low, signed)} to {_percent(high, signed)})" if math.isfinite(low + high) else ""


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p {value:.3f}"


def client_label(name: str) -> str:
    """How a client, or the mean over them, is called."""
    return {MEAN: "mean over clients", WORST: "worst client"}.get(name, name)


def _cells(frame: pd.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """(method, client) → its row."""
    records: list[dict[str, Any]] = [
        {str(key): value for key, value in own.items()} for own in frame.to_dict("records")
    ]
    return {(own["method"], own["client"]): own for own in records}


def best_methods(estimates: pd.DataFrame, metric: str) -> dict[str, str]:
    """Client → the method of the largest mean, without the best go-alone model, which repeats one of the others."""
    best: dict[str, tuple[float, str]] = {}
    for (method, client), own in _cells(estimates[estimates["metric"] == metric]).items():
        if method != BEST_ALONE and own["mean"] > best.get(client, (-math.inf, ""))[0]:
            best[client] = own["mean"], method
    return {client: method for client, (_, method) in best.items()}


def score_table(
    study: Study, estimates: pd.DataFrame, metric: str, clients: Sequence[str], *, short: bool = False
) -> Table:
    """Methods by clients: mean ± sd over seeds (95 % interval), the best of a client marked, and the paper's number
    with ours minus the paper's.

    Args:
        study: whose labels and paper.
        estimates: as :func:`fedlit.study.lift.estimates` gives them.
        metric: of the table.
        clients: the columns.
        short: mean ± sd only.
    """
    best = best_methods(estimates, metric)
    found = _cells(estimates[estimates["metric"] == metric])
    rows = []
    for method, label in study.labels.items():
        cells = []
        for client in clients:
            own = found.get((method, client))
            if own is None:
                cells.append(Cell())
                continue
            spread = f"± {_percent(own['sd'])}" if math.isfinite(own["sd"]) else ""
            if not short:
                spread = f"{spread} {_interval(own)}".strip()
            paper = "" if short else _beside_paper(study, method, client, metric, own["mean"])
            cells.append(Cell(_percent(own["mean"]), spread, paper, best.get(client) == method))
        if any(cell.value != NOTHING for cell in cells):
            rows.append((label, cells))
    return Table([client_label(client) for client in clients], rows)


def _beside_paper(study: Study, method: str, client: str, metric: str, mean: float) -> str:
    if study.paper is None or (value := study.paper.value(method, client, metric)) is None:
        return ""
    return f"paper {value:.2f} ({100 * mean - value:+.2f})" + ("†" if method in study.paper.remarks else "")


def paper_notes(study: Study) -> list[str]:
    """Where the paper's figures are from, and in what their convention differs from ours: all, then those marked †."""
    if study.paper is None:
        return []
    remarks = study.paper.remarks
    source = f"Paper: {study.paper.source}. In brackets: ours minus the paper's."
    own = [f"† {label}: {remarks[method]}" for method, label in study.labels.items() if method in remarks]
    return [source, *([remarks["all"]] if "all" in remarks else []), *own]


def lift_table(study: Study, lift: pd.DataFrame, metric: str, reference: str, clients: Sequence[str]) -> Table:
    """Federated methods by clients: lift over the reference in percentage points (95 % interval), p; how many clients
    it helped, left unchanged, harmed.
    """
    own = lift[(lift["metric"] == metric) & (lift["reference"] == reference)]
    found, counts = _cells(own), count_verdicts(lift, metric, reference)
    rows = []
    for method in own["method"].unique():
        cells = []
        for client in clients:
            cell = found.get((method, client))
            if cell is None:
                cells.append(Cell())
                continue
            p = _p(cell["p_holm"]) if math.isfinite(cell["p_holm"]) else ""
            spread = ", ".join(part for part in (_interval(cell, signed=True), p) if part)
            clear = cell["verdict"] in ("helped", "harmed")
            cells.append(Cell(_percent(cell["mean"], signed=True), spread, marked=clear, kind=cell["verdict"]))
        count = counts.loc[method]
        unknown = f" ({count['unknown']} unknown)" if count["unknown"] else ""
        cells.append(Cell(f"{count['helped']} / {count['unchanged']} / {count['harmed']}{unknown}"))
        rows.append((study.labels[method], cells))
    return Table([*map(client_label, clients), "helped / unchanged / harmed"], rows)


def chosen_table(study: Study, chosen: pd.DataFrame) -> Table:
    """How often each go-alone model was a client's best on validation."""
    counts = chosen.groupby("client")["method"].value_counts().unstack(fill_value=0)
    rows = [
        (study.labels[method], [Cell(str(counts.loc[client].get(method, 0))) for client in counts.index])
        for method in study.alone
    ]
    return Table([str(client) for client in counts.index], rows)


def answer_words(study: Study, answer: Answer) -> tuple[str, str]:
    """A client's answer as a title and a sentence."""
    title = {
        "helped": "Federation pays",
        "harmed": "Better alone",
        "unchanged": "No clear difference",
        "unknown": "Not known: more than one seed is needed",
    }[answer.verdict]
    low, high = answer.lift.interval
    interval = f", interval {_percent(low, True)} to {_percent(high, True)}" if math.isfinite(low + high) else ""
    alone = study.labels[answer.alone] + (
        f" (mostly {study.labels[answer.usual]})" if answer.alone == BEST_ALONE else ""
    )
    return title, (
        f"{study.labels[answer.method]} {_percent(answer.score.mean)}, {alone} {_percent(answer.alone_score.mean)}: "
        f"lift {_percent(answer.lift.mean, True)} points{interval}"
    )


def _interval_words(fixed: bool, bootstrap: bool) -> str:
    if not fixed:
        return (
            "each seed draws its own test rows from the same table. Such re-splits share rows and are not independent, "
            "so the 95 % interval is the corrected resampled t interval of Nadeau and Bengio (2003): the variance over "
            "seeds times (1/n + test rows / training rows). It speaks of tables of this size from the same source"
        )
    if bootstrap:
        return (
            "all seeds have the same test rows and differ in training alone (initial values, order of rows). The 95 % "
            "interval adds two variances: training noise over seeds (Student's t) and the choice of test rows "
            "(bootstrap, paired between methods); lift.csv has both parts. It does not speak of other training rows"
        )
    return (
        "all seeds have the same test rows and differ in training alone (initial values, order of rows): the 95 % "
        "interval (Student's t) is of training noise only. Other test rows, or other training rows, could change more"
    )


def words(study: Study, fixed: bool, bootstrap: bool) -> dict[str, str]:
    """Word → what it means in this study."""
    candidates = ", ".join(study.labels[name] for name in study.alone)
    state = "after the last epoch" if study.checkpoint == "last" else "at the best checkpoint"
    dependent = "" if fixed else ". Re-splits are not independent: take it for too small"
    meaning = {
        "mean ± sd": "mean and standard deviation over seeds, in %; the best mean of a client is marked",
        "interval": _interval_words(fixed, bootstrap),
        study.labels[study.reference]: "each client's network trained on its own rows, without exchange",
    }
    if study.baselines:
        meaning["best go-alone"] = (
            f"per seed and client the one of {candidates} that has the largest {METRICS[study.choose]} on validation "
            "rows: what a client can have without asking anyone"
        )
    return {
        **meaning,
        "lift": "a method's score minus the reference's, seed by seed, in percentage points",
        "helped, harmed": "the interval of the lift excludes zero. Harmed is negative transfer: this client does "
        "better by staying out",
        "unchanged": "the interval holds zero: this study cannot tell the lift from none, which is not proof of none",
        "p": "Wilcoxon's signed-rank test over seeds after Holm's correction for the number of methods and clients, "
        "for 8 seeds or more. It asks whether training again gives the same sign, not whether other rows would"
        f"{dependent}",
        "mean over clients, worst client": "of each seed, then averaged; the worst may be another client in another "
        "seed",
        "validation, test": "settings, checkpoints and the best go-alone model are chosen on validation rows; the test "
        f"rows are scored once per run, {state}",
    }


def markdown_tables(found: Comparison, footer: Sequence[str]) -> str:
    """All tables of a study as one text."""
    study, collected = found.study, found.collected
    parts = [f"# {study.name}", study.about]
    parts.append(f"Seeds {seed_words(found.seeds)} ({len(found.seeds)}). Scores in %, on test rows.")
    answers = "\n".join("- **{}**: {}: {}.".format(own.client, *answer_words(study, own)) for own in found.answers)
    parts += ["## Should this client join?", answers] if answers else []
    for metric in study.metrics:
        parts += [f"## {METRICS[metric]}", score_table(study, found.estimates, metric, found.clients).markdown()]
    parts.append("\n".join(f"- {note}" for note in paper_notes(study)))
    for metric in study.metrics:
        for reference in found.lift["reference"].unique():
            parts.append(f"## Lift over {study.labels[reference]}: {METRICS[metric]}, percentage points")
            parts.append(lift_table(study, found.lift, metric, reference, found.clients).markdown())
    if len(collected.chosen):
        parts.append("## How often each model was the best go-alone one on validation")
        parts.append(chosen_table(study, collected.chosen).markdown())
    meaning = words(study, collected.fixed, bool(collected.bootstrap))
    parts += ["## What the words mean", "\n".join(f"- *{word}*: {text}." for word, text in meaning.items())]
    parts += ["## How this was made", "\n".join(f"- {line}" for line in footer)]
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
