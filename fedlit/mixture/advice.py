"""A client's answer from held-out rows: what it reaches alone, what it reaches with others, and how
certain that is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedlit.answers.answer import Answer
from fedlit.answers.decide import answer_of
from fedlit.answers.verdict import MATTERS
from fedlit.mixture.combine import Combined, combine
from fedlit.mixture.settings import Mixing
from fedlit.mixture.weigh import weights_of
from fedlit.statistics import over_rows
from fedlit.tasks.predictions import MIXTURE, Predictions
from fedlit.types import Floats
from fedlit.weights import mixed

# for a mean; of many rows, where there is little to correct, a quarter
_RESAMPLES = 40
_MANY = 2000


def advise(
    client: str,
    rows: Predictions,
    local: Collection[str],
    mixing: Mixing,
    labels: Mapping[str, str],
    *,
    matters: float = MATTERS,
    seed: int = 0,
) -> tuple[Answer, Combined]:
    """Return the answer that a client's held-out rows give, and the mixture that all rows chose.

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
    honest = None
    if choice.parts:
        honest = _honest(client, rows, local, mixing, seed)
    lift = over_rows(
        judge.by_counts(mixture),
        judge.by_counts(best_alone),
        len(rows.row),
        judge.score.gain,
        honest=honest,
        seed=seed,
    )
    alone = judge(best_alone)
    answer = answer_of(
        client,
        judge.score,
        lift,
        judge.score.least_lift(matters, alone),
        reference=choice.best,
        alone=alone,
        methods=[labels.get(name, name) for name in choice.parts],
        federated=judge(mixture),
        rows=len(rows.row),
        tried=bool(labels),
    )
    return answer, choice.combined


@dataclass(frozen=True)
class _Chosen:
    """What rows choose: the best model alone, and the mixture."""

    combined: Combined
    best: str
    weights: dict[str, float]
    parts: tuple[str, ...]

    def predictions(self, rows: Predictions) -> tuple[Floats, Floats]:
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
        choices[MIXTURE] = weights_of("fitted", rows.only(local_names), local_names, mixing.shrink)
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
