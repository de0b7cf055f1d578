"""Each client's answer in words: the two scores, the lift between them, and what both are worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedlit.statistics import MIN_SEEDS_FOR_TEST
from fedlit.study.findings import Findings
from fedlit.study.leave_one_out import Joining, joining_line, joinings
from fedlit.study.lift import Answer
from fedlit.study.study import BEST_ALONE, Study
from fedlit.study.units import at_best, heading, near_best, points
from fedlit.tasks import COMPARED

__all__ = ["Card", "answer_card", "answer_cards", "answer_kind", "answer_lines"]

_TITLES = {
    "helped": "Federation pays",
    "harmed": "Better alone",
    "unclear": "No clear difference",
    "equal": "No difference at all",
    "unknown": "Not known",
    "nothing": "Nothing to gain",
}


@dataclass(frozen=True)
class Card:
    """A client's answer.

    Attributes:
        client: whose.
        kind: see :func:`answer_kind`.
        title: the verdict.
        why: the reason for it, where it is not the interval alone; "" for none.
        score: by which it is judged.
        alone: what it is called, the test score, which model that was.
        federated: the same of the best federated method.
        lift: the second minus the first, with its interval.
        hindsight: a model alone that would have been better than the federated, and the lift over the best alone in
            hindsight where that is another model than the chosen; "" for none.
        joining: what it and the others gain if it joins; "" where nobody asked.
    """

    client: str
    kind: str
    title: str
    why: str
    score: str
    alone: tuple[str, str, str]
    federated: tuple[str, str, str]
    lift: str
    hindsight: str
    joining: str = ""


def answer_kind(study: Study, answer: Answer) -> str:
    """The verdict, or ``nothing``: going alone a client has the best that there is, so no federation can give it more;
    or every model is next to that, and nothing is clear. Where the federation does clear harm, that is said instead.
    """
    score = COMPARED[study.choice_of(answer.client)]
    unclear = answer.verdict not in ("helped", "harmed")
    none = at_best(score, answer.alone.mean) or (unclear and _all_near_best(study, answer))
    return "nothing" if none and answer.verdict != "harmed" else answer.verdict


def _all_near_best(study: Study, answer: Answer) -> bool:
    return answer.least is not None and near_best(COMPARED[study.choice_of(answer.client)], answer.least)


def answer_card(study: Study, answer: Answer, joining: Joining | None = None) -> Card:
    """A client's answer, part by part; with what the others gain by it, if that is known."""
    kind, score = answer_kind(study, answer), COMPARED[study.choice_of(answer.client)]
    hindsight = ""
    if answer.better_alone is not None:
        name, value = answer.better_alone
        hindsight = f"Always {study.labels[name]}, alone, would have been {score.text(value)}"
    if answer.strict is not None and answer.strict[2].mean != answer.lift.mean and math.isfinite(answer.strict[2].mean):
        name, value, strict = answer.strict
        over = f"Over the best alone in hindsight ({study.labels[name]}, {score.text(value)})"
        hindsight += f"{'. ' * bool(hindsight)}{over}: {score.text(strict.mean, signed=True)}{points(score)}"
    chosen = study.best_alone == BEST_ALONE  # else there is one model alone, and nothing to choose
    called = "best alone" if chosen else f"{study.labels[study.best_alone]}, alone"
    federated, alone = answer.usual_federated, answer.usual_alone if chosen else None
    return Card(
        answer.client,
        kind,
        _TITLES[kind],
        _why(study, answer, kind),
        heading(score),
        (called, score.text(answer.alone.mean), _which(study, alone, answer.varied[1])),
        ("best federated", score.text(answer.federated.mean), _which(study, federated, answer.varied[0])),
        f"{score.text(answer.lift.mean, signed=True)}{points(score)}{_interval(study, answer)}",
        hindsight,
        "" if joining is None else joining_line(joining),
    )


def answer_cards(found: Findings) -> list[Card]:
    """All clients' answers."""
    joins = {own.client: own for own in joinings(found.study, found.left_out)}
    return [answer_card(found.study, answer, joins.get(answer.client)) for answer in found.answers]


def answer_lines(card: Card) -> tuple[str, str]:
    """The verdict with its reason, and a sentence with the numbers."""

    def told(own: tuple[str, str, str]) -> str:
        called, value, which = own
        return f"{called} {value}" + (f" ({which})" if which else "")

    title = f"{card.title}: {card.why}" if card.why else card.title
    more = "".join(f". {own}" for own in (card.hindsight, card.joining) if own)
    return title, f"{card.score}: {told(card.alone)}, {told(card.federated)}; lift {card.lift}{more}"


def _which(study: Study, method: str | None, varied: bool) -> str:
    return "" if method is None else f"{'mostly ' * varied}{study.labels[method]}"


def _interval(study: Study, answer: Answer) -> str:
    score, (low, high) = COMPARED[study.choice_of(answer.client)], answer.lift.interval
    if not math.isfinite(low + high):
        return ""
    if score.percent and max(-low, high) > 1:
        return ", 95 % interval wider than any lift can be"
    return f", 95 % interval {score.text(low, signed=True)} to {score.text(high, signed=True)}"


def _why(study: Study, answer: Answer, kind: str) -> str:
    score, seeds = COMPARED[study.choice_of(answer.client)], answer.lift.n
    if _all_near_best(study, answer) and answer.least is not None:
        return f"every model reaches {score.text(answer.least)} or better (is a column the answer?)"
    if kind == "nothing":
        who = "both reach" if at_best(score, answer.federated.mean) else "alone it reaches"
        return f"{who} the best {score.label} that there is"
    if kind == "equal":
        return f"the same {score.label} in each of {seeds} seeds"
    if kind == "unclear" and seeds < MIN_SEEDS_FOR_TEST:
        return f"{seeds} seeds can show only large differences"
    if kind != "unknown":
        return ""
    if seeds == 0:
        return "its validation rows allow no choice, or runs are missing"
    if seeds == 1:
        return "more than one seed is needed"
    if not math.isfinite(answer.lift.mean):
        return "predictions were not finite"
    return "all seeds gave the same lift"
