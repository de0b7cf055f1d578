"""A client's answer: what it reaches alone, what it reaches with others, and how certain that
is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlit.mixture.combine import Combined, combine
from fedlit.mixture.settings import Mixing
from fedlit.mixture.weigh import weights_of
from fedlit.outcomes.base import Array
from fedlit.score.plain import defined
from fedlit.statistics import (
    BLOCKED,
    FEW,
    JOIN,
    MATTERS,
    SAME,
    TITLES,
    Interval,
    rows_interval,
    verdict,
)
from fedlit.tasks import Score
from fedlit.tasks.predictions import Predictions
from fedlit.weights import mixed

BLEND = "mixture"
# for a mean; of many rows, where there is little to correct, a quarter
_RESAMPLES = 40
_MANY = 2000


@dataclass(frozen=True)
class Advice:
    """The advice to a client.

    Attributes:
        score: the score by which the client is judged.
        best: the best that it has alone: a local part, or the mixture of its local parts.
        alone: the score of this best, on the rows that chose it.
        optimism: by how much the lift would be too large because the same rows chose and judged.
        lift: by how much the mixture is better, minus the optimism.
        interval: the 95 % interval of the lift.
        combined: the mixture that all rows chose.
        parts: the federated parts in the mixture.
        verdict: one of :data:`fedlit.statistics.TITLES`.
        answer: the verdict in words: what to do, and with which parts.
        why: the text after the answer that gives the reason, without a full stop.
    """

    score: Score
    best: str
    alone: float
    optimism: float
    lift: float
    interval: Interval
    combined: Combined
    parts: tuple[str, ...]
    verdict: str
    answer: str
    why: str

    @property
    def sentence(self) -> str:
        """The answer with its reason; without the client's name and a full stop."""
        return f"{self.answer}{self.why}"

    @property
    def worth_a_try(self) -> bool:
        """Whether the client should join, or may gain although there is not enough data to
        decide.
        """
        return self.verdict == JOIN or (self.verdict == FEW and self.lift > 0)

    def blocked(self) -> Advice:
        """Return the advice without a verdict, because a finding about the tables has to be settled
        first.
        """
        return replace(
            self,
            verdict=BLOCKED,
            answer="No verdict",
            why=": a column may reveal the target, see above",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain data, in which undefined values are None."""
        numbers = defined(
            {key: getattr(self, key) for key in ("alone", "optimism", "lift", "interval")}
        )
        return {
            "verdict": self.verdict, "sentence": self.sentence, "join": self.verdict == JOIN, "with": list(self.parts),
            "best_alone": self.best, **numbers, "mixture": self.combined.to_dict(),
        }  # fmt: skip


def advise(
    client: str, rows: Predictions, local: Collection[str], mixing: Mixing, labels: Mapping[str, str],
    *, matters: float = MATTERS, seed: int = 0,
) -> Advice:  # fmt: skip
    """Return the advice that a client's held-out rows give.

    The lift is over the best that the client has alone: a local part, or the mixture of its local
    parts. This best, and the mixture with others, are chosen by the same rows that judge them. By
    how much this increases the lift is estimated on resampled rows (the bootstrap of Tsamardinos,
    Greasidou and Borboudakis 2018, "Bootstrapping the out-of-sample predictions for efficient and
    accurate cross-validation", Machine Learning 107): each resample chooses both, and the rows that
    it left out judge them. The difference is the optimism, which is subtracted.

    Args:
        client: the name of the client.
        rows: the parts' predictions for its held-out rows.
        local: the parts in which no other client had a share.
        mixing: how parts are mixed.
        labels: maps each trained federated part to its name for the user.
        matters: the smallest lift that matters.
        seed: the seed of the resamples.
    """
    choice = _chosen(client, rows, local, mixing)
    judge = rows.judge(choice.combined.metric)
    mixture, best_alone = choice.predictions(rows)
    gain, interval = gain_interval(
        judge.by_counts(mixture), judge.by_counts(best_alone), len(rows.row), judge.score, seed=seed
    )
    optimism = 0.0
    if choice.parts:
        optimism = gain - _honest(client, rows, local, mixing, seed)
        optimism = optimism if math.isfinite(optimism) else 0.0
    lift = gain - optimism
    interval = (interval[0] - optimism, interval[1] - optimism)
    alone = judge(best_alone)
    kind, answer, why = _verdict(
        choice.parts, judge.score, lift, interval, alone, labels, matters, len(rows.row)
    )
    return Advice(
        judge.score, choice.best, alone, optimism, lift, interval, choice.combined, choice.parts, kind, answer, why
    )  # fmt: skip


def _verdict(
    parts: Collection[str], score: Score, lift: float, interval: Interval, alone: float, labels: Mapping[str, str],
    matters: float, rows: int,
) -> tuple[str, str, str]:  # fmt: skip
    """Return the verdict, the answer and the reason, see :class:`Advice`."""
    if not labels:
        return FEW, TITLES[FEW], ": no federated model was tried"
    if not math.isfinite(lift):
        reason = f": {score.label} is not defined on these rows; give rows of each class"
        return FEW, TITLES[FEW], reason
    if not parts:
        reason = ": no federated model was better on its held-out rows, so it keeps its own models"
        return SAME, TITLES[SAME], reason
    kind = verdict(lift, interval, score.least_lift(matters, alone))
    direction = "" if score.higher_is_better else " (positive means lower, which is better)"
    unit = "points of" if score.percent else "in"
    reason = f": {score.text(lift, signed=True)} {unit} {score.label}{direction}"
    if math.isfinite(sum(interval)):
        reason += (
            f" (95 % interval {' to '.join(score.text(end, signed=True) for end in interval)})"
        )
    if kind == JOIN:
        return kind, f"{TITLES[kind]} with {' and '.join(labels[name] for name in parts)}", reason
    if kind == FEW:
        reason += f"; with {rows:,} rows, this cannot be distinguished from no lift"
    return kind, TITLES[kind], reason


@dataclass(frozen=True)
class _Chosen:
    """What rows choose: the best model alone, and the mixture."""

    combined: Combined
    best: str
    weights: dict[str, float]
    parts: tuple[str, ...]

    def predictions(self, rows: Predictions) -> tuple[Array, Array]:
        """Return the predictions of the mixture and of the best model alone. Without a federated
        part, a client keeps the latter.
        """
        alone = mixed(rows.parts, self.weights)
        return (mixed(rows.parts, self.combined.weights) if self.parts else alone), alone


def _chosen(client: str, rows: Predictions, local: Collection[str], mixing: Mixing) -> _Chosen:
    combined = combine({client: rows}, local, mixing)[client]
    judge = rows.judge(combined.metric)
    local_names = [name for name in rows.parts if name in local]
    choices = {name: {name: 1.0} for name in local_names}
    if len(local_names) > 1:
        choices[BLEND] = weights_of("fitted", rows.only(local_names), local_names, mixing.shrink)
    reached = {name: judge(mixed(rows.parts, weights)) for name, weights in choices.items()}
    best = judge.score.best(reached) or local_names[0]
    federated = tuple(name for name in combined.weights if name not in local)
    return _Chosen(combined, best, choices[best], federated)


def _honest(
    client: str, rows: Predictions, local: Collection[str], mixing: Mixing, seed: int
) -> float:
    """Return the mean lift of what resamples chose, on the rows that each resample left out; NaN if
    no lift could be computed.
    """
    count = len(rows.row)
    rng = np.random.default_rng([seed, count])
    lifts = list[float]()
    for _ in range(_RESAMPLES if count <= _MANY else _RESAMPLES // 4):
        drawn = rng.integers(0, count, count)
        if len(unseen := np.setdiff1d(np.arange(count), drawn)):
            chosen = _chosen(client, rows.some(drawn), local, mixing)
            judged = rows.some(unseen)
            judge = judged.judge(chosen.combined.metric)
            lifts.append(float(judge.score.gain(*map(judge, chosen.predictions(judged)))))
    finite = [lift for lift in lifts if math.isfinite(lift)]
    return float(np.mean(finite)) if finite else math.nan


def gain_interval(
    first: Any, second: Any, rows: int, score: Score, resamples: int = 400, seed: int = 0
) -> tuple[float, Interval]:
    """Return by how much one prediction of rows is better than another, and the 95 % interval of a
    paired bootstrap over rows.

    The interval covers other rows of the same kind, but not newly trained models. It is too
    optimistic if the rows chose the first prediction. Draws in which a score is undefined are left
    out.

    Args:
        first: the score of one prediction as a function of how often each row counts, (n,) int64,
            or None for once; see :meth:`fedlit.mixture.weigh.Judge.by_counts`.
        second: the score of the other prediction, likewise.
        rows: the number of rows, n.
        score: the score that is computed.
        resamples: the number of draws.
        seed: the seed of the draws, which depend only on it and on the number of rows.

    Example:
        >>> right, wrong = np.ones(50), np.r_[np.zeros(10), np.ones(40)]
        >>> def accuracy(hits): return lambda counts: float(np.average(hits, weights=counts))
        >>> gain, (low, high) = gain_interval(accuracy(right), accuracy(wrong), 50, Score("accuracy", "Accuracy"))
        >>> round(gain, 2), 0 < low < gain < high < 0.35  # the closed form of the error is √(0.2 · 0.8 / 50) = 0.057
        (0.2, True)
    """
    rng = np.random.default_rng([seed, rows])
    gains = list[float]()
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, rows, rows), minlength=rows)
        gains.append(float(score.gain(first(counts), second(counts))))
    finite = np.array([value for value in gains if math.isfinite(value)])
    return float(score.gain(first(None), second(None))), rows_interval(finite)
