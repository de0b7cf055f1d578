"""What federation gains per client: the study's estimates, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.statistics import FEW, MIN_SEEDS, SAME, TITLES, Estimate, estimate, holm, verdict, wilcoxon
from fedlit.study.collect import Collected
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, Study
from fedlit.tasks import COMPARED

__all__ = [
    "MEAN", "WORST", "Answer", "Scores", "answers", "client_label", "count_verdicts", "estimates", "flat", "judged",
    "lifts",
]  # fmt: skip

# No client can have these names.
MEAN, WORST = "(mean)", "(worst)"


def client_label(name: str) -> str:
    """How a client, or the mean over them, is called."""
    return {MEAN: "mean over clients", WORST: "worst client"}.get(name, name)


class Scores:
    """Test scores of a study by method, client and metric; besides clients there are their mean and the worst of each
    seed.

    Args:
        collected: the study's results.
    """

    def __init__(self, collected: Collected) -> None:
        self.collected = collected
        self.clients = [*collected.clients, MEAN, WORST]
        self._wide: dict[str, pd.DataFrame] = {}
        self._values: dict[tuple[str, str, str], pd.Series] = {}
        own = collected.results
        own = own[(own["split"] == "test") & own["metric"].isin(list(COMPARED))]
        # Where there is no score at all, predictions were not finite.
        without = own["value"].isna().groupby([own["seed"], own["method"], own["client"]]).all()
        self._lost = without.unstack(["method", "client"], fill_value=False)

    def values(self, method: str, client: str, metric: str) -> pd.Series:
        """By seed, without seeds for which the score is undefined; NaN for seeds whose predictions were not finite.
        These are not left out: a method would look better for the seeds that it lost.
        """
        key = (method, client, metric)
        if key not in self._values:
            self._values[key] = self._of_seeds(*key)
        return self._values[key]

    def _of_seeds(self, method: str, client: str, metric: str) -> pd.Series:
        if metric not in self._wide:
            self._wide[metric] = self.collected.values(metric)
        wide = self._wide[metric]
        names = self.collected.clients if client in (MEAN, WORST) else [client]
        own = [(method, name) for name in names]
        if not set(own) <= set(wide.columns):
            return pd.Series(dtype=float)
        score = COMPARED[metric]
        # the gain over nothing: the worst has the least, whichever way the score counts
        values = score.gain(score.gain(wide[own], 0.0).min(axis=1), 0.0) if client == WORST else wide[own].mean(axis=1)
        lost = self._lost.reindex(index=wide.index, columns=own, fill_value=False).any(axis=1)
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
        if client not in (MEAN, WORST):
            return frame[client, metric].to_numpy() if (client, metric) in frame else None
        own = [frame.get((name, metric)) for name in self.collected.clients]
        if any(part is None for part in own):
            return None
        score, drawn = COMPARED[metric], np.array(own)
        worst: NDArray[np.float64] = score.gain(np.min(score.gain(drawn, 0.0), axis=0), 0.0)
        return worst if client == WORST else np.mean(drawn, axis=0)

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

    def least(self, reference: str, client: str, metric: str, matters: float) -> float:
        """The smallest lift over a reference that matters (see :meth:`fedlit.tasks.Score.least_lift`)."""
        return COMPARED[metric].least_lift(matters, float(self.values(reference, client, metric).mean()))

    def lift(self, method: str, reference: str, client: str, metric: str) -> tuple[Estimate, NDArray[np.float64]]:
        """Of the differences by seed (how much better the method is than the reference), and these."""
        score = COMPARED[metric]
        first, second = self.values(method, client, metric), self.values(reference, client, metric)
        seeds = first.index.intersection(second.index)
        differences = score.gain(first[seeds], second[seeds]).to_numpy(float)
        mine = self.resamples(method, client, metric, list(seeds))
        theirs = self.resamples(reference, client, metric, list(seeds))
        resamples = None if mine is None or theirs is None else score.gain(mine, theirs)
        return estimate(differences, ratio=self.ratio(client), resamples=resamples), differences


def estimates(study: Study, scores: Scores) -> pd.DataFrame:
    """One row per metric, method and client: n, mean, sd, interval, of what."""
    rows = []
    for metric in study.all_metrics:
        for method in study.labels:
            for client in scores.clients:
                own = scores.estimate(method, client, metric)
                if own.n:
                    row, score = flat(own), COMPARED[metric]
                    # a score cannot leave its range, a symmetric interval can
                    cut = (name for name in row if name.endswith(("low", "high")))
                    ends = {name: min(max(row[name], score.low), score.high) for name in cut}
                    rows.append({"metric": metric, "method": method, "client": client, **row, **ends})
    return pd.DataFrame(rows)


def lifts(study: Study, scores: Scores) -> pd.DataFrame:
    """One row per metric, reference, federated method and client: the lift over its own reference, over the best
    go-alone model, over the best in hindsight and over what other programs did, its intervals, p by Wilcoxon's test
    and after Holm's correction (over the methods and clients of one metric and reference), the verdict.
    """
    rows: list[dict[str, Any]] = []
    methods = [*study.federated, *([BEST_FEDERATED] if BEST_FEDERATED in study.labels else [])]
    references = dict.fromkeys([study.reference, *map(study.reference_of, methods), *study.bars])
    for metric in study.all_metrics:
        for reference in references:
            family: list[dict[str, Any]] = []
            for method in methods:
                if reference not in (study.reference_of(method), *study.bars):
                    continue
                for client in scores.clients:
                    own, differences = scores.lift(method, reference, client, metric)
                    if not own.n:
                        continue
                    key = {"metric": metric, "reference": reference, "method": method, "client": client}
                    p = wilcoxon(differences)
                    family.append(
                        {
                            **key,
                            **flat(own),
                            "p": p,
                            "verdict": judged(own, scores.least(reference, client, metric, study.matters)),
                        }
                    )
            # mean and worst of the same clients, and the best of the same methods, are no further questions
            repeats = [row["client"] in (MEAN, WORST) or row["method"] == BEST_FEDERATED for row in family]
            counted = [float("nan") if repeat else row["p"] for repeat, row in zip(repeats, family, strict=True)]
            for row, adjusted in zip(family, holm(counted), strict=True):
                row["p_holm"] = adjusted
            rows += family
    columns = ["metric", "reference", "method", "client", *flat(estimate([])), "p", "p_holm", "verdict"]
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
        hindsight: the go-alone model that is best in hindsight, its test score, and the lift of the federated method
            over it; None where there is one model alone.
        varied: whether seeds chose different federated methods, and different go-alone models.
    """

    client: str
    federated: Estimate
    usual_federated: str | None
    alone: Estimate
    usual_alone: str | None
    lift: Estimate
    verdict: str
    hindsight: tuple[str, float, Estimate] | None = None
    varied: tuple[bool, bool] = (False, False)


def answers(study: Study, scores: Scores) -> list[Answer]:
    """For each client, its best federated method against its best model alone, both chosen per seed on validation.
    None where the study has no federated method that leaves rows where they are.
    """
    if not study.candidates:
        return []
    found = []
    for client in scores.collected.clients:
        metric, chosen = study.choice_of(client), scores.collected.chosen
        lift, _ = scores.lift(BEST_FEDERATED, study.best_alone, client, metric)
        mine = scores.estimate(BEST_FEDERATED, client, metric)
        theirs = scores.estimate(study.best_alone, client, metric)
        least = scores.least(study.best_alone, client, metric, study.matters)
        found.append(
            Answer(
                client,
                mine,
                _usual(chosen, BEST_FEDERATED, client),
                theirs,
                _usual(chosen, BEST_ALONE, client),
                lift,
                judged(lift, least),
                _in_hindsight(scores, client, metric),
                (_varied(chosen, BEST_FEDERATED, client), _varied(chosen, BEST_ALONE, client)),
            )
        )
    return found


def _in_hindsight(scores: Scores, client: str, metric: str) -> tuple[str, float, Estimate] | None:
    name = _usual(scores.collected.chosen, HINDSIGHT, client)
    if name is None:
        return None
    lift, _ = scores.lift(BEST_FEDERATED, HINDSIGHT, client, metric)
    return name, scores.estimate(HINDSIGHT, client, metric).mean, lift


def judged(lift: Estimate, least: float) -> str:
    """The verdict on a lift over seeds: none below three seeds; no difference where no seed shows any.

    Args:
        lift: over seeds.
        least: that matters, in the same unit.
    """
    if lift.n < MIN_SEEDS:
        return FEW
    return SAME if lift.mean == 0.0 == lift.sd else verdict(lift.mean, lift.interval, least)


def _usual(chosen: pd.DataFrame, best: str, client: str) -> str | None:
    own = _choices(chosen, best, client)
    return str(own.value_counts().idxmax()) if len(own) else None


def _varied(chosen: pd.DataFrame, best: str, client: str) -> bool:
    return bool(_choices(chosen, best, client).nunique() > 1)


def _choices(chosen: pd.DataFrame, best: str, client: str) -> pd.Series:
    return chosen.loc[(chosen["best"] == best) & (chosen["client"] == client), "method"]


def flat(own: Estimate) -> dict[str, float]:
    """An estimate as columns of a table."""
    low, high = own.interval
    return {
        "n": own.n, "mean": own.mean, "sd": own.sd, "low": low, "high": high,
        "seeds_low": own.seeds[0], "seeds_high": own.seeds[1], "rows_low": own.rows[0], "rows_high": own.rows[1],
    }  # fmt: skip


def count_verdicts(lift: pd.DataFrame, metric: str, reference: str) -> pd.DataFrame:
    """How many clients have which verdict; index: method, columns: those of :data:`fedlit.statistics.TITLES`."""
    own = lift[(lift["metric"] == metric) & (lift["reference"] == reference) & ~lift["client"].isin([MEAN, WORST])]
    table = own.groupby("method", sort=False)["verdict"].value_counts().unstack(fill_value=0)
    return table.reindex(columns=list(TITLES), fill_value=0).reindex(own["method"].unique())
