"""All tables of a study as one text."""

from __future__ import annotations

from collections.abc import Sequence

from fedlit.study.answer import answer_cards, answer_lines, shown, summary
from fedlit.study.findings import Findings
from fedlit.study.seeds import seed_words
from fedlit.study.tables import chosen_table, cluster_table, joining_tables, lift_table, score_table, tuned_lines
from fedlit.study.units import heading, in_percent, lift_unit
from fedlit.study.words import about_joining, context, glossary, paper_notes

__all__ = ["markdown_tables"]


def markdown_tables(found: Findings, footer: Sequence[str]) -> str:
    """All tables of a study as one text."""
    study, collected = found.study, found.collected
    parts = [f"# {study.name}", study.about]
    unit = in_percent(found.scores)
    parts.append(f"Seeds {seed_words(found.seeds)} ({len(found.seeds)}). Scores {unit and f'{unit}, '}on test rows.")
    cards = answer_cards(found)
    answers = "\n".join("- **{}**: {}. {}.".format(card.client, *answer_lines(card)) for card in shown(found, cards))
    parts += [f"{line}." for line in context(found)]
    parts.append("\n".join(f"- Note: {note}." for note in found.notes))
    parts += ["## Should this client join?", f"{summary(cards)}.", answers] if answers else []
    for score in found.scores:
        parts += [f"## {heading(score)}", score_table(study, found.estimates, score, found.clients).markdown()]
    parts.append("\n".join(f"- {note}" for note in paper_notes(study)))
    for score in found.scores:
        for reference in found.lift["reference"].unique():
            parts.append(f"## Lift over {study.labels[reference]}: {score.label}, {lift_unit(score)}")
            parts.append(lift_table(study, found.lift, score, reference, found.clients).markdown())
    if joins := joining_tables(found):
        parts += ["## Who should join, for the others", about_joining(found)]
        parts += [part for title, table in joins for part in (f"### {title}", table.markdown())]
    if len(collected.chosen):
        parts.append("## How often each model was the best of its kind on validation")
        parts.append(chosen_table(study, collected.chosen).markdown())
    if tuned := tuned_lines(study, collected):
        parts.append("## How often each setting was a client's best on validation")
        parts.append("\n".join(f"- {line}" for line in tuned))
    if (together := cluster_table(study, collected)) is not None:
        parts += ["## Who belongs together", together.markdown()]
    parts += ["## What the words mean", "\n".join(f"- *{word}*: {text}" for word, text in glossary().items())]
    parts += ["## How this was made", "\n".join(f"- {line}" for line in footer)]
    return "\n\n".join(part for part in parts if part) + "\n"
