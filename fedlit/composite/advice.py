"""A client's answer: what it has alone, what with others, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedlit.composite.settings import MixtureSettings
from fedlit.composite.weigh import HeldOut, Weighed, weigh
from fedlit.mix.admission import gain_interval
from fedlit.mix.losses import Judge, row_loss
from fedlit.mix.verdict import Common, Verdict, verdict_of
from fedlit.mix.weights import mixed_parts, weights_of
from fedlit.statistics import FEW, JOIN, MATTERS, SAME, TITLES, Interval
from fedlit.tasks import Score

__all__ = ["BLEND", "Advice", "advise"]

BLEND = "blend"
_RESAMPLES, _MANY = 40, 2000  # for a mean; of many rows, where there is little to correct, a quarter


@dataclass(frozen=True)
class Advice:
    """What a client is told.

    Attributes:
        common: what it has in common with others.
        score: by which it is judged.
        best: the best that it has alone: an own part, or the blend of them.
        alone: the score of that, on the rows that chose it.
        mixture: the score of the mixture, likewise; that of the best alone where no federated part is in it.
        optimism: by how much the lift is too large because of that.
        lift: by how much the mixture is better, less the optimism.
        interval: of the lift, 95 %.
        weighed: the mixture, chosen by all rows.
        parts: federated parts in it.
        verdict: in a word and a sentence.
    """

    common: Common
    score: Score
    best: str
    alone: float
    mixture: float
    optimism: float
    lift: float
    interval: Interval
    weighed: Weighed
    parts: tuple[str, ...]
    verdict: Verdict

    @property
    def join(self) -> bool:
        """Whether it should."""
        return self.verdict.kind == JOIN

    @property
    def worth_a_try(self) -> bool:
        """Whether it should join, or may gain though there is not enough data to tell."""
        return self.join or (self.verdict.kind == FEW and self.lift > 0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; undefined values are None."""

        def plain(value: float) -> float | None:
            return float(value) if math.isfinite(value) else None

        return {
            "rows": self.common.rows,
            "shared_columns": list(self.common.columns),
            "of_columns": self.common.of_columns,
            "verdict": self.verdict.kind,
            "sentence": self.verdict.sentence,
            "join": self.join,
            "with": list(self.parts),
            "best_alone": self.best,
            "alone": plain(self.alone),
            "with_others": plain(self.mixture),
            "optimism": plain(self.optimism),
            "lift": plain(self.lift),
            "interval": [plain(own) for own in self.interval],
            "mixture": self.weighed.to_dict(),
        }


def advise(
    client: str,
    held: HeldOut,
    own: Sequence[str],
    settings: MixtureSettings,
    common: Common,
    labels: Mapping[str, str],
    *,
    nobody: bool = False,
    matters: float = MATTERS,
) -> Advice:
    """What a client's held-out rows say.

    The bar is the best that it has alone: an own part, or their blend. That, and the mixture, are chosen by the rows
    that they are judged by. What the lift would be otherwise is found on resampled rows (the bootstrap of Tsamardinos,
    Greasidou and Borboudakis 2018, "Bootstrapping the out-of-sample predictions for efficient and accurate
    cross-validation", Machine Learning 107): a resample chooses both, and the rows that it left out judge them. The
    difference is the optimism, and is taken off.

    Args:
        client: its name.
        held: its rows, and what parts predict of them.
        own: the parts that nobody else had a share in.
        settings: how parts are mixed.
        common: what it has in common with others.
        labels: federated part → as people read it.
        nobody: whether there is no other client.
        matters: the smallest lift that matters.
    """
    found = _chosen(client, held, own, settings)
    judge, score = found.judge(held), found.score
    with_others, alone = found.predictions(held)
    gain = gain_interval(
        judge.by_counts(with_others), judge.by_counts(alone), len(held.row), score.higher_is_better, seed=settings.seed
    )
    honest = _honest(client, held, own, settings) if found.parts else gain.gain
    optimism = gain.gain - honest if math.isfinite(honest) else 0.0
    lift, (low, high) = gain.gain - optimism, gain.interval
    interval = low - optimism, high - optimism
    told = [labels[name] for name in found.parts]
    verdict = verdict_of(score, lift, interval, judge(alone), common, told, matters)
    if nobody:
        verdict = Verdict(SAME, f"{TITLES[SAME]}: there is no other client to share with")
    elif not labels:
        verdict = Verdict(FEW, f"{TITLES[FEW]}: no federated part was tried")
    return Advice(
        common, score, found.best, judge(alone), judge(with_others), optimism, lift, interval, found.weighed,
        found.parts, verdict,
    )  # fmt: skip


@dataclass(frozen=True)
class _Chosen:
    """What rows choose: the best alone, and the mixture."""

    weighed: Weighed
    score: Score
    best: str
    weights: dict[str, float]
    parts: tuple[str, ...]

    def judge(self, held: HeldOut) -> Judge:
        return Judge(held.task, held.y, self.score.name)

    def predictions(self, held: HeldOut) -> tuple[np.ndarray, np.ndarray]:
        """Of rows, by the mixture and by the best alone; without a federated part a client keeps the latter."""
        alone = mixed_parts(held.parts, self.weights)
        return (mixed_parts(held.parts, dict(self.weighed.recipe.weights)) if self.parts else alone), alone

    def lift(self, held: HeldOut) -> float:
        judge = self.judge(held)
        with_others, alone = self.predictions(held)
        return float(self.score.gain(judge(with_others), judge(alone)))


def _chosen(client: str, held: HeldOut, own: Sequence[str], settings: MixtureSettings) -> _Chosen:
    found = weigh(client, held, own, settings)
    judge = Judge(held.task, held.y, found.metric)
    score = next(known for known in held.task.scores if known.name == found.metric)
    mine = {name: held.parts[name] for name in held.parts if name in own}
    choices = {name: {name: 1.0} for name in mine}
    if len(mine) > 1:
        loss = row_loss(held.task, held.y)
        choices[BLEND] = weights_of("fitted", mine, list(mine), loss, settings.shrink)
    values = {name: judge(mixed_parts(held.parts, weights)) for name, weights in choices.items()}
    best = score.best(values) or next(iter(choices))
    parts = tuple(name for name in found.recipe.weights if name not in own)
    return _Chosen(found, score, best, choices[best], parts)


def _honest(client: str, held: HeldOut, own: Sequence[str], settings: MixtureSettings) -> float:
    """The mean lift, on rows that a resample left out, of what the resample chose; NaN where none could be scored."""
    rng, rows, found = np.random.default_rng([settings.seed, len(held.row)]), len(held.row), list[float]()
    for _ in range(_RESAMPLES if rows <= _MANY else _RESAMPLES // 4):
        drawn = rng.integers(0, rows, rows)
        left = np.setdiff1d(np.arange(rows), drawn)
        if len(left):
            found.append(_chosen(client, _some(held, drawn), own, settings).lift(_some(held, left)))
    known = [own for own in found if math.isfinite(own)]
    return float(np.mean(known)) if known else math.nan


def _some(held: HeldOut, rows: np.ndarray) -> HeldOut:
    parts = {name: predictions[rows] for name, predictions in held.parts.items()}
    return replace(held, y=held.y[torch.from_numpy(rows)], row=held.row[rows], parts=parts)
