"""What federation gains per client: the study's estimates, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.statistics import Estimate, estimate, holm, verdict, wilcoxon
from fedlit.study.collect import Collected
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study

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
        accuracy = collected.values("accuracy")
        # A share of right answers is undefined only where predictions are not finite.
        self.lost = accuracy.isna() & collected.values("classes").reindex_like(accuracy).notna()

    def values(self, method: str, client: str, metric: str) -> pd.Series:
        """By seed, without seeds for which the score is undefined; NaN for seeds whose predictions were not finite.
        These are not left out: a method would look better for the seeds that it lost.
        """
        if metric not in self._values:
            self._values[metric] = self.collected.values(metric)
        wide = self._values[metric]
        names = self.collected.clients if client in _OVER else [client]
        own = [(method, name) for name in names]
        if not set(own) <= set(wide.columns):
            return pd.Series(dtype=float)
        values = wide[own].min(axis=1) if client == WORST else wide[own].mean(axis=1)
        lost = self.lost[own].any(axis=1)
        return values.where(~lost)[values.notna() | lost]

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
                    row = _flat(own)
                    # a score cannot leave 0 to 1, a symmetric interval can
                    ends = {name: min(max(row[name], 0.0), 1.0) for name in row if name.endswith(("low", "high"))}
                    rows.append({"metric": metric, "method": method, "client": client, **row, **ends})
    return pd.DataFrame(rows)


def lifts(study: Study, scores: Scores) -> pd.DataFrame:
    """One row per metric, reference, federated method and client: the lift over its own reference and over the best
    go-alone model, its intervals, p by Wilcoxon's test and after Holm's correction (over the methods and clients of
    one metric and reference), the verdict.
    """
    rows: list[dict[str, Any]] = []
    methods = [*study.federated, *([BEST_FEDERATED] if BEST_FEDERATED in study.labels else [])]
    references = dict.fromkeys([study.reference, *map(study.reference_of, methods), study.best_alone])
    for metric in study.all_metrics:
        for reference in references:
            family: list[dict[str, Any]] = []
            for method in methods:
                if reference not in (study.reference_of(method), study.best_alone):
                    continue
                for client in scores.clients:
                    own, differences = scores.lift(method, reference, client, metric)
                    if not own.n:
                        continue
                    key = {"metric": metric, "reference": reference, "method": method, "client": client}
                    p = wilcoxon(differences)
                    family.append({**key, **_flat(own), "p": p, "verdict": verdict(own.interval)})
            # mean and worst of the same clients, and the best of the same methods, are no further questions
            repeats = [row["client"] in _OVER or row["method"] == BEST_FEDERATED for row in family]
            counted = [float("nan") if repeat else row["p"] for repeat, row in zip(repeats, family, strict=True)]
            for row, adjusted in zip(family, holm(counted), strict=True):
                row["p_holm"] = adjusted
            rows += family
    columns = ["metric", "reference", "method", "client", *_flat(estimate([])), "p", "p_holm", "verdict"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Answer:
    """Whether federation pays for one client, by the metric to choose by.

    Attributes:
        client: whose question it is.
        federated: test score of the federated method that is best for it on validation, chosen per seed.
        usual_federated: the one that was chosen most often.
        alone: test score of what it would do alone, chosen in the same way.
        usual_alone: the go-alone model that was chosen most often.
        lift: of the first over the second.
        verdict: of the lift.
        better_alone: a go-alone model whose mean test score is above the federated one's, though choosing on validation
            does not find it reliably; None if there is none.
    """

    client: str
    federated: Estimate
    usual_federated: str | None
    alone: Estimate
    usual_alone: str | None
    lift: Estimate
    verdict: str
    better_alone: tuple[str, float] | None = None


def answers(study: Study, scores: Scores) -> list[Answer]:
    """For each client, its best federated method against its best go-alone model, both chosen per seed on validation.
    None where the study has no federated method that leaves rows where they are.
    """
    if not study.candidates:
        return []
    metric = study.choose
    found = []
    for client in scores.collected.clients:
        lift, _ = scores.lift(BEST_FEDERATED, study.best_alone, client, metric)
        mine = scores.estimate(BEST_FEDERATED, client, metric)
        single = {name: scores.estimate(name, client, metric).mean for name in study.alone}
        best = max(single, key=lambda name: single[name] if np.isfinite(single[name]) else -np.inf)
        theirs = scores.estimate(study.best_alone, client, metric)
        hidden = single[best] > mine.mean and not lift.mean < 0
        found.append(
            Answer(
                client,
                mine,
                _usual(scores.collected.chosen, BEST_FEDERATED, client),
                theirs,
                _usual(scores.collected.chosen, BEST_ALONE, client),
                lift,
                verdict(lift.interval),
                (best, single[best]) if hidden else None,
            )
        )
    return found


def _usual(chosen: pd.DataFrame, best: str, client: str) -> str | None:
    own = chosen.loc[(chosen["best"] == best) & (chosen["client"] == client), "method"]
    return str(own.value_counts().idxmax()) if len(own) else None


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
