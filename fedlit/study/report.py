"""The report of a study, section by section, the same for terminal, Markdown and HTML page; and its
sentences.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedlit.answers.shown import summary
from fedlit.exchange import named
from fedlit.show.canvas import canvas, svg_text
from fedlit.show.effects import plot_intervals
from fedlit.show.text import shorten
from fedlit.show.violins import plot_violins
from fedlit.study.collect import Collected
from fedlit.study.findings import MANY, Findings
from fedlit.study.job import OUT_OF_FOLD
from fedlit.study.lift import WORST, client_label
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.sections import Section
from fedlit.study.seeds import seed_words
from fedlit.study.study import BEST_ALONE, HINDSIGHT
from fedlit.study.tables import cluster_table, lift_table, score_table
from fedlit.tasks import Score
from fedlit.tasks.units import choice_words, drawn, in_percent, in_unit, lift_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def title_of_report(findings: Findings) -> str:
    """Return the title of the report."""
    return f"{findings.study.name}: what federation gains, for whom"


def sections(findings: Findings) -> list[Section]:
    """Return all sections of a study's report, the answers first."""
    return list(itertools.chain.from_iterable(part(findings) for part in _PARTS))


def _opening(findings: Findings) -> Iterator[Section]:
    unit = in_percent(findings.scores)
    count = len(findings.seeds)
    plural = "s" if count > 1 else ""
    seeds = (
        f"{count} seed{plural} ({seed_words(findings.seeds)}). Scores are "
        f"{unit and f'{unit}, '}on test rows"
    )
    clients = (
        f"{len(findings.collected.clients)} clients, {seeds}; choices are made on validation rows."
    )
    yield Section(
        "The study",
        [line for line in (findings.study.about, clients) if line],
        table=clients_table(findings),
    )
    if findings.failures:
        failed = [f"{name}: {error}" for name, error in findings.failures.items()]
        yield Section(f"Failed, and missing here: {len(failed)} of the runs", items=failed)
    if findings.notes:
        yield Section("Warnings", items=[f"{note}." for note in findings.notes])


def _answers(findings: Findings) -> Iterator[Section]:
    study = findings.study
    if findings.answers:
        alone = study.labels[study.reference]
        if BEST_ALONE in study.labels:
            alone = "the best that it can do alone"
        about = (
            f"The best federated method of each client compared with {alone}, chosen for each seed "
            f"on validation rows by {choice_words(findings.choices)}. Scores are those on test rows:"
        )
        headline = f"**{summary(findings.answers, few=len(findings.answers) <= MANY)}.**"
        yield Section("Should this client join?", [headline, about], answers=findings.shown_answers)


def _pictures(findings: Findings, score: Score) -> dict[str, str]:
    """Return the methods' values of a score with 95 % intervals for each client, and the lifts of
    the clients that choose by this score.
    """
    pictures = {}
    for client in findings.clients_of(score):
        if client == WORST:
            continue
        estimates = findings.estimates.query("metric == @score.name and client == @client")
        means = drawn(score, estimates["mean"])
        lows = drawn(score, estimates["low"])
        highs = drawn(score, estimates["high"])
        names = estimates["method"].map(findings.study.labels).tolist()
        plot = partial(plot_intervals, names, means, lows, highs, in_unit(score), zero=False)
        pictures[client_label(client)] = _svg(len(estimates), plot)
    if rows := sum(answer.score == score for answer in findings.shown_answers):
        pictures["Lift of the best federated method"] = _svg(
            rows, partial(findings.plot, score=score)
        )
    return {**pictures, **_violins(findings, score)}


def _violins(findings: Findings, score: Score) -> dict[str, str]:
    """Return how a score is distributed over clients, by method; nothing for up to
    :data:`FEW_CLIENTS` clients.
    """
    clients = findings.collected.clients_of(score.name)
    if len(clients) <= FEW_CLIENTS:
        return {}
    values = findings.collected.values(score.name)
    distributions = {}
    for method, label in findings.study.labels.items():
        columns = values.reindex(columns=[(method, client) for client in clients])
        # A client may lack the score, and a seed its predictions.
        complete = columns.dropna(how="all", axis="columns").dropna()
        if complete.size:
            distributions[label] = drawn(score, complete.to_numpy(float))
    names = [*distributions]
    arrays = [*distributions.values()]
    plot = partial(plot_violins, names, arrays, in_unit(score))
    return {f"{score.label} of {len(clients)} clients": _svg(len(names), plot)} if names else {}


def _svg(rows: int, plot: Callable[..., Axes]) -> str:
    """Return a picture of intervals that is narrow enough for a phone."""
    with canvas(4.1, 0.42 * rows + 0.8) as figure:
        axes = plot(axes=figure.subplots())
        axes.set_yticks(
            axes.get_yticks(),
            [textwrap.fill(name.get_text(), 20) for name in axes.get_yticklabels()],
        )
        axes.locator_params(axis="x", nbins=4)
    return svg_text(figure, axes.get_xlabel())


def _scores(findings: Findings) -> Iterator[Section]:
    study = findings.study
    for score in findings.scores:
        main = score is findings.scores[0]
        clients = findings.clients_of(score)
        notes = paper_notes(study)
        if len(findings.seeds) > 1:
            notes = ["(± standard deviation over seeds)", *notes]
        table = score_table(study, findings.estimates, score, clients)
        brief = None
        pictures = _violins
        if main:
            brief = score_table(study, findings.estimates, score, clients, short=True)
            pictures = _pictures
        draw = partial(pictures, findings, score)
        yield Section(in_unit(score), notes, table=table, brief=brief, draw=draw)
        for reference in findings.lift["reference"].unique():
            lifts = lift_table(study, findings.lift, score, reference, clients)
            lines = ["(in brackets the 95 % interval; ▲ join, ▼ stay alone)"]
            if reference == HINDSIGHT:
                lines.append(
                    "Nobody can choose the best alone in hindsight, by mean test score, beforehand."
                )
            title = f"Lift over {study.labels[reference]}: {score.label}, {lift_unit(score)}"
            yield Section(title, lines, table=lifts, below=True)


def _together(findings: Findings) -> Iterator[Section]:
    table = cluster_table(findings.study, findings.collected)
    if table is not None:
        about = "Clusters at the end of a run, against the planted concepts where known."
        brief = table if len(table) <= MANY else None
        yield Section("Who belongs together", [about], table=table, brief=brief)


def _closing(findings: Findings) -> Iterator[Section]:
    yield Section("Glossary", items=glossary())
    about = (
        "Means over runs. The time of a run is that of training, choosing and scoring, where it "
        "was not interrupted. An exchange costs what all clients together send and receive."
    )
    yield Section("How this was made", [about], provenance(findings), times(findings))


def _beside(findings: Findings) -> Iterator[Section]:
    for supplement in findings.supplements:
        table = supplement.shown(findings.extremes, findings.study.labels)
        yield Section(supplement.title, supplement.lines, table=table, folded=True)


_PARTS = (_opening, _answers, _scores, _beside, _together, _closing)


_MOST_NAMED = 6  # methods in one line
FEW_CLIENTS = 10
"""Clients up to which the report draws no distribution over clients."""


def clients_table(findings: Findings) -> pd.DataFrame:
    """Return what is predicted, and each client's numbers of rows (with the first seed), which a
    reader must know before any score.
    """
    records = findings.collected.records.to_dict("records")
    reference_record = next(
        (record for record in records if record["method"] == findings.study.reference), {}
    )
    splits = reference_record.get("rows")
    trained = reference_record.get("train_rows")
    rows = []
    for client in findings.extremes:
        counts = ["–"] * 3
        if isinstance(splits, dict) and isinstance(trained, dict) and client in splits:
            tested = [
                splits[client].get(split, {"rows": 0})["rows"] for split in ("validation", "test")
            ]
            counts = [f"{count:,}" for count in (trained[client], *tested)]
        rows.append([findings.predicted.get(client, "–"), *counts])
    return pd.DataFrame(
        rows, findings.extremes, ["predicted", "training rows", "validation rows", "test rows"]
    )


def glossary() -> list[str]:
    """Return the terms of tables with their meanings, from the page ``docs/glossary.md``: a term in
    bold, and a text.

    Example:
        >>> next(line for line in glossary() if line.startswith("**lift**"))[:31]
        '**lift**: the score of a method'
    """
    module = Path(__file__)
    shipped = module.with_name("glossary.md")  # in a wheel
    page = shipped if shipped.is_file() else module.parents[2] / "docs" / "glossary.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- **")]


def _judged(findings: Findings) -> list[str]:
    """Describe the rows by which models alone were chosen, if these were not only validation
    rows.
    """
    study = findings.study
    results = findings.collected.results
    if not (results["split"] == OUT_OF_FOLD).any():
        return []
    few = f"on training rows where a client has fewer than {study.small} validation rows"
    rows = f"on {study.folds} folds of training and validation rows" if study.folds else few
    sentence = f"Local baselines were chosen by out-of-fold predictions {rows}"
    return [
        f"{sentence}; the best of them is compared with networks trained alone on validation rows"
    ]


def guard_notes(study: ResolvedStudy, collected: Collected) -> list[str]:
    """Return notes on the clients that were left out of exchanges, or watched, by method, over all
    seeds.
    """
    notes = []
    for method, records in collected.records.groupby("method", sort=False):
        totals: dict[str, Counter[str]] = {}
        for record in records.to_dict("records"):
            guarded = record.get("guarded")
            for client, counts in guarded.items() if isinstance(guarded, dict) else ():
                totals.setdefault(client, Counter()).update(counts)
        notes += [f"{study.labels[str(method)]}: {line}" for line in named.words(totals)]
    return notes


def one_class_notes(study: ResolvedStudy, collected: Collected) -> list[str]:
    """Return notes on models that predict one class for all test rows of a client, because their
    scores mean little.
    """
    runs = collected.records["method"].value_counts()
    occurrences = dict[str, Counter[str]]()
    for record in collected.records.to_dict("records"):
        for client in record["one_class"]:
            occurrences.setdefault(client, Counter())[record["method"]] += 1
    notes = []
    for client, counts in sorted(occurrences.items()):
        models = [
            f"{study.labels[method]} ({count} of {runs[method]} runs)"
            for method, count in counts.most_common()
        ]
        notes.append(
            f"{client}: all test rows are predicted as one class by {shorten(models, _MOST_NAMED)}: "
            "at the threshold, these models do not distinguish rows"
        )
    return notes


def paper_notes(study: ResolvedStudy) -> list[str]:
    """Return the source of the paper's figures, and how their convention differs from ours: first
    for all methods, then for those marked †.
    """
    if study.paper is None:
        return []
    remarks = study.paper.remarks
    source = ": ".join(filter(None, [study.paper.source, ", ".join(study.paper.items)]))
    difference = " In brackets: ours minus the paper's." if study.paper.values else ""
    source = f"Paper: {source}.{difference}"
    remarked = [
        f"† {label}: {remarks[method]}"
        for method, label in study.labels.items()
        if method in remarks
    ]
    if "all" in remarks:
        return [source, remarks["all"], *remarked]
    return [source, *remarked]


def provenance(findings: Findings) -> list[str]:
    """Return when and with what versions on which machines the study was run, one line each."""
    records = findings.collected.records
    lacking = findings.collected.lacking
    versions = list[str]()
    for packages in records["versions"]:
        versions.append(", ".join(f"{name} {number}" for name, number in packages.items()))
    machines = [
        ", ".join([machine["processor"], f"{machine['cores']} cores", *machine["gpus"]])
        for machine in records["machine"]
    ]
    first = min(records["finished"])[:10]
    last = max(records["finished"])[:10]
    done = len(records) + lacking
    lines = [f"{done} of {done + len(findings.failures)} runs, finished {first} to {last}"]
    if lacking:
        lines.append(
            f"{lacking} of these were federations without one of their clients (leave_one_out)"
        )
    lines += _judged(findings)
    lines += [f"Versions: {text}" for text in dict.fromkeys(versions)]
    lines += [f"Machine: {text}" for text in dict.fromkeys(machines)]
    if "without" in records:
        without = records.dropna(subset="without").groupby("method", sort=False)["without"].first()
        lines += [
            f"{findings.study.labels[str(name)]}: does not fit the task of {', '.join(clients)}"
            for name, clients in without.items()
        ]
    return lines


def times(findings: Findings) -> pd.DataFrame:
    """Return, for each method, its number of runs, their mean time, and the cost of an exchange."""
    records = findings.collected.records
    exchanges = records.reindex(columns=["exchange"])["exchange"]
    costs = pd.DataFrame(
        [exchange if isinstance(exchange, dict) else {} for exchange in exchanges], records.index
    )
    costs = costs.reindex(columns=["rounds", "seconds", "bytes"]).astype(float)  # of no round NaN
    runs = pd.DataFrame({
        "method": records["method"],
        "s a run": records["seconds"].astype(float),
        "s an exchange": costs["seconds"] / costs["rounds"],
        "MB an exchange": costs["bytes"] / costs["rounds"] / 1e6,
    })  # fmt: skip
    means = (
        runs.groupby("method")
        .mean()
        .map(lambda value: f"{value:.3g}" if math.isfinite(value) else "–")
    )
    means.insert(0, "runs", runs["method"].value_counts().map(str))
    return means.reindex(
        [method for method in findings.study.labels if method in means.index]
    ).rename(findings.study.labels)
