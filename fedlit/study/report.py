"""The report of a study, section by section, the same for terminal, Markdown and HTML page; and its
sentences.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedlit.exchange import named
from fedlit.show.canvas import canvas, svg_text
from fedlit.show.effects import plot_intervals
from fedlit.show.text import shorten
from fedlit.show.violins import plot_violins
from fedlit.study.collect import Collected
from fedlit.study.findings import MANY, Findings, summary
from fedlit.study.job import OUT_OF_FOLD
from fedlit.study.lift import WORST, client_label
from fedlit.study.sections import Section
from fedlit.study.study import BEST_ALONE, HINDSIGHT, Study, seed_words
from fedlit.study.tables import (
    choice_words,
    cluster_table,
    drawn,
    in_percent,
    in_unit,
    lift_table,
    lift_unit,
    score_table,
)
from fedlit.tasks import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def title_of_report(found: Findings) -> str:
    """Return the title of the report."""
    return f"{found.study.name}: what federation gains, for whom"


def sections(found: Findings) -> list[Section]:
    """Return all sections of a study's report, the answers first."""
    return [own for part in _PARTS for own in part(found)]


def _opening(found: Findings) -> Iterator[Section]:
    unit = in_percent(found.scores)
    count = len(found.seeds)
    told = (
        f"{count} seed{'s' * (count > 1)} ({seed_words(found.seeds)}). Scores are "
        f"{unit and f'{unit}, '}on test rows"
    )
    clients = (
        f"{len(found.collected.clients)} clients, {told}; choices are made on validation rows."
    )
    yield Section(
        "The study",
        [line for line in (found.study.about, clients) if line],
        table=clients_table(found),
    )
    if found.failures:
        failed = [f"{name}: {error}" for name, error in found.failures.items()]
        yield Section(f"Failed, and missing here: {len(failed)} of the runs", items=failed)
    if found.notes:
        yield Section("Warnings", items=[f"{note}." for note in found.notes])


def _answers(found: Findings) -> Iterator[Section]:
    study = found.study
    if found.answers:
        alone = (
            "the best that it can do alone"
            if BEST_ALONE in study.labels
            else study.labels[study.reference]
        )
        about = (
            f"The best federated method of each client compared with {alone}, chosen for each seed "
            f"on validation rows by {choice_words(found.choices)}. Scores are those on test rows:"
        )
        told = f"**{summary(found.answers, few=len(found.answers) <= MANY)}.**"
        yield Section("Should this client join?", [told, about], answers=found.shown_answers)


def _pictures(found: Findings, score: Score) -> dict[str, str]:
    """Return the methods' values of a score with 95 % intervals for each client, and the lifts of
    the clients that choose by this score.
    """
    made = {}
    for client in (name for name in found.clients_of(score) if name != WORST):
        own = found.estimates.query("metric == @score.name and client == @client")
        means, lows, highs = (drawn(score, own[end]) for end in ("mean", "low", "high"))
        names = own["method"].map(found.study.labels).tolist()
        plot = partial(plot_intervals, names, means, lows, highs, in_unit(score), zero=False)
        made[client_label(client)] = _svg(len(own), plot)
    if rows := sum(answer.score == score for answer in found.shown_answers):
        made["Lift of the best federated method"] = _svg(rows, partial(found.plot, score=score))
    return {**made, **_violins(found, score)}


def _violins(found: Findings, score: Score) -> dict[str, str]:
    """Return how a score is distributed over clients, by method; nothing for up to
    :data:`FEW_CLIENTS` clients.
    """
    clients = found.collected.clients_of(score.name)
    if len(clients) <= FEW_CLIENTS:
        return {}
    values = found.collected.values(score.name)
    distributions = {}
    for method, label in found.study.labels.items():
        own = values.reindex(columns=[(method, client) for client in clients])
        # a client may lack the score, a seed its predictions
        known = own.dropna(how="all", axis="columns").dropna()
        if known.size:
            distributions[label] = drawn(score, known.to_numpy(float))
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


def _scores(found: Findings) -> Iterator[Section]:
    study = found.study
    for score in found.scores:
        main = score is found.scores[0]
        clients = found.clients_of(score)
        spread = ["(± standard deviation over seeds)"] if len(found.seeds) > 1 else []
        yield Section(
            in_unit(score),
            [*spread, *paper_notes(study)],
            table=score_table(study, found.estimates, score, clients),
            brief=score_table(study, found.estimates, score, clients, short=True) if main else None,
            draw=partial(_pictures if main else _violins, found, score),
        )
        for reference in found.lift["reference"].unique():
            own = lift_table(study, found.lift, score, reference, clients)
            told = "(in brackets the 95 % interval; ▲ join, ▼ stay alone)"
            bar = ["Nobody can choose the best alone in hindsight, by mean test score, beforehand."]
            bar *= reference == HINDSIGHT
            title = f"Lift over {study.labels[reference]}: {score.label}, {lift_unit(score)}"
            yield Section(title, [told, *bar], table=own, below=True)


def _together(found: Findings) -> Iterator[Section]:
    table = cluster_table(found.study, found.collected)
    if table is not None:
        about = "Clusters at the end of a run, against the planted concepts where known."
        yield Section(
            "Who belongs together",
            [about],
            table=table,
            brief=table if len(table) <= MANY else None,
        )


def _closing(found: Findings) -> Iterator[Section]:
    yield Section("Glossary", items=glossary())
    about = (
        "Means over runs. The time of a run is that of training, choosing and scoring, where it "
        "was not interrupted. An exchange costs what all clients together send and receive."
    )
    yield Section("How this was made", [about], provenance(found), times(found))


def _beside(found: Findings) -> Iterator[Section]:
    for own in found.supplements:
        yield Section(
            own.title, own.lines, table=own.shown(found.extremes, found.study.labels), folded=True
        )


_PARTS = (_opening, _answers, _scores, _beside, _together, _closing)


_MOST_NAMED = 6  # methods in one line
FEW_CLIENTS = 10
"""Clients up to which the report draws no distribution over clients."""


def clients_table(found: Findings) -> pd.DataFrame:
    """Return what is predicted, and each client's numbers of rows (with the first seed), which a
    reader must know before any score.
    """
    records = found.collected.records.to_dict("records")
    own = next((record for record in records if record["method"] == found.study.reference), {})
    splits = own.get("rows")
    trained = own.get("train_rows")
    rows = []
    for client in found.extremes:
        counts = ["–"] * 3
        if isinstance(splits, dict) and isinstance(trained, dict) and client in splits:
            tested = [
                splits[client].get(split, {"rows": 0})["rows"] for split in ("validation", "test")
            ]
            counts = [f"{count:,}" for count in (trained[client], *tested)]
        rows.append([found.predicted.get(client, "–"), *counts])
    return pd.DataFrame(
        rows, found.extremes, ["predicted", "training rows", "validation rows", "test rows"]
    )


def glossary() -> list[str]:
    """Return the terms of tables with their meanings, from the page ``docs/glossary.md``: a term in
    bold, and a text.

    Example:
        >>> next(line for line in glossary() if line.startswith("**lift**"))[:31]
        '**lift**: the score of a method'
    """
    here = Path(__file__)
    shipped = here.with_name("glossary.md")  # in a wheel
    page = shipped if shipped.is_file() else here.parents[2] / "docs" / "glossary.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- **")]


def _judged(found: Findings) -> list[str]:
    """Describe the rows by which models alone were chosen, if these were not only validation
    rows.
    """
    study = found.study
    results = found.collected.results
    if not (results["split"] == OUT_OF_FOLD).any():
        return []
    few = f"on training rows where a client has fewer than {study.small} validation rows"
    rows = f"on {study.folds} folds of training and validation rows" if study.folds else few
    told = f"Local baselines were chosen by out-of-fold predictions {rows}"
    return [f"{told}; the best of them is compared with networks trained alone on validation rows"]


def guard_notes(study: Study, collected: Collected) -> list[str]:
    """Return notes on the clients that were left out of exchanges, or watched, by method, over all
    seeds.
    """
    notes = []
    for method, records in collected.records.groupby("method", sort=False):
        found: dict[str, Counter[str]] = {}
        for own in records.to_dict("records"):
            for client, counts in (
                own["guarded"] if isinstance(own.get("guarded"), dict) else {}
            ).items():
                found.setdefault(client, Counter()).update(counts)
        notes += [f"{study.labels[str(method)]}: {line}" for line in named.words(found)]
    return notes


def one_class_notes(study: Study, collected: Collected) -> list[str]:
    """Return notes on models that predict one class for all test rows of a client, because their
    scores mean little.
    """
    runs = collected.records["method"].value_counts()
    found = dict[str, Counter[str]]()
    for own in collected.records.to_dict("records"):
        for client in own["one_class"]:
            found.setdefault(client, Counter())[own["method"]] += 1
    return [
        f"{client}: all test rows are predicted as one class by "
        + shorten(
            [
                f"{study.labels[own]} ({count} of {runs[own]} runs)"
                for own, count in times.most_common()
            ],
            _MOST_NAMED,
        )
        + ": at the threshold, these models do not distinguish rows"
        for client, times in sorted(found.items())
    ]


def paper_notes(study: Study) -> list[str]:
    """Return the source of the paper's figures, and how their convention differs from ours: first
    for all methods, then for those marked †.
    """
    if study.paper is None:
        return []
    remarks = study.paper.remarks
    source = ": ".join(filter(None, [study.paper.source, ", ".join(study.paper.items)]))
    difference = " In brackets: ours minus the paper's." if study.paper.values else ""
    source = f"Paper: {source}.{difference}"
    own = [
        f"† {label}: {remarks[method]}"
        for method, label in study.labels.items()
        if method in remarks
    ]
    return [source, *([remarks["all"]] if "all" in remarks else []), *own]


def provenance(found: Findings) -> list[str]:
    """Return when and with what versions on which machines the study was run, one line each."""
    records = found.collected.records
    lacking = found.collected.lacking
    versions = [
        ", ".join(f"{name} {number}" for name, number in own.items()) for own in records["versions"]
    ]
    machines = [
        ", ".join([own["processor"], f"{own['cores']} cores", *own["gpus"]])
        for own in records["machine"]
    ]
    first = min(records["finished"])[:10]
    last = max(records["finished"])[:10]
    done = len(records) + lacking
    lines = [f"{done} of {done + len(found.failures)} runs, finished {first} to {last}"]
    lines += (
        [f"{lacking} of these were federations without one of their clients (leave_one_out)"]
        if lacking
        else []
    )
    lines += _judged(found)
    lines += [f"Versions: {own}" for own in dict.fromkeys(versions)]
    lines += [f"Machine: {own}" for own in dict.fromkeys(machines)]
    if "without" in records:
        without = records.dropna(subset="without").groupby("method", sort=False)["without"].first()
        lines += [
            f"{found.study.labels[str(name)]}: does not fit the task of {', '.join(own)}"
            for name, own in without.items()
        ]
    return lines


def times(found: Findings) -> pd.DataFrame:
    """Return, for each method, its number of runs, their mean time, and the cost of an exchange."""
    records = found.collected.records
    told = records.reindex(columns=["exchange"])["exchange"]
    costs = pd.DataFrame([own if isinstance(own, dict) else {} for own in told], records.index)
    costs = costs.reindex(columns=["rounds", "seconds", "bytes"]).astype(float)  # of no round NaN
    each = pd.DataFrame({
        "method": records["method"],
        "s a run": records["seconds"].astype(float),
        "s an exchange": costs["seconds"] / costs["rounds"],
        "MB an exchange": costs["bytes"] / costs["rounds"] / 1e6,
    })  # fmt: skip
    means = (
        each.groupby("method")
        .mean()
        .map(lambda value: f"{value:.3g}" if math.isfinite(value) else "–")
    )
    means.insert(0, "runs", each["method"].value_counts().map(str))
    return means.reindex([method for method in found.study.labels if method in means.index]).rename(
        found.study.labels
    )
