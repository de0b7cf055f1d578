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
from fedlit.mixture.weigh import Predicted, weights_of
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
    client: str, rows: Predicted, own: Collection[str], mixing: Mixing, labels: Mapping[str, str],
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
        own: the parts in which no other client had a share.
        mixing: how parts are mixed.
        labels: maps each trained federated part to its name for the user.
        matters: the smallest lift that matters.
        seed: the seed of the resamples.
    """
    found = _chosen(client, rows, own, mixing)
    judge = rows.judge(found.combined.metric)
    ours, mine = found.predictions(rows)
    gain, interval = gain_interval(
        judge.by_counts(ours), judge.by_counts(mine), len(rows.row), judge.score, seed=seed
    )
    optimism = 0.0
    if found.parts:
        optimism = gain - _honest(client, rows, own, mixing, seed)
        optimism = optimism if math.isfinite(optimism) else 0.0
    lift = gain - optimism
    interval = (interval[0] - optimism, interval[1] - optimism)
    alone = judge(mine)
    kind, answer, why = _verdict(
        found.parts, judge.score, lift, interval, alone, labels, matters, len(rows.row)
    )
    return Advice(
        judge.score, found.best, alone, optimism, lift, interval, found.combined, found.parts, kind, answer, why
    )  # fmt: skip


def _verdict(
    parts: Collection[str], score: Score, lift: float, interval: Interval, alone: float, labels: Mapping[str, str],
    matters: float, rows: int,
) -> tuple[str, str, str]:  # fmt: skip
    """Return the verdict, the answer and the reason, see :class:`Advice`."""
    if not labels:
        return FEW, TITLES[FEW], ": no federated model was tried"
    if not math.isfinite(lift):
        return (
            FEW,
            TITLES[FEW],
            f": {score.label} is not defined on these rows; give rows of each class",
        )
    if not parts:
        return (
            SAME,
            TITLES[SAME],
            ": no federated model was better on its held-out rows, so it keeps its own models",
        )
    kind = verdict(lift, interval, score.least_lift(matters, alone))
    way = "" if score.higher_is_better else " (positive means lower, which is better)"
    told = (
        f": {score.text(lift, signed=True)} {'points of' if score.percent else 'in'} "
        f"{score.label}{way}"
    )
    if math.isfinite(sum(interval)):
        told += f" (95 % interval {' to '.join(score.text(own, signed=True) for own in interval)})"
    if kind == JOIN:
        return kind, f"{TITLES[kind]} with {' and '.join(labels[name] for name in parts)}", told
    told += (
        f"; with {rows:,} rows, this cannot be distinguished from no lift" if kind == FEW else ""
    )
    return kind, TITLES[kind], told


@dataclass(frozen=True)
class _Chosen:
    """What rows choose: the best model alone, and the mixture."""

    combined: Combined
    best: str
    weights: dict[str, float]
    parts: tuple[str, ...]

    def predictions(self, rows: Predicted) -> tuple[Array, Array]:
        """Return the predictions of the mixture and of the best model alone. Without a federated
        part, a client keeps the latter.
        """
        alone = mixed(rows.parts, self.weights)
        return (mixed(rows.parts, self.combined.weights) if self.parts else alone), alone


def _chosen(client: str, rows: Predicted, own: Collection[str], mixing: Mixing) -> _Chosen:
    found = combine({client: rows}, own, mixing)[client]
    judge = rows.judge(found.metric)
    mine = [name for name in rows.parts if name in own]
    choices = {name: {name: 1.0} for name in mine}
    if len(mine) > 1:
        choices[BLEND] = weights_of("fitted", rows.only(mine), mine, mixing.shrink)
    best = (
        judge.score.best({name: judge(mixed(rows.parts, own)) for name, own in choices.items()})
        or mine[0]
    )
    return _Chosen(
        found, best, choices[best], tuple(name for name in found.weights if name not in own)
    )


def _honest(client: str, rows: Predicted, own: Collection[str], mixing: Mixing, seed: int) -> float:
    """Return the mean lift of what resamples chose, on the rows that each resample left out; NaN if
    no lift could be computed.
    """
    count = len(rows.row)
    rng = np.random.default_rng([seed, count])
    found = list[float]()
    for _ in range(_RESAMPLES if count <= _MANY else _RESAMPLES // 4):
        drawn = rng.integers(0, count, count)
        if len(left := np.setdiff1d(np.arange(count), drawn)):
            chosen = _chosen(client, rows.some(drawn), own, mixing)
            judged = rows.some(left)
            judge = judged.judge(chosen.combined.metric)
            found.append(float(judge.score.gain(*map(judge, chosen.predictions(judged)))))
    known = [own for own in found if math.isfinite(own)]
    return float(np.mean(known)) if known else math.nan


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
    known = np.array([own for own in gains if math.isfinite(own)])
    return float(score.gain(first(None), second(None))), rows_interval(known)
