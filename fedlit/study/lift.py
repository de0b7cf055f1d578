"""What federation gains per client: the study's estimates, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.study.collect import Collected
from fedlit.study.statistics import Estimate, estimate, holm, verdict, wilcoxon
from fedlit.study.study import BEST_ALONE, Study

__all__ = ["MEAN", "WORST", "Answer", "Scores", "answers", "count_verdicts", "estimates", "lifts"]

# No client can have these names.
MEAN, WORST = "(mean)", "(worst)"
_OVER: dict[str, Callable[..., Any]] = {MEAN: np.mean, WORST: np.min}


class Scores:
    """Test scores of a study by method, client and metric; besides clients there are their mean and the worst of each
    seed.

    Args:
        collected: the study's results.
    """

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.clients = [*collected.clients, *_OVER]
        self._values: dict[str, pd.DataFrame] = {}
        self._resamples: dict[tuple[str, int, str, str], NDArray[np.float64]] = {}

    def values(self, method: str, client: str, metric: str) -> pd.Series:
        """By seed, without seeds for which the score is missing or undefined."""
        if metric not in self._values:
            self._values[metric] = self.collected.values(metric)
        wide = self._values[metric]
        if client in _OVER:
            own = [(method, name) for name in self.collected.clients]
            if not set(own) <= set(wide.columns):
                return pd.Series(dtype=float)
            return wide[own].dropna().agg(_OVER[client], axis=1)
        return wide[method, client].dropna() if (method, client) in wide else pd.Series(dtype=float)

    def resamples(self, method: str, client: str, metric: str, seeds: Sequence[int]) -> NDArray[np.float64] | None:
        """(B,) mean over seeds on resampled test rows; None where a seed has none."""
        drawn = [self._resampled(method, seed, client, metric) for seed in seeds]
        found = [own for own in drawn if own is not None]
        return np.mean(found, axis=0) if found and len(found) == len(drawn) else None

    def _resampled(self, method: str, seed: int, client: str, metric: str) -> NDArray[np.float64] | None:
        frame = self.collected.bootstrap.get((method, seed))
        if frame is None:
            return None
        if client in _OVER:
            own = [frame.get((name, metric)) for name in self.collected.clients]
            return None if any(part is None for part in own) else _OVER[client](np.array(own), axis=0)
        return frame[client, metric].to_numpy() if (client, metric) in frame else None

    def ratio(self, client: str) -> float | None:
        """Test rows / training rows where seeds draw splits anew, else None. For the mean over clients the mean, for
        the worst the largest.
        """
        if self.collected.fixed:
            return None
        own = self.collected.ratio
        return own[client] if client in own else float((np.mean if client == MEAN else np.max)(list(own.values())))

    def estimate(self, method: str, client: str, metric: str) -> Estimate:
        """Of a method's score."""
        own = self.values(method, client, metric)
        resamples = self.resamples(method, client, metric, list(own.index))
        return estimate(own.to_numpy(), ratio=self.ratio(client), resamples=resamples)

    def lift(self, method: str, reference: str, client: str, metric: str) -> tuple[Estimate, NDArray[np.float64]]:
        """Of the differences by seed (method minus reference), and these."""
        first, second = self.values(method, client, metric), self.values(reference, client, metric)
        seeds = first.index.intersection(second.index)
        differences = (first[seeds] - second[seeds]).to_numpy(float)
        mine = self.resamples(method, client, metric, list(seeds))
        theirs = self.resamples(reference, client, metric, list(seeds))
        resamples = None if mine is None or theirs is None else mine - theirs
        return estimate(differences, ratio=self.ratio(client), resamples=resamples), differences


def estimates(study: Study, scores: Scores) -> pd.DataFrame:
    """One row per metric, method and client: n, mean, sd, interval, of what."""
    rows = []
    for metric in study.all_metrics:
        for method in study.labels:
            for client in scores.clients:
                own = scores.estimate(method, client, metric)
                if own.n:
                    # a score cannot leave 0 to 1, a symmetric interval can
                    ends = {
                        name: min(max(end, 0.0), 1.0)
                        for name, end in _flat(own).items()
                        if "low" in name or "high" in name
                    }
                    rows.append({"metric": metric, "method": method, "client": client, **_flat(own), **ends})
    return pd.DataFrame(rows)


def lifts(study: Study, scores: Scores) -> pd.DataFrame:
    """One row per metric, reference, federated method and client: the lift, its intervals, p by Wilcoxon's test and
    after Holm's correction (over the methods and clients of one metric and reference), the verdict.
    """
    rows: list[dict[str, Any]] = []
    for metric in study.all_metrics:
        for reference in [study.reference, *([BEST_ALONE] if study.baselines else [])]:
            family: list[dict[str, Any]] = []
            for method in study.federated:
                for client in scores.clients:
                    own, differences = scores.lift(method, reference, client, metric)
                    if not own.n:
                        continue
                    key = {"metric": metric, "reference": reference, "method": method, "client": client}
                    p = wilcoxon(differences)
                    family.append({**key, **_flat(own), "p": p, "verdict": verdict(own.interval)})
            # the mean and the worst of the same clients are no further questions
            counted = [row["p"] if row["client"] not in _OVER else float("nan") for row in family]
            for row, adjusted in zip(family, holm(counted), strict=True):
                row["p_holm"] = adjusted
            rows += family
    columns = ["metric", "reference", "method", "client", *_flat(estimate([])), "p", "p_holm", "verdict"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Answer:
    """Whether federation pays for one client.

    Attributes:
        client: whose question it is.
        method: the federated method that is best for it on validation, by the mean over seeds.
        score: that method's test score.
        alone: what it would do alone: the best go-alone model, or the reference where there are no baselines.
        alone_score: of that, on test.
        usual: the go-alone model that was the best on validation most often.
        lift: over going alone, on test.
        verdict: of the lift.
    """

    client: str
    method: str
    score: Estimate
    alone: str
    alone_score: Estimate
    usual: str
    lift: Estimate
    verdict: str


def answers(study: Study, scores: Scores) -> list[Answer]:
    """For each client, its best federated method against going alone, both chosen on validation, by the metric to
    choose by. Methods that need all rows in one place are no candidates.
    """
    metric, collected = study.choose, scores.collected
    alone = BEST_ALONE if study.baselines else study.reference
    validation = collected.values(metric, "validation").mean()
    found = []
    for client in collected.clients:
        candidates = {
            method: float(validation[method, client])
            for method in study.federated
            if not study.methods[method].pooled and (method, client) in validation
        }
        candidates = {method: value for method, value in candidates.items() if np.isfinite(value)}
        if not candidates:
            continue
        method = max(candidates, key=candidates.__getitem__)
        lift, _ = scores.lift(method, alone, client, metric)
        chosen = collected.chosen.loc[collected.chosen["client"] == client, "method"]
        usual = str(chosen.value_counts().idxmax()) if len(chosen) else study.reference
        mine, theirs = (scores.estimate(name, client, metric) for name in (method, alone))
        found.append(Answer(client, method, mine, alone, theirs, usual, lift, verdict(lift.interval)))
    return found


def _flat(own: Estimate) -> dict[str, float]:
    low, high = own.interval
    return {
        "n": own.n, "mean": own.mean, "sd": own.sd, "low": low, "high": high,
        "seeds_low": own.seeds[0], "seeds_high": own.seeds[1], "rows_low": own.rows[0], "rows_high": own.rows[1],
    }  # fmt: skip


def count_verdicts(lift: pd.DataFrame, metric: str, reference: str) -> pd.DataFrame:
    """How many clients each method helped, left unchanged, harmed, and left unknown; index: method."""
    own = lift[(lift["metric"] == metric) & (lift["reference"] == reference) & ~lift["client"].isin(list(_OVER))]
    columns = ["helped", "unchanged", "harmed", "unknown"]
    table = own.groupby("method", sort=False)["verdict"].value_counts().unstack(fill_value=0)
    return table.reindex(columns=columns, fill_value=0).reindex(own["method"].unique())
