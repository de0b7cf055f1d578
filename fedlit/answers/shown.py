"""The answers of several clients in a sentence, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedlit.answers.answer import Answer
from fedlit.answers.verdict import VERDICTS, Verdict
from fedlit.show.text import shorten
from fedlit.tasks import Score
from fedlit.tasks.units import drawn, lift_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUMMARY = {
    Verdict.JOIN: "{} should join",
    Verdict.ALONE: "{} should stay alone",
    Verdict.SAME: "{} would see no difference that matters",
    Verdict.FEW: "for {} there is not enough data",
}


def summary(answers: Sequence[Answer], few: bool = True) -> str:
    """Summarise the answers of all clients in a sentence; "" if there are none.

    Args:
        answers: all answers.
        few: whether every answer is shown; if not, the sentence states which are.
    """
    if not answers:
        return ""
    parts = []
    for verdict in VERDICTS:
        clients = [answer.client for answer in answers if answer.verdict == verdict]
        if clients:
            parts.append(f"{_SUMMARY[verdict].format(len(clients))} ({shorten(clients, 4)})")
    plural = "s" if len(answers) > 1 else ""
    sentence = f"Of {len(answers)} client{plural}, {'; '.join(parts)}"
    if few:
        return sentence
    return (
        f"{sentence}. The clients with the smallest and largest gains are shown; lift.csv has all"
    )


def plot_lifts(
    answers: Iterable[Answer], axes: Axes | None = None, score: Score | None = None
) -> Axes:
    """Draw the lift of each client with its 95 % interval, for the clients that are judged by one
    score. An interval that includes zero proves no gain.

    Args:
        answers: the answers, at least one.
        axes: Matplotlib's axes to draw on; if None, new ones, which a notebook shows below the
            cell.
        score: the score; if None, the first client's.
    """
    from fedlit.show.effects import plot_intervals

    answers = list(answers)
    score = score or answers[0].score
    compared = [answer for answer in answers if answer.score == score]
    values = [drawn(score, answer.lift.mean) for answer in compared]
    lows = [drawn(score, answer.lift.interval[0]) for answer in compared]
    highs = [drawn(score, answer.lift.interval[1]) for answer in compared]
    label = f"lift in {score.label}, {lift_unit(score)}, with 95 % intervals"
    clients = [answer.client for answer in compared]
    return plot_intervals(clients, values, lows, highs, label, axes)
