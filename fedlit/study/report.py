"""The report of a study, section by section. It is the same for terminal, Markdown and HTML page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from fedlit.show.canvas import canvas, svg_text
from fedlit.show.effects import plot_intervals
from fedlit.study.answer import summary
from fedlit.study.findings import MANY, Findings
from fedlit.study.lift import WORST, client_label
from fedlit.study.sections import Section
from fedlit.study.seeds import seed_words
from fedlit.study.study import BEST_ALONE, HINDSIGHT
from fedlit.study.tables import cluster_table, lift_table, score_table
from fedlit.study.units import choice_words, drawn, in_percent, in_unit, lift_unit
from fedlit.study.words import clients_table, glossary, paper_notes, provenance, times
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
    unit, count = in_percent(found.scores), len(found.seeds)
    told = f"{count} seed{'s' * (count > 1)} ({seed_words(found.seeds)}). Scores are {unit and f'{unit}, '}on test rows"
    clients = f"{len(found.collected.clients)} clients, {told}; choices are made on validation rows."
    yield Section("The study", [line for line in (found.study.about, clients) if line], table=clients_table(found))
    if found.failures:
        failed = [f"{name}: {error}" for name, error in found.failures.items()]
        yield Section(f"Failed, and missing here: {len(failed)} of the runs", items=failed)
    if found.notes:
        yield Section("Warnings", items=[f"{note}." for note in found.notes])


def _answers(found: Findings) -> Iterator[Section]:
    study = found.study
    if found.answers:
        alone = "the best that it can do alone" if BEST_ALONE in study.labels else study.labels[study.reference]
        about = (
            f"The best federated method of each client compared with {alone}, chosen for each seed on validation rows "
            f"by {choice_words(found.choices)}. Scores are those on test rows:"
        )
        told = f"**{summary(found.answers, few=len(found.answers) <= MANY)}.**"
        yield Section("Should this client join?", [told, about], answers=found.shown_answers)


def _pictures(found: Findings, score: Score) -> dict[str, str]:
    """Return the methods' values of a score with 95 % intervals for each client, and the lifts of the clients that
    choose by this score.
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
    return made


def _svg(rows: int, plot: Callable[..., Axes]) -> str:
    """Return a picture of intervals that is narrow enough for a phone."""
    with canvas(4.1, 0.42 * rows + 0.8) as figure:
        axes = plot(axes=figure.subplots())
        axes.set_yticks(axes.get_yticks(), [textwrap.fill(name.get_text(), 20) for name in axes.get_yticklabels()])
        axes.locator_params(axis="x", nbins=4)
        return svg_text(figure, axes.get_xlabel())


def _scores(found: Findings) -> Iterator[Section]:
    study = found.study
    for score in found.scores:
        main, clients = score is found.scores[0], found.clients_of(score)
        spread = ["(± standard deviation over seeds)"] if len(found.seeds) > 1 else []
        yield Section(
            in_unit(score),
            [*spread, *paper_notes(study)],
            table=score_table(study, found.estimates, score, clients),
            brief=score_table(study, found.estimates, score, clients, short=True) if main else None,
            draw=partial(_pictures, found, score) if main else None,
        )
        for reference in found.lift["reference"].unique():
            own = lift_table(study, found.lift, score, reference, clients)
            told = "(in brackets the 95 % interval; ▲ join, ▼ stay alone)"
            bar = ["Nobody can choose the best alone in hindsight, by mean test score, beforehand."]
            bar *= reference == HINDSIGHT
            title = f"Lift over {study.labels[reference]}: {score.label}, {lift_unit(score)}"
            yield Section(title, [told, *bar], table=own, brief=own if main else None, below=True)


def _together(found: Findings) -> Iterator[Section]:
    table = cluster_table(found.study, found.collected)
    if table is not None:
        about = "Clusters at the end of a run, against the planted concepts where known."
        yield Section("Who belongs together", [about], table=table, brief=table if len(table) <= MANY else None)


def _closing(found: Findings) -> Iterator[Section]:
    yield Section("Glossary", items=glossary())
    about = (
        "Means over runs. The time of a run is that of training, choosing and scoring, where it was not interrupted. "
        "An exchange costs what all clients together send and receive."
    )
    yield Section("How this was made", [about], provenance(found), times(found))


_PARTS = (_opening, _answers, _scores, _together, _closing)
