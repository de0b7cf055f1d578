"""Tables of a study's estimates: what each client gains from federation, and what the others gain
from a client.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.answers.verdict import Verdict, verdict_on
from fedlit.statistics import Estimate, holm, over_seeds, wilcoxon
from fedlit.study.collect import Collected
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.study import BEST_FEDERATED
from fedlit.tasks import COMPARED

# No client can have these names.
MEAN = "(mean)"
WORST = "(worst)"
OTHERS = "(others)"
LEFT_OUT = "leave_one_out.csv"
Numbers = NDArray[np.float64]
Who = str | tuple[str, ...]


def client_label(name: str) -> str:
    """Return the name of a client, or of the mean or worst over clients, for the user."""
    return {MEAN: "mean over clients", WORST: "worst client"}.get(name, name)


class Scores:
    """The test scores of a study by method, client and metric. Instead of a client, one may ask for
    the mean over all clients (:data:`MEAN`), for the worst client of each seed (:data:`WORST`), and
    for the mean over several clients, given as a tuple.

    Args:
        collected: the study's results.
    """

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.clients = [*collected.clients, MEAN, WORST]
        # Many tables ask for the same values.
        self.values = cache(self._of)
        self.resamples = cache(self._resamples)
        self._bootstrap: dict[tuple[str, int, str], dict[Any, Numbers]] = {
            run: dict(zip(frame.columns, frame.to_numpy(float).T, strict=True))
            for run, frame in collected.bootstrap.items()
        }
        scores = collected.scores
        scores = scores[(scores["split"] == "test") & scores["metric"].isin(list(COMPARED))]
        self._seeds = sorted(scores["seed"].unique())
        wide = scores.pivot(
            index="seed", columns=["without", "metric", "method", "client"], values="value"
        )
        self._values: dict[tuple[str, ...], Numbers] = dict(
            zip(map(tuple, wide.columns), wide.reindex(self._seeds).to_numpy(float).T, strict=True)
        )
        # A client without any score had predictions that were not finite.
        lost = (
            scores["value"]
            .isna()
            .groupby([scores[key] for key in ("without", "method", "client", "seed")])
            .all()
        )
        self._lost = set(lost[lost].index)

    def _clients(self, who: Who) -> list[str]:
        if isinstance(who, tuple):
            return [*who]
        return self.collected.clients if who in (MEAN, WORST) else [who]

    def _of(self, method: str, who: Who, metric: str, without: str = "") -> pd.Series:
        """By seed, without seeds for which the score is undefined; NaN for seeds whose predictions
        were not finite. These are not left out: a method would look better for the seeds that it
        lost.
        """
        clients = self._clients(who)
        keys = [(without, metric, method, client) for client in clients]
        if not all(key in self._values for key in keys):
            return pd.Series(dtype=float)
        score = COMPARED[metric]
        values = np.array([self._values[key] for key in keys])
        defined = ~np.isnan(values)
        with np.errstate(invalid="ignore"):  # a seed without any client gives 0 / 0
            mean = np.where(defined, values, 0.0).sum(0) / defined.sum(0)
        combined = mean
        if who == WORST:
            # The worst client has the smallest gain over nothing, whichever way the score counts.
            combined = score.gain(np.fmin.reduce(score.gain(values, 0.0)), 0.0)
        lost = np.zeros(len(self._seeds), bool)
        for client in clients:
            lost |= [(without, method, client, seed) in self._lost for seed in self._seeds]
        series = pd.Series(np.where(lost, np.nan, combined), self._seeds)
        return series[series.notna() | lost]

    def _resamples(
        self, method: str, who: Who, metric: str, seeds: tuple[int, ...], without: str = ""
    ) -> Numbers | None:
        """(B,) mean over seeds on resampled test rows; None where a seed has none."""
        drawn = [self._resampled(method, seed, who, metric, without) for seed in seeds]
        resamples = [resample for resample in drawn if resample is not None]
        return np.mean(resamples, axis=0) if resamples and len(resamples) == len(drawn) else None

    def _resampled(
        self, method: str, seed: int, who: Who, metric: str, without: str
    ) -> Numbers | None:
        resamples = []
        for client in self._clients(who):
            run = self.collected.trained(method, seed, client, without)
            drawn = self._bootstrap.get((run, seed, without), {}).get((client, metric))
            if drawn is None:
                return None
            resamples.append(drawn)
        score = COMPARED[metric]
        values = np.array(resamples)
        worst: Numbers = score.gain(np.min(score.gain(values, 0.0), axis=0), 0.0)
        return worst if who == WORST else np.mean(values, axis=0)

    def ratio(self, who: Who) -> float | None:
        """Return test rows / training rows if each seed draws new splits, otherwise None. For a
        mean over clients it is the mean, for the worst client the largest.
        """
        if self.collected.fixed:
            return None
        ratios = [self.collected.ratio[client] for client in self._clients(who)]
        return float(np.max(ratios) if who == WORST else np.mean(ratios))

    def estimate(self, method: str, who: Who, metric: str) -> Estimate:
        """Return the estimate of a method's score."""
        values = self.values(method, who, metric)
        resamples = self.resamples(method, who, metric, tuple(values.index))
        return over_seeds(values.to_numpy(), ratio=self.ratio(who), resamples=resamples)

    def lift(
        self, method: str, reference: str, who: Who, metric: str, without: str = ""
    ) -> tuple[Estimate, Numbers]:
        """Return the estimate of the differences by seed (how much better the method is than the
        reference), and these differences.

        Args:
            method: the method, trained with all clients.
            reference: the method to compare with.
            who: one client, or several.
            metric: the metric of the comparison.
            without: the client without which the reference was trained; "" for none.
        """
        score = COMPARED[metric]
        first = self.values(method, who, metric)
        second = self.values(reference, who, metric, without)
        seeds = first.index.intersection(second.index)
        differences = score.gain(first[seeds], second[seeds]).to_numpy(float)
        method_resamples = self.resamples(method, who, metric, tuple(seeds))
        reference_resamples = self.resamples(reference, who, metric, tuple(seeds), without)
        resamples = (
            None
            if method_resamples is None or reference_resamples is None
            else score.gain(method_resamples, reference_resamples)
        )
        return over_seeds(differences, ratio=self.ratio(who), resamples=resamples), differences


def estimates(study: ResolvedStudy, scores: Scores) -> pd.DataFrame:
    """Return n, mean, sd and interval, with one row for each metric, method and client."""
    rows = []
    for metric in study.all_metrics:
        for method in study.labels:
            for client in scores.clients:
                estimated = scores.estimate(method, client, metric)
                if estimated.n:
                    row = flat(estimated)
                    score = COMPARED[metric]
                    # A symmetric interval can leave the score's range, in which the score must be.
                    cut = (name for name in row if name.endswith(("low", "high")))
                    ends = {name: min(max(row[name], score.low), score.high) for name in cut}
                    rows.append(
                        {"metric": metric, "method": method, "client": client, **row, **ends}
                    )
    return pd.DataFrame(rows)


def lifts(study: ResolvedStudy, scores: Scores) -> pd.DataFrame:
    """Return the lifts, with one row for each metric, reference, federated method and client: the
    lift over the method's reference, over the best local baseline and over the best in hindsight,
    with its intervals, the p-value of Wilcoxon's test before and after Holm's correction (over the
    methods and clients of one metric and reference), and the verdict.

    Args:
        study: the study.
        scores: the scores of its runs.
    """
    rows: list[dict[str, Any]] = []
    methods = study.federated
    if BEST_FEDERATED in study.labels:
        methods = [*methods, BEST_FEDERATED]
    references = dict.fromkeys([study.reference, *map(study.reference_of, methods), *study.bars])
    for metric in study.all_metrics:
        for reference in references:
            family: list[dict[str, Any]] = []
            for method in methods:
                if reference not in (study.reference_of(method), *study.bars):
                    continue
                for client in scores.clients:
                    key = {
                        "metric": metric,
                        "reference": reference,
                        "method": method,
                        "client": client,
                    }
                    lift = lift_over(scores, study.matters, method, reference, client, metric)
                    if lift.estimate.n:
                        family.append({**key, **lift.row()})
            # Mean and worst of the same clients, and the best of the same methods, are no further
            # questions.
            repeats = [
                row["client"] in (MEAN, WORST) or row["method"] == BEST_FEDERATED for row in family
            ]
            counted = [
                float("nan") if repeat else row["p"]
                for repeat, row in zip(repeats, family, strict=True)
            ]
            rows += [
                {**row, "p_holm": adjusted}
                for row, adjusted in zip(family, holm(counted), strict=True)
            ]
    columns = [
        "metric",
        "reference",
        "method",
        "client",
        *flat(over_seeds([])),
        "p",
        "p_holm",
        "verdict",
    ]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Lift:
    """A lift over seeds.

    Attributes:
        estimate: the lift with its intervals.
        p: the p-value of Wilcoxon's test.
        least: the smallest lift that matters.
    """

    estimate: Estimate
    p: float
    least: float

    @property
    def verdict(self) -> Verdict:
        """The verdict on the lift."""
        return verdict_on(self.estimate, self.least)

    def row(self) -> dict[str, Any]:
        """Return the lift as columns of a table."""
        return {**flat(self.estimate), "p": self.p, "verdict": self.verdict.value}


def lift_over(
    scores: Scores,
    matters: float,
    method: str,
    reference: str,
    who: Who,
    metric: str,
    without: str = "",
) -> Lift:
    """Return the lift of a method over a reference.

    Args:
        scores: the scores of a study.
        matters: the smallest lift that matters, in percentage points or percent.
        method: the method, trained with all clients.
        reference: the method to compare with.
        who: one client, or several.
        metric: the metric of the comparison.
        without: the client without which the reference was trained; "" for none.
    """
    estimate, differences = scores.lift(method, reference, who, metric, without)
    alone = float(scores.values(reference, who, metric, without).mean())
    return Lift(estimate, wilcoxon(differences), COMPARED[metric].least_lift(matters, alone))


def leave_one_out(study: ResolvedStudy, scores: Scores) -> pd.DataFrame:
    """Return the effects of clients on others, with one row for each metric, federated method,
    joining client and affected client: how much better the affected client is if the other one
    takes part, seed by seed, with the same intervals and verdicts as lifts.

    Args:
        study: the study.
        scores: the scores of its runs.

    Returns:
        The columns ``metric``, ``method``, ``joins`` (the joining client), ``client`` (the affected
        client: the joining client itself, whose row is its lift over training alone; another one;
            or ``(others)``, the mean over all others
        that have the metric), ``n``, ``mean``, ``sd``, ``low``, ``high``, … as in ``lift.csv``, in
        the score's unit (for a score in percent, 0.01 is a percentage point), and ``verdict``.
        Empty if ``leave_one_out`` was not asked for.
    """
    rows: list[dict[str, Any]] = []
    for metric in study.all_metrics if study.leave_one_out else ():
        for client in scores.collected.clients_of(metric):
            remaining = [name for name in scores.collected.clients_of(metric) if name != client]
            everyone: list[tuple[str, Who]] = [
                (OTHERS, tuple(remaining)),
                *((name, name) for name in remaining),
            ]
            for method in (BEST_FEDERATED, *study.candidates):
                alone = study.best_alone if method == BEST_FEDERATED else study.reference_of(method)
                felt = {client: lift_over(scores, study.matters, method, alone, client, metric)}
                for name, who in everyone if remaining else ():
                    felt[name] = lift_over(
                        scores, study.matters, method, method, who, metric, client
                    )
                key = {"metric": metric, "method": method, "joins": client}
                for name, effect in felt.items():
                    if effect.estimate.n:
                        rows.append({**key, "client": name, **effect.row()})
    columns = ["metric", "method", "joins", "client", *flat(over_seeds([])), "verdict"]
    return pd.DataFrame(rows, columns=columns)


def flat(estimated: Estimate) -> dict[str, float]:
    """Return an estimate as the columns of a table."""
    low, high = estimated.interval
    return {
        "n": estimated.n, "mean": estimated.mean, "sd": estimated.sd, "low": low, "high": high,
        "seeds_low": estimated.seeds[0], "seeds_high": estimated.seeds[1],
        "rows_low": estimated.rows[0], "rows_high": estimated.rows[1],
    }  # fmt: skip
