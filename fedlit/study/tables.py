"""A study's tables, for Markdown, terminal and report alike: scores, what federation gained, what the words mean."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlit.show.text import text_table
from fedlit.study.lift import MEAN, WORST, Answer, count_verdicts
from fedlit.study.runs import each_variant, spoken
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, METRICS, Study

if TYPE_CHECKING:
    from fedlit.study.collect import Collected
    from fedlit.study.compare import Comparison

__all__ = [
    "Cell",
    "Table",
    "answer_words",
    "best_means",
    "chosen_table",
    "client_label",
    "cluster_table",
    "each_of",
    "lift_table",
    "markdown_tables",
    "paper_notes",
    "score_table",
    "seed_words",
    "tuned_lines",
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
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

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


def best_means(estimates: pd.DataFrame, metric: str) -> dict[str, float]:
    """Client → the largest mean, as it is printed."""
    own = estimates[(estimates["metric"] == metric) & ~estimates["method"].isin([BEST_ALONE, BEST_FEDERATED])]
    return {str(client): round(float(value), 4) for client, value in own.groupby("client")["mean"].max().items()}


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
    best = best_means(estimates, metric)
    most = estimates["n"].max()
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
            spread = spread if math.isfinite(own["mean"]) else "not finite"
            if not short:
                spread = f"{spread} {_interval(own)}".strip()
            paper = "" if short else _beside_paper(study, method, client, metric, own["mean"])
            spread += f" n = {own['n']}" if own["n"] < most else ""
            marked = method not in (BEST_ALONE, BEST_FEDERATED) and round(own["mean"], 4) == best.get(client)
            cells.append(Cell(_percent(own["mean"]), spread, paper, marked))
        if any(cell != Cell() for cell in cells):
            rows.append((label, cells))
    return Table([client_label(client) for client in clients], rows)


def _beside_paper(study: Study, method: str, client: str, metric: str, mean: float) -> str:
    if study.paper is None or (value := study.paper.value(method, client, metric)) is None:
        return ""
    difference = f" ({100 * mean - value:+.2f})" if math.isfinite(mean) else ""
    return f"paper {value:.2f}{difference}" + ("†" if method in study.paper.remarks else "")


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
    found, counts, most = _cells(own), count_verdicts(lift, metric, reference), own["n"].max()
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
            spread = ", ".join(part for part in (_interval(cell, signed=True), p, fewer) if part)
            clear = cell["verdict"] in ("helped", "harmed")
            cells.append(Cell(_percent(cell["mean"], signed=True), spread, marked=clear, kind=cell["verdict"]))
        count = counts.loc[method]
        unknown = f" ({count['unknown']} unknown)" if count["unknown"] else ""
        cells.append(Cell(f"{count['helped']} / {count['unchanged']} / {count['harmed']}{unknown}"))
        rows.append((study.labels[method], cells))
    return Table([*map(client_label, clients), "helped / unchanged / harmed"], rows)


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
        of_method = collected.clusters[collected.clusters["method"] == spoken(name, tuned)]
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
        rows.append((spoken(study.labels[name], tuned), [Cell(value) for value in values]))
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


def each_of(study: Study, method: str) -> str:
    """What the mean time of a run is of, where a method's training takes several per seed."""
    count = len(study.methods[method].combinations) if method in study.methods else 1
    return f" for each of {count} combinations" if count > 1 else ""


def answer_words(study: Study, answer: Answer) -> tuple[str, str]:
    """A client's answer as a title and a sentence."""
    title = {
        "helped": "Federation pays",
        "harmed": "Better alone",
        "unchanged": "No clear difference",
        "unknown": "Not known",
    }[answer.verdict]
    if answer.verdict == "unknown":
        title += f": {_why_unknown(answer)}"
    low, high = answer.lift.interval
    interval = f", interval {_percent(low, True)} to {_percent(high, True)}" if math.isfinite(low + high) else ""
    text = (
        f"{METRICS[study.choose]}: best federated{_mostly(study, answer.usual_federated)} "
        f"{_percent(answer.federated.mean)}, best go-alone{_mostly(study, answer.usual_alone)} "
        f"{_percent(answer.alone.mean)}; lift {_percent(answer.lift.mean, True)} points{interval}"
    )
    if answer.better_alone is not None:
        name, value = answer.better_alone
        text += f". Always {study.labels[name]}, alone, would have been {_percent(value)}"
    return title, text


def _mostly(study: Study, method: str | None) -> str:
    return "" if method is None else f" (mostly {study.labels[method]})"


def _why_unknown(answer: Answer) -> str:
    if answer.lift.n == 0:
        return "its validation rows allow no choice, or runs are missing"
    if answer.lift.n == 1:
        return "more than one seed is needed"
    if not math.isfinite(answer.lift.mean):
        return "predictions were not finite"
    return "all seeds gave the same lift"


def _interval_words(seeds: int, fixed: bool, bootstrap: bool) -> str:
    if seeds == 1:
        return "one seed says nothing about how much another would differ: there is none"
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


def words(found: Comparison) -> dict[str, str]:
    """Word → what it means in this study."""
    study, collected = found.study, found.collected
    metric = METRICS[study.choose]
    state = "after the last epoch" if study.checkpoint == "last" else "at the best checkpoint"
    dependent = "" if collected.fixed else ". Re-splits are not independent: take it for too small"
    meaning = {
        "mean ± sd": "mean and standard deviation over seeds, in %; the best mean of a client is marked",
        "interval": _interval_words(len(found.seeds), collected.fixed, bool(collected.bootstrap)),
        study.labels[study.reference]: "each client's network trained on its own rows, without exchange",
    }
    if tuned := [name for name, method in study.methods.items() if method.tune]:
        meaning["tuned"] = (
            f"{', '.join(study.labels[name] for name in tuned)}: trained with every combination of settings; per seed, "
            f"a client's results are those of the one that has the largest {metric} on its validation rows"
        )
        if set(tuned) & set(study.federated):
            meaning["tuned"] += (
                ". Each combination is a federation of its own: clients that chose different settings chose different "
                "federations"
            )
    if BEST_ALONE in study.labels:
        candidates = ", ".join(study.labels[name] for name in study.alone)
        meaning["best go-alone"] = (
            f"per seed and client the one of {candidates} that has the largest {metric} on validation rows: what a "
            "client can have without asking anyone. Where validation rows are few, it can be worse than always taking "
            "one"
        )
    if BEST_FEDERATED in study.labels:
        candidates = ", ".join(study.labels[name] for name in study.candidates)
        meaning["best federated"] = f"chosen in the same way, of {candidates}"
    if len(collected.clusters):
        meaning["who belongs together"] = (
            "the clusters that most of a run's last 5 rounds had, of equals the latest. Adjusted Rand index against "
            "the planted concepts: 1 for the same groups, about 0 for what chance gives; where all clients have the "
            "same concept it is 1 if they stayed in one cluster, else 0; – where no concept is known. MB: million "
            "bytes that all clients together sent and received in a round"
        )
    return {
        **meaning,
        "lift": "a method's score minus another's, seed by seed, in percentage points",
        "helped, harmed": "the interval of the lift excludes zero. Harmed in comparison with the same network trained "
        "alone is negative transfer: the others' influence does damage. Harmed in comparison with the best go-alone "
        "model: this client does better by staying out. Each interval stands for itself: where nothing differs, about "
        "one in twenty still excludes zero",
        "unchanged": "the interval holds zero: this study cannot tell the lift from none, which is not proof of none",
        "p": "Wilcoxon's signed-rank test over seeds after Holm's correction for the number of methods and clients, "
        "for 8 seeds or more. It asks whether training again gives the same sign, not whether other rows would"
        f"{dependent}",
        "mean over clients, worst client": "of each seed, then averaged; the worst may be another client in another "
        "seed",
        "n": "the number of seeds, where it is smaller than elsewhere: runs failed, or the score is undefined",
        "not finite": "a run lost its numbers on the way (it diverged): it has no score, and so the mean has none",
        "validation, test": f"settings, checkpoints and the best of each kind are chosen by {metric} on a run's "
        f"validation rows; its test rows are scored once, {state}"
        + ("" if collected.fixed else ". Validation rows of one seed are test rows of others"),
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
        parts.append("## How often each model was the best of its kind on validation")
        parts.append(chosen_table(study, collected.chosen).markdown())
    if tuned := tuned_lines(study, collected):
        parts.append("## How often each setting was a client's best on validation")
        parts.append("\n".join(f"- {line}" for line in tuned))
    if (together := cluster_table(study, collected)) is not None:
        parts += ["## Who belongs together", together.markdown()]
    parts += ["## What the words mean", "\n".join(f"- *{word}*: {text}." for word, text in words(found).items())]
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
