"""Tables of a study's estimates: what each client gains from federation, and what the others gain
from a client.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.statistics import FEW, MIN_SEEDS, SAME, Estimate, estimate, holm, verdict, wilcoxon
from fedlit.study.collect import Collected
from fedlit.study.study import BEST_FEDERATED, Study
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
        # many tables ask for the same
        self.values, self.resamples = cache(self._of), cache(self._resamples)
        self._bootstrap: dict[tuple[str, int, str], dict[Any, Numbers]] = {
            run: dict(zip(frame.columns, frame.to_numpy(float).T, strict=True))
            for run, frame in collected.bootstrap.items()
        }
        own = collected.scores
        own = own[(own["split"] == "test") & own["metric"].isin(list(COMPARED))]
        self._seeds = sorted(own["seed"].unique())
        wide = own.pivot(
            index="seed", columns=["without", "metric", "method", "client"], values="value"
        )
        self._values: dict[tuple[str, ...], Numbers] = dict(
            zip(map(tuple, wide.columns), wide.reindex(self._seeds).to_numpy(float).T, strict=True)
        )
        # where there is no score at all, predictions were not finite
        lost = (
            own["value"]
            .isna()
            .groupby([own[key] for key in ("without", "method", "client", "seed")])
            .all()
        )
        self._lost = set(lost[lost].index)

    def _clients(self, who: Who) -> list[str]:
        return (
            [*who]
            if isinstance(who, tuple)
            else self.collected.clients
            if who in (MEAN, WORST)
            else [who]
        )

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
        known = ~np.isnan(values)
        with np.errstate(invalid="ignore"):  # of no client 0 / 0
            mean = np.where(known, values, 0.0).sum(0) / known.sum(0)
        # the gain over nothing: the worst has the least, whichever way the score counts
        found = score.gain(np.fmin.reduce(score.gain(values, 0.0)), 0.0) if who == WORST else mean
        lost = np.array(
            [any((without, method, c, seed) in self._lost for c in clients) for seed in self._seeds]
        )
        kept = pd.Series(np.where(lost, np.nan, found), self._seeds)
        return kept[kept.notna() | lost]

    def _resamples(
        self, method: str, who: Who, metric: str, seeds: tuple[int, ...], without: str = ""
    ) -> Numbers | None:
        """(B,) mean over seeds on resampled test rows; None where a seed has none."""
        drawn = [self._resampled(method, seed, who, metric, without) for seed in seeds]
        found = [own for own in drawn if own is not None]
        return np.mean(found, axis=0) if found and len(found) == len(drawn) else None

    def _resampled(
        self, method: str, seed: int, who: Who, metric: str, without: str
    ) -> Numbers | None:
        own = []
        for client in self._clients(who):
            run = self.collected.trained(method, seed, client, without)
            drawn = self._bootstrap.get((run, seed, without), {}).get((client, metric))
            if drawn is None:
                return None
            own.append(drawn)
        score = COMPARED[metric]
        values = np.array(own)
        worst: Numbers = score.gain(np.min(score.gain(values, 0.0), axis=0), 0.0)
        return worst if who == WORST else np.mean(values, axis=0)

    def ratio(self, who: Who) -> float | None:
        """Return test rows / training rows if each seed draws new splits, otherwise None. For a
        mean over clients it is the mean, for the worst client the largest.
        """
        if self.collected.fixed:
            return None
        own = [self.collected.ratio[client] for client in self._clients(who)]
        return float(np.max(own) if who == WORST else np.mean(own))

    def estimate(self, method: str, who: Who, metric: str) -> Estimate:
        """Return the estimate of a method's score."""
        own = self.values(method, who, metric)
        resamples = self.resamples(method, who, metric, tuple(own.index))
        return estimate(own.to_numpy(), ratio=self.ratio(who), resamples=resamples)

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
        mine = self.resamples(method, who, metric, tuple(seeds))
        theirs = self.resamples(reference, who, metric, tuple(seeds), without)
        resamples = None if mine is None or theirs is None else score.gain(mine, theirs)
        return estimate(differences, ratio=self.ratio(who), resamples=resamples), differences


def estimates(study: Study, scores: Scores) -> pd.DataFrame:
    """Return n, mean, sd and interval, with one row for each metric, method and client."""
    rows = []
    for metric in study.all_metrics:
        for method in study.labels:
            for client in scores.clients:
                own = scores.estimate(method, client, metric)
                if own.n:
                    row = flat(own)
                    score = COMPARED[metric]
                    # a score cannot leave its range, a symmetric interval can
                    cut = (name for name in row if name.endswith(("low", "high")))
                    ends = {name: min(max(row[name], score.low), score.high) for name in cut}
                    rows.append(
                        {"metric": metric, "method": method, "client": client, **row, **ends}
                    )
    return pd.DataFrame(rows)


def lifts(study: Study, scores: Scores) -> pd.DataFrame:
    """Return the lifts, with one row for each metric, reference, federated method and client: the
    lift over the method's reference, over the best local baseline and over the best in hindsight,
    with its intervals, the p-value of Wilcoxon's test before and after Holm's correction (over the
    methods and clients of one metric and reference), and the verdict.

    Args:
        study: the study, completed by :meth:`~fedlit.study.study.Study.for_tasks`.
        scores: the scores of its runs.
    """
    rows: list[dict[str, Any]] = []
    methods = [*study.federated, *([BEST_FEDERATED] if BEST_FEDERATED in study.labels else [])]
    references = dict.fromkeys([study.reference, *map(study.reference_of, methods), *study.bars])
    for metric in study.all_metrics:
        for reference in references:
            family = [
                {
                    "metric": metric,
                    "reference": reference,
                    "method": method,
                    "client": client,
                    **found,
                }
                for method in methods
                if reference in (study.reference_of(method), *study.bars)
                for client in scores.clients
                if (found := _compared(scores, study.matters, method, reference, client, metric))
            ]
            # mean and worst of the same clients, and the best of the same methods, are no further
            # questions
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
        *flat(estimate([])),
        "p",
        "p_holm",
        "verdict",
    ]
    return pd.DataFrame(rows, columns=columns)


def _compared(
    scores: Scores,
    matters: float,
    method: str,
    reference: str,
    who: Who,
    metric: str,
    without: str = "",
) -> dict[str, Any] | None:
    """Return a lift with its p-value and verdict as columns of a table; None if no seed has both
    scores.
    """
    own, differences = scores.lift(method, reference, who, metric, without)
    if not own.n:
        return None
    least = COMPARED[metric].least_lift(
        matters, float(scores.values(reference, who, metric, without).mean())
    )
    return {**flat(own), "p": wilcoxon(differences), "verdict": judged(own, least)}


def leave_one_out(study: Study, scores: Scores) -> pd.DataFrame:
    """Return the effects of clients on others, with one row for each metric, federated method,
    joining client and affected client: how much better the affected client is if the other one
    takes part, seed by seed, with the same intervals and verdicts as lifts.

    Args:
        study: the study, completed by :meth:`~fedlit.study.study.Study.for_tasks`.
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
            others = [name for name in scores.collected.clients_of(metric) if name != client]
            everyone: list[tuple[str, Who]] = [
                (OTHERS, tuple(others)),
                *((name, name) for name in others),
            ]
            for method in (BEST_FEDERATED, *study.candidates):
                alone = study.best_alone if method == BEST_FEDERATED else study.reference_of(method)
                felt = {client: _compared(scores, study.matters, method, alone, client, metric)}
                for name, who in everyone if others else ():
                    felt[name] = _compared(
                        scores, study.matters, method, method, who, metric, client
                    )
                key = {"metric": metric, "method": method, "joins": client}
                rows += [{**key, "client": name, **found} for name, found in felt.items() if found]
    columns = ["metric", "method", "joins", "client", *flat(estimate([])), "verdict"]
    return pd.DataFrame(rows, columns=columns)


def judged(lift: Estimate, least: float) -> str:
    """Return the verdict on a lift over seeds: not enough data below three seeds; no difference if
    no seed shows any.

    Args:
        lift: the estimate of the lift over seeds.
        least: the smallest lift that matters, in the same unit.
    """
    if lift.n < MIN_SEEDS:
        return FEW
    return SAME if lift.mean == 0.0 == lift.sd else verdict(lift.mean, lift.interval, least)


def flat(own: Estimate) -> dict[str, float]:
    """Return an estimate as the columns of a table."""
    low, high = own.interval
    return {
        "n": own.n, "mean": own.mean, "sd": own.sd, "low": low, "high": high,
        "seeds_low": own.seeds[0], "seeds_high": own.seeds[1], "rows_low": own.rows[0], "rows_high": own.rows[1],
    }  # fmt: skip
