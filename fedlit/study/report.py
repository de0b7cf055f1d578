"""The report of a study, section by section. It is the same for terminal, Markdown and HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fedlit.study import figures
from fedlit.study.answer import summary
from fedlit.study.findings import MANY, Findings
from fedlit.study.lift import WORST, client_label
from fedlit.study.sections import Section
from fedlit.study.seeds import seed_words
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT
from fedlit.study.tables import chosen_table, cluster_table, joining_table, lift_table, score_table
from fedlit.study.units import choice_words, in_percent, in_unit, lift_unit
from fedlit.study.words import clients_table, glossary, paper_notes, provenance, times
from fedlit.tasks import Score

__all__ = ["sections", "title_of_report"]


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
        shown = [answer for answer in found.answers if answer.client in found.extremes]
        yield Section("Should this client join?", [told, about], answers=shown)
    for score in found.choices if len(found.left_out) else ():
        about = (
            "Itself: the lift over going alone, as above. The others: their score in the federation with this client "
            "minus their score in the same federation without it, seed by seed; the mean is over those that have it."
        )
        title = f"Who should join, for the others: {score.label}, {lift_unit(score)}"
        yield Section(title, [about], table=joining_table(found, score))


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
            draw=partial(_score_figures, found, score) if main else None,
        )
        for reference in found.lift["reference"].unique():
            own = lift_table(study, found.lift, score, reference, clients)
            told = "(in brackets the 95 % interval; ▲ join, ▼ stay alone)"
            bar = ["Nobody can choose the best alone in hindsight, by mean test score, beforehand."]
            bar *= reference == HINDSIGHT
            title = f"Lift over {study.labels[reference]}: {score.label}, {lift_unit(score)}"
            yield Section(title, [told, *bar], table=own, brief=own if main else None, below=True)
        if main and BEST_FEDERATED in study.labels:
            about = "Over the best that a client can do alone, with the 95 % interval."
            draw = partial(_lift_figures, found, score)
            yield Section("What the best federated method gains", [about], draw=draw, below=True)


def _score_figures(found: Findings, score: Score) -> dict[str, str]:
    return {
        client_label(client): figures.scores_figure(found.study, found.estimates, score, client)
        for client in found.clients_of(score)
        if client != WORST
    }


def _lift_figures(found: Findings, score: Score) -> dict[str, str]:
    label = found.study.labels[BEST_FEDERATED]
    return {label: figures.lift_figure(found.study, found.lift, score, found.clients_of(score))}


def _choices(found: Findings) -> Iterator[Section]:
    study, collected, by = found.study, found.collected, choice_words(found.choices)
    if len(collected.chosen):
        table = chosen_table(study, collected.chosen, found.extremes)
        about = [f"Number of seeds, by {by} on validation rows."]
        yield Section("How often each model was the best of its kind", about, table=table)


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


_PARTS = (_opening, _answers, _scores, _choices, _together, _closing)
