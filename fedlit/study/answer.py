"""Each client's answer in words: the verdict, the two scores, the lift between them, and what would leave the site."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedlit.show.text import shorten
from fedlit.statistics import ALONE, FEW, JOIN, MIN_SEEDS, SAME, TITLES
from fedlit.study.findings import MANY, Findings
from fedlit.study.leave_one_out import Joining, joining_line, joinings
from fedlit.study.lift import Answer
from fedlit.study.study import BEST_ALONE, Study
from fedlit.study.units import drawn, heading, points
from fedlit.tasks import COMPARED

__all__ = ["Card", "answer_card", "answer_cards", "answer_lines", "shown", "summary"]


@dataclass(frozen=True)
class Card:
    """A client's answer.

    Attributes:
        client: whose.
        kind: the verdict, of :data:`fedlit.statistics.TITLES`.
        title: the verdict in words.
        why: the reason for it, where it is not the interval alone; "" for none.
        score: by which it is judged.
        alone: what it is called, the test score, which model that was.
        federated: the same of the best federated method.
        lift: the second minus the first, with its interval.
        bar: lower end, mean and upper end of the lift, and the least that matters, in the unit of the text.
        hindsight: the lift over the best model alone in hindsight, where that is another than the chosen; "" for none.
        joining: what it and the others gain if it joins; "" where nobody asked.
        leaves: what would leave the site; "" where that is not known.
    """

    client: str
    kind: str
    title: str
    why: str
    score: str
    alone: tuple[str, str, str]
    federated: tuple[str, str, str]
    lift: str
    bar: tuple[float, float, float, float]
    hindsight: str
    joining: str = ""
    leaves: str = ""


def answer_card(study: Study, answer: Answer, joining: Joining | None = None, leaves: str = "") -> Card:
    """A client's answer, part by part; with what the others gain by it, if that is known."""
    score = COMPARED[study.choice_of(answer.client)]
    hindsight = ""
    if answer.hindsight is not None:
        name, value, lift = answer.hindsight
        if lift.mean != answer.lift.mean and math.isfinite(lift.mean):
            over = f"Over the best alone in hindsight ({study.labels[name]}, {score.text(value)})"
            hindsight = f"{over}: {score.text(lift.mean, signed=True)}{points(score)}"
    chosen = study.best_alone == BEST_ALONE  # else there is one model alone, and nothing to choose
    called = "best alone" if chosen else f"{study.labels[study.best_alone]}, alone"
    federated, alone = answer.usual_federated, answer.usual_alone if chosen else None
    (low, high), mean = answer.lift.interval, answer.lift.mean
    least = score.least_lift(study.matters, answer.alone.mean)
    title = TITLES[answer.verdict]
    if answer.verdict == JOIN and federated is not None:
        title += f" with {study.labels[federated]}"
    return Card(
        answer.client,
        answer.verdict,
        title,
        _why(study, answer),
        heading(score),
        (called, score.text(answer.alone.mean), _which(study, alone, answer.varied[1])),
        ("best federated", score.text(answer.federated.mean), _which(study, federated, answer.varied[0])),
        f"{score.text(mean, signed=True)}{points(score)}{_interval(study, answer)}",
        (drawn(score, low), drawn(score, mean), drawn(score, high), drawn(score, least)),
        hindsight,
        "" if joining is None else joining_line(joining),
        leaves,
    )


def answer_cards(found: Findings) -> list[Card]:
    """All clients' answers."""
    joins = {own.client: own for own in joinings(found.study, found.left_out)}
    return [
        answer_card(found.study, answer, joins.get(answer.client), _leaves(found, answer)) for answer in found.answers
    ]


def shown(found: Findings, cards: Sequence[Card]) -> list[Card]:
    """Those of the clients that have a column in tables."""
    return [card for card in cards if card.client in found.extremes]


def summary(cards: Sequence[Card]) -> str:
    """A sentence over all clients; "" where there are none. Of many it says which are shown."""
    if not cards:
        return ""
    by_kind: dict[str, list[str]] = {kind: [] for kind in TITLES}
    for card in cards:
        by_kind[card.kind].append(card.client)
    words = {
        JOIN: "{} should join",
        ALONE: "{} should stay alone",
        SAME: "{} would see no difference that matters",
        FEW: "for {} there is not enough data",
    }
    told = [f"{words[kind].format(len(own))} ({shorten(own, 4)})" for kind, own in by_kind.items() if own]
    few = "" if len(cards) <= MANY else ". Shown are those that gain least and most; lift.csv has all"
    return f"Of {len(cards)} client{'s' * (len(cards) > 1)}, {'; '.join(told)}{few}"


def answer_lines(card: Card) -> tuple[str, str]:
    """The verdict with its reason, and a sentence with the numbers."""

    def told(own: tuple[str, str, str]) -> str:
        called, value, which = own
        return f"{called} {value}" + (f" ({which})" if which else "")

    title = f"{card.title}: {card.why}" if card.why else card.title
    more = "".join(f". {own}" for own in (card.hindsight, card.leaves, card.joining) if own)
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


def _why(study: Study, answer: Answer) -> str:
    score, seeds = COMPARED[study.choice_of(answer.client)], answer.lift.n
    least = f"{score.text(score.least_lift(study.matters, answer.alone.mean))}{points(score)}"
    if answer.verdict == SAME:
        return f"the same {score.label} in each of {seeds} seeds" if answer.lift.sd == 0 else f"less than {least}"
    if answer.verdict != FEW:
        return ""
    if not seeds:
        return "its validation rows allow no choice, or runs are missing"
    if seeds < MIN_SEEDS:
        return f"{seeds} seed{'s' * (seeds > 1)}, a verdict needs {MIN_SEEDS} or more"
    if not math.isfinite(answer.lift.mean):
        return "predictions were not finite"
    if not math.isfinite(sum(answer.lift.interval)):
        return "all seeds gave the same lift"
    return f"{seeds} seeds and these test rows do not tell a lift of {least} from none"


def _leaves(found: Findings, answer: Answer) -> str:
    """What the federated method that a client chose most often would take from its site."""
    records = found.collected.records.to_dict("records")
    told = [own.get("leaves") for own in records if own["method"] == answer.usual_federated]
    own = next((each for each in told if isinstance(each, dict) and answer.client in each["numbers"]), None)
    if own is None:
        return ""
    patterns, numbers = ", ".join(own["patterns"]) or "answers to its rule's questions", own["numbers"][answer.client]
    before = f"; before training {', '.join(own['before'])}" if own["before"] else ""
    rounds = Counter(each["rounds"] for each in told if isinstance(each, dict)).most_common(1)[0][0]
    return f"Would leave the site: {patterns} ({numbers:,} numbers) in each of {rounds} rounds{before}"
