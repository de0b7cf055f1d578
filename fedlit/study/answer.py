"""Each client's answer: the verdict, two scores, the lift between them, what others gain, what leaves the site."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedlit.show.text import shorten
from fedlit.statistics import ALONE, FEW, JOIN, MIN_SEEDS, SAME, TITLES, estimate
from fedlit.study.collect import Collected
from fedlit.study.lift import OTHERS, flat
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, Study
from fedlit.study.units import drawn, heading, points
from fedlit.tasks import COMPARED, Score

__all__ = ["Answer", "Card", "answer_card", "answers", "joining_line", "summary"]

_NOT_KNOWN = "not known (runs are missing, or nobody has this score)"


@dataclass(frozen=True)
class Answer:
    """Whether federation pays for one client, by the metric by which it chooses.

    Attributes:
        client: whose question it is.
        metric: by which it chooses.
        federated: mean test score of the federated method that is best for it on validation, chosen per seed.
        alone: of what it would do alone, chosen in the same way.
        lift: of the first over the second: mean, low, high, n, … as in ``lift.csv``.
        verdict: of the lift.
        usual: the federated method, and the local baseline, that was chosen most often; None where there is no choice.
        varied: whether seeds chose different ones.
        hindsight: the local baseline that is best in hindsight, its test score, and the lift of the federated method
            over it; None where there is one model alone.
    """

    client: str
    metric: str
    federated: float
    alone: float
    lift: Mapping[str, Any]
    verdict: str
    usual: tuple[str | None, str | None]
    varied: tuple[bool, bool] = (False, False)
    hindsight: tuple[str, float, float] | None = None

    @property
    def score(self) -> Score:
        """By which it chooses."""
        return COMPARED[self.metric]


def answers(study: Study, collected: Collected, estimates: pd.DataFrame, lift: pd.DataFrame) -> list[Answer]:
    """For each client, its best federated method against its best model alone, both chosen per seed on validation.
    None where the study has no federated method that leaves rows where they are.

    Args:
        study: completed by its clients' tasks.
        collected: its results.
        estimates: of scores (:func:`fedlit.study.lift.estimates`).
        lift: of lifts (:func:`fedlit.study.lift.lifts`).
    """
    scores = {(own["metric"], own["method"], own["client"]): own["mean"] for own in estimates.to_dict("records")}
    lifts: dict[tuple[str, str, str], Mapping[Any, Any]] = {
        (own["metric"], own["reference"], own["client"]): own
        for own in lift[lift["method"] == BEST_FEDERATED].to_dict("records")
    }
    nothing: Mapping[Any, Any] = {**flat(estimate([])), "verdict": FEW}
    found = []
    for client in collected.clients if study.candidates else ():
        metric, chosen = study.choice_of(client), collected.chosen
        own = chosen[(chosen["client"] == client) & (chosen["without"] == "")].groupby("best")["method"]
        often = {str(best): str(methods.value_counts().idxmax()) for best, methods in own}
        varied = own.nunique() > 1
        row, bar = (lifts.get((metric, own, client), nothing) for own in (study.best_alone, HINDSIGHT))
        hindsight = None
        if HINDSIGHT in often:
            hindsight = often[HINDSIGHT], scores.get((metric, HINDSIGHT, client), math.nan), float(bar["mean"])
        kinds = (BEST_FEDERATED, BEST_ALONE)
        found.append(
            Answer(
                client,
                metric,
                scores.get((metric, BEST_FEDERATED, client), math.nan),
                scores.get((metric, study.best_alone, client), math.nan),
                row,
                str(row["verdict"]),
                (often.get(kinds[0]), often.get(kinds[1])),
                (bool(varied.get(kinds[0], False)), bool(varied.get(kinds[1], False))),
                hindsight,
            )
        )
    return found


@dataclass(frozen=True)
class Card:
    """A client's answer in words.

    Attributes:
        client: whose.
        kind: the verdict, of :data:`fedlit.statistics.TITLES`.
        title: the verdict in words.
        why: the reason for it, where it is not the interval alone; "" for none.
        label: of the score by which it is judged.
        scores: alone, then federated: what it is called, the test score, which model that was.
        lift: the second minus the first, with its interval.
        bar: lower end, mean and upper end of the lift, and the least that matters, in the unit of the text.
        more: sentences on hindsight, on what would leave the site, and on what the others gain.
    """

    client: str
    kind: str
    title: str
    why: str
    label: str
    scores: tuple[tuple[str, str, str], tuple[str, str, str]]
    lift: str
    bar: tuple[float, float, float, float]
    more: Sequence[str] = ()

    @property
    def text(self) -> str:
        """A sentence with the numbers."""
        told = [f"{called} {value}" + (f" ({which})" if which else "") for called, value, which in self.scores]
        return ". ".join([f"{self.label}: {told[0]}, {told[1]}; lift {self.lift}", *self.more])


def answer_card(
    study: Study, answer: Answer, left_out: pd.DataFrame | None = None, records: Sequence[Mapping[Any, Any]] = ()
) -> Card:
    """A client's answer in words.

    Args:
        study: what was compared.
        answer: the client's.
        left_out: what the others gain by it (:func:`fedlit.study.lift.leave_one_out`); None where nobody asked.
        records: of runs, which say what leaves a site.
    """
    score, (low, high) = answer.score, (answer.lift["low"], answer.lift["high"])
    more = []
    if answer.hindsight is not None:
        name, value, lift = answer.hindsight
        if lift != answer.lift["mean"] and math.isfinite(lift):
            over = f"Over the best alone in hindsight ({study.labels[name]}, {score.text(value)})"
            more.append(f"{over}: {score.text(lift, signed=True)}{points(score)}")
    federated, alone = answer.usual
    more += _leaves(records, answer.client, federated)
    if left_out is not None and len(left_out):
        more += joining_line(left_out, answer)
    chosen = study.best_alone == BEST_ALONE  # else there is one model alone, and nothing to choose
    called = "best alone" if chosen else f"{study.labels[study.best_alone]}, alone"
    which = [
        "" if method is None else f"{'mostly ' * varied}{study.labels[method]}"
        for method, varied in zip((federated, alone if chosen else None), answer.varied, strict=True)
    ]
    title = TITLES[answer.verdict]
    if answer.verdict == JOIN and federated is not None:
        title += f" with {study.labels[federated]}"
    least = score.least_lift(study.matters, answer.alone)
    return Card(
        answer.client,
        answer.verdict,
        title,
        _why(answer, f"{score.text(least)}{points(score)}"),
        heading(score),
        ((called, score.text(answer.alone), which[1]), ("best federated", score.text(answer.federated), which[0])),
        f"{score.text(answer.lift['mean'], signed=True)}{points(score)}{_interval(score, low, high)}",
        (drawn(score, low), drawn(score, answer.lift["mean"]), drawn(score, high), drawn(score, least)),
        more,
    )


def summary(cards: Sequence[Card], few: bool = True) -> str:
    """A sentence over all clients; "" where there are none.

    Args:
        cards: all of them.
        few: whether each has its card; else it says which are shown.
    """
    if not cards:
        return ""
    words = {
        JOIN: "{} should join",
        ALONE: "{} should stay alone",
        SAME: "{} would see no difference that matters",
        FEW: "{} without enough data",
    }
    told = []
    for kind in TITLES:
        own = [card.client for card in cards if card.kind == kind]
        told += [f"{words[kind].format(len(own))} ({shorten(own, 4)})"] if own else []
    more = "" if few else ". The clients with the smallest and largest gains are shown; lift.csv has all"
    return f"Of {len(cards)} client{'s' * (len(cards) > 1)}, {'; '.join(told)}{more}"


def _interval(score: Score, low: float, high: float) -> str:
    if not math.isfinite(low + high):
        return ""
    if score.percent and max(-low, high) > 1:
        return ", 95 % interval wider than any lift can be"
    return f", 95 % interval {score.text(low, signed=True)} to {score.text(high, signed=True)}"


def _why(answer: Answer, least: str) -> str:
    lift, seeds = answer.lift, answer.lift["n"]
    if answer.verdict == SAME:
        return f"the same {answer.score.label} in each of {seeds} seeds" if lift["sd"] == 0 else f"less than {least}"
    if answer.verdict != FEW:
        return ""
    if not seeds:
        return "no choice is possible on its validation rows, or runs are missing"
    if seeds < MIN_SEEDS:
        return f"{seeds} seed{'s' * (seeds > 1)}; a verdict needs {MIN_SEEDS} or more"
    if not math.isfinite(lift["mean"]):
        return "predictions were not finite"
    if not math.isfinite(lift["low"] + lift["high"]):
        return "all seeds gave the same lift"
    return f"{seeds} seeds and these test rows cannot distinguish a lift of {least} from none"


def _leaves(records: Sequence[Mapping[Any, Any]], client: str, method: str | None) -> list[str]:
    """What the federated method that a client chose most often would take from its site."""
    told = [own.get("leaves") for own in records if own["method"] == method]
    known = [own for own in told if isinstance(own, dict) and client in own["numbers"]]
    if not known:
        return []
    own = known[0]
    patterns, numbers = ", ".join(own["patterns"]) or "answers to its rule's questions", own["numbers"][client]
    before = f"; before training {', '.join(own['before'])}" if own["before"] else ""
    rounds = Counter(each["rounds"] for each in known).most_common(1)[0][0]
    return [f"Would leave the site: {patterns} ({numbers:,} numbers) in each of {rounds} rounds{before}"]


def joining_line(left_out: pd.DataFrame, answer: Answer) -> list[str]:
    """Whether a client should join, for itself and for the others: one sentence; none where that was not asked.

    Args:
        left_out: of :func:`fedlit.study.lift.leave_one_out`.
        answer: the client's.
    """
    own, score, name = left_out[left_out["joins"] == answer.client], answer.score, answer.client
    if own.empty:
        return []
    own = own[(own["method"] == BEST_FEDERATED) & (own["metric"] == answer.metric)]
    rows = {row["client"]: row for row in own.to_dict("records")}
    unit = f" {'percentage points' if score.percent else f'in {score.label}'}"
    told = [
        f"{score.text(rows[who]['mean'], signed=True)}{more} ({rows[who]['verdict']})"
        if who in rows and math.isfinite(rows[who]["mean"])
        else _NOT_KNOWN
        for who, more in ((name, unit), (OTHERS, ""))
    ]
    return [f"Should {name} join? For {name} itself: {told[0]}. For the others: {told[1]}"]
