"""A client's answer: what it has alone, what with others, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlit.mixture.combine import Combined, combine
from fedlit.mixture.losses import Judge
from fedlit.mixture.settings import Mixing
from fedlit.mixture.weigh import Predicted, weights_of
from fedlit.score.plain import defined
from fedlit.statistics import FEW, JOIN, MATTERS, SAME, TITLES, Interval, rows_interval, verdict
from fedlit.tasks import Score
from fedlit.weights import Array, mixed

__all__ = ["BLEND", "Advice", "advise", "gain_interval"]

BLEND = "mixture"
_RESAMPLES, _MANY = 40, 2000  # for a mean; of many rows, where there is little to correct, a quarter


@dataclass(frozen=True)
class Advice:
    """What a client is told.

    Attributes:
        score: by which it is judged.
        best: the best that it has alone: an own part, or the mixture of them.
        alone: the score of that, on the rows that chose it.
        optimism: by how much the lift would be too large because of that.
        lift: by how much the mixture is better, less the optimism.
        interval: of the lift, 95 %.
        combined: the mixture, chosen by all rows.
        parts: federated parts in it.
        verdict: one of :data:`fedlit.statistics.TITLES`.
        sentence: the verdict in words, and why; without the client's name and a full stop.
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
    sentence: str

    @property
    def worth_a_try(self) -> bool:
        """Whether it should join, or may gain though there is not enough data to tell."""
        return self.verdict == JOIN or (self.verdict == FEW and self.lift > 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; undefined values are None."""
        numbers = defined({key: getattr(self, key) for key in ("alone", "optimism", "lift", "interval")})
        return {
            "verdict": self.verdict, "sentence": self.sentence, "join": self.verdict == JOIN, "with": list(self.parts),
            "best_alone": self.best, **numbers, "mixture": self.combined.to_dict(),
        }  # fmt: skip


def advise(
    client: str, rows: Predicted, own: Collection[str], mixing: Mixing, labels: Mapping[str, str],
    *, matters: float = MATTERS, seed: int = 0,
) -> Advice:  # fmt: skip
    """What a client's held-out rows say.

    The bar is the best that it has alone: an own part, or their mixture. That, and the mixture with others, are chosen
    by the rows that they are judged by. What the lift would be otherwise is found on resampled rows (the bootstrap of
    Tsamardinos, Greasidou and Borboudakis 2018, "Bootstrapping the out-of-sample predictions for efficient and accurate
    cross-validation", Machine Learning 107): a resample chooses both, and the rows that it left out judge them. The
    difference is the optimism, and is taken off.

    Args:
        client: its name.
        rows: what parts predict of its held-out rows.
        own: the parts that nobody else had a share in.
        mixing: how parts are mixed.
        labels: federated part that was trained → as people read it.
        matters: the smallest lift that matters.
        seed: of resamples.
    """
    found = _chosen(client, rows, own, mixing)
    judge, (ours, mine) = Judge(rows.task, rows.y, found.combined.metric), found.predictions(rows)
    gain, interval = gain_interval(judge.by_counts(ours), judge.by_counts(mine), len(rows.row), judge.score, seed=seed)
    optimism = 0.0
    if found.parts:
        optimism = gain - _honest(client, rows, own, mixing, seed)
        optimism = optimism if math.isfinite(optimism) else 0.0
    lift, interval, alone = gain - optimism, (interval[0] - optimism, interval[1] - optimism), judge(mine)
    kind, why = _verdict(found.parts, judge.score, lift, interval, alone, labels, matters, len(rows.row))
    return Advice(
        judge.score, found.best, alone, optimism, lift, interval, found.combined, found.parts, kind,
        f"{TITLES[kind]}{why}",
    )  # fmt: skip


def _verdict(
    parts: Collection[str], score: Score, lift: float, interval: Interval, alone: float, labels: Mapping[str, str],
    matters: float, rows: int,
) -> tuple[str, str]:  # fmt: skip
    """The verdict, and what follows its title."""
    if not labels:
        return FEW, ": no federated model was tried"
    if not math.isfinite(lift):
        return FEW, f": {score.label} is not defined on these rows; give rows of each class"
    if not parts:
        return SAME, ": no federated model was better on its held-out rows, so it keeps its own models"
    kind = verdict(lift, interval, score.least_lift(matters, alone))
    way = "" if score.higher_is_better else ", + for lower and better"
    told = f": {score.text(lift, signed=True)} {'points of' if score.percent else 'in'} {score.label}{way}"
    if math.isfinite(sum(interval)):
        told += f" (95 % interval {' to '.join(score.text(own, signed=True) for own in interval)})"
    if kind == JOIN:
        return kind, f" with {' and '.join(labels[name] for name in parts)}{told}"
    return kind, told + (f"; with {rows:,} rows, this cannot be distinguished from no lift" if kind == FEW else "")


@dataclass(frozen=True)
class _Chosen:
    """What rows choose: the best alone, and the mixture."""

    combined: Combined
    best: str
    weights: dict[str, float]
    parts: tuple[str, ...]

    def predictions(self, rows: Predicted) -> tuple[Array, Array]:
        """By the mixture and by the best alone; without a federated part a client keeps the latter."""
        alone = mixed(rows.parts, self.weights)
        return (mixed(rows.parts, self.combined.weights) if self.parts else alone), alone


def _chosen(client: str, rows: Predicted, own: Collection[str], mixing: Mixing) -> _Chosen:
    found = combine({client: rows}, own, mixing)[client]
    judge, mine = Judge(rows.task, rows.y, found.metric), [name for name in rows.parts if name in own]
    choices = {name: {name: 1.0} for name in mine}
    if len(mine) > 1:
        choices[BLEND] = weights_of("fitted", rows.only(mine), mine, mixing.shrink)
    best = judge.score.best({name: judge(mixed(rows.parts, own)) for name, own in choices.items()}) or mine[0]
    return _Chosen(found, best, choices[best], tuple(name for name in found.weights if name not in own))


def _honest(client: str, rows: Predicted, own: Collection[str], mixing: Mixing, seed: int) -> float:
    """The mean lift, on rows that a resample left out, of what the resample chose; NaN where none could be scored."""
    count = len(rows.row)
    rng, found = np.random.default_rng([seed, count]), list[float]()
    for _ in range(_RESAMPLES if count <= _MANY else _RESAMPLES // 4):
        drawn = rng.integers(0, count, count)
        if len(left := np.setdiff1d(np.arange(count), drawn)):
            chosen, judged = _chosen(client, rows.some(drawn), own, mixing), rows.some(left)
            judge = Judge(judged.task, judged.y, chosen.combined.metric)
            found.append(float(judge.score.gain(*map(judge, chosen.predictions(judged)))))
    known = [own for own in found if math.isfinite(own)]
    return float(np.mean(known)) if known else math.nan


def gain_interval(
    first: Any, second: Any, rows: int, score: Score, resamples: int = 400, seed: int = 0
) -> tuple[float, Interval]:
    """By how much one prediction of rows is better than another, and the 95 % of a paired bootstrap over rows.

    It speaks of other rows of the same kind, not of models trained anew; where the rows chose the first, it is too
    hopeful. Draws in which a score is not defined are left out.

    Args:
        first: the score of one prediction as a function of how often each row counts, (n,) int64, or None for once;
            see :meth:`fedlit.mixture.losses.Judge.by_counts`.
        second: that of the other.
        rows: n.
        score: that it is.
        resamples: how many draws.
        seed: of the draws, which depend on it and on the number of rows alone.

    Example:
        >>> right, wrong = np.ones(50), np.r_[np.zeros(10), np.ones(40)]
        >>> def accuracy(hits): return lambda counts: float(np.average(hits, weights=counts))
        >>> gain, (low, high) = gain_interval(accuracy(right), accuracy(wrong), 50, Score("accuracy", "Accuracy"))
        >>> round(gain, 2), 0 < low < gain < high < 0.35  # the closed form of the error is √(0.2 · 0.8 / 50) = 0.057
        (0.2, True)
    """
    rng, gains = np.random.default_rng([seed, rows]), list[float]()
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, rows, rows), minlength=rows)
        gains.append(float(score.gain(first(counts), second(counts))))
    known = np.array([own for own in gains if math.isfinite(own)])
    return float(score.gain(first(None), second(None))), rows_interval(known)
