"""What the scenarios of a study say together: each method's rank among the others, whom it helps and whom it harms.

<study>/across.md     tables
       /across.csv    one row per scenario and method
       /ranks.csv     one row per method
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedlit.files import write_frames, write_text
from fedlit.seeding import derive_seed
from fedlit.show.shown import Grid, Shown
from fedlit.statistics import ALONE, JOIN
from fedlit.study.findings import Findings
from fedlit.study.lift import MEAN, WORST
from fedlit.study.sections import Section, markdown, terminal
from fedlit.study.study import BEST_ALONE
from fedlit.study.tables import NOTHING
from fedlit.tasks import Score

__all__ = ["Across", "rank_table"]

RESAMPLES, FEWEST = 2000, 3


def rank_table(values: pd.DataFrame, *, higher_is_better: bool = True, resamples: int = RESAMPLES) -> pd.DataFrame:
    """Mean ranks of methods over clients, 1 the best, equals sharing theirs.

    Args:
        values: a row a client, a column a method, all known.
        higher_is_better: whether a larger value is better.
        resamples: of clients, for the interval.

    Returns:
        Index: method, the best first; columns rank, low, high: the mean over clients and its 95 % interval by a
        bootstrap over clients.

    Example:
        >>> rank_table(pd.DataFrame({"a": [0.9, 0.8], "b": [0.7, 0.6]}))[["rank"]].to_dict()
        {'rank': {'a': 1.0, 'b': 2.0}}
    """
    ranks = values.rank(axis=1, ascending=not higher_is_better).to_numpy(float)
    generator = np.random.default_rng(derive_seed(0, "ranks"))
    drawn = ranks[generator.integers(0, len(ranks), (resamples, len(ranks)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    found = pd.DataFrame({"rank": ranks.mean(0), "low": low, "high": high}, index=values.columns)
    return found.sort_values("rank", kind="stable")


@dataclass(frozen=True, eq=False, repr=False)
class Across(Shown):
    """Several scenarios of one study.

    Args:
        found: what each of them found, by its name.

    Attributes:
        found: see above.
    """

    found: Mapping[str, Findings]

    @cached_property
    def _first(self) -> Findings:
        return next(iter(self.found.values()))

    @property
    def score(self) -> Score:
        """By which methods are ranked."""
        return self._first.scores[0]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Method → label: what is trained, and what a client would do alone."""
        study = self._first.study
        names = [name for name in study.methods if not study.methods[name].pooled]
        return {name: study.labels[name] for name in (*names, *([BEST_ALONE] if BEST_ALONE in study.labels else []))}

    @cached_property
    def values(self) -> pd.DataFrame:
        """The mean test score over seeds: a row a client, (scenario, client), a column a method.

        NaN where a method lacks a seed that another has: its mean would be of those that went well.
        """
        parts = {}
        for scenario, own in self.found.items():
            known = own.estimates[own.estimates["metric"] == self.score.name]
            known = known[~known["client"].isin([MEAN, WORST])]
            means = known.pivot(index="client", columns="method", values="mean")
            seeds = own.collected.values(self.score.name).notna().sum().unstack("method").reindex_like(means)
            parts[scenario] = means.where(seeds.eq(seeds.max(axis=1), axis=0))
        return pd.concat(parts, names=["scenario", "client"]).reindex(columns=list(self.labels))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per scenario and method: means over clients and seeds, lifts over Local and over the best alone, how
        many clients should join and stay alone by them, seconds of training.
        """
        rows = [
            {"scenario": scenario, "method": name, **_row(own, name, self.score)}
            for scenario, own in self.found.items()
            for name in self.labels
            if (own.estimates["method"] == name).any()
        ]
        return pd.DataFrame(rows)

    @cached_property
    def ranked(self) -> pd.DataFrame:
        """Those that every client has (see :func:`rank_table`), with how many clients should join, or stay alone."""
        ranks = rank_table(self.values.dropna(axis=1), higher_is_better=self.score.higher_is_better)
        counts = [f"{verdict}_{over}" for over in ("local", "alone") for verdict in (JOIN, ALONE)]
        return ranks.join(self.frame.groupby("method")[counts].sum())

    @property
    def p(self) -> float:
        """Of Friedman's test that all methods are alike; NaN for fewer than three methods or clients."""
        values = self.values.dropna(axis=1)
        if min(values.shape) < FEWEST:
            return math.nan
        return float(stats.friedmanchisquare(*values.to_numpy(float).T).pvalue)

    def sections(self) -> list[Section]:
        """The ranks, and a table for each scenario."""
        ranked, score = self.ranked, self.score
        alike = "" if math.isnan(self.p) else f" That all are alike has p = {self.p:.2g} (Friedman)."
        lines = [
            f"Mean rank of {len(ranked)} methods over {len(self.values)} clients by {score.label}, with a 95 % "
            f"interval from a bootstrap over clients; clients of one scenario are not independent of each other.{alike}"
        ]
        if unranked := [label for name, label in self.labels.items() if name not in ranked.index]:
            lines.append(f"Not ranked, for they lack a client's score, or that of a seed: {', '.join(unranked)}.")
        table = pd.DataFrame(
            {
                "mean rank": [f"{own.rank:.1f} [{own.low:.1f}, {own.high:.1f}]" for own in ranked.itertuples()],
                "join, stay alone: over Local": _both(ranked, "local"),
                "over best alone": _both(ranked, "alone"),
            },
            index=[self.labels[str(name)] for name in ranked.index],
        )
        found = [Section("Ranks", lines, table=table, brief=table)]
        for scenario, own in self.found.items():
            about = f"{own.study.about} Seeds {', '.join(map(str, own.seeds))}."
            found.append(Section(scenario, [about.strip()], table=self._table(scenario), below=True))
        return found

    def _table(self, scenario: str) -> pd.DataFrame:
        own, seeds = self.frame[self.frame["scenario"] == scenario], len(self.found[scenario].seeds)
        columns = {score.label: [score.text(value) for value in own[score.name]] for score in self._first.scores}
        for over, label in (("local", "over Local"), ("alone", "over best alone")):
            lifts = own[f"lift_{over}"]
            columns[label] = [
                self.score.text(lift, signed=True) + f" ({both})" if math.isfinite(lift) else NOTHING
                for lift, both in zip(lifts, _both(own, over), strict=True)
            ]
        columns["seconds"] = [f"{value:.1f}" if math.isfinite(value) else NOTHING for value in own["seconds"]]
        few = [f" ({done} of {seeds} seeds)" if done < seeds else "" for done in own["done"]]
        labels = [self.labels[name] + more for name, more in zip(own["method"], few, strict=True)]
        return pd.DataFrame(columns, index=labels, dtype=object)

    def parts(self) -> Iterable[str | Grid]:
        """The ranks."""
        return terminal(self.sections())

    def write(self, folder: Path) -> None:
        """Write tables into the study's folder."""
        ranks = self.ranked.rename_axis("method").reset_index()
        write_frames({folder / "ranks.csv": ranks, folder / "across.csv": self.frame})
        title = f"{self._first.study.name.partition('/')[0]}: {len(self.found)} scenarios together"
        write_text(markdown(title, self.sections()), folder / "across.md")


def _both(frame: pd.DataFrame, over: str) -> list[str]:
    """How many should join, and stay alone."""
    counts = frame[[f"{JOIN}_{over}", f"{ALONE}_{over}"]]
    return [f"{join:.0f}, {alone:.0f}" for join, alone in counts.itertuples(index=False)]


def _row(own: Findings, method: str, score: Score) -> dict[str, Any]:
    """Of one method in one scenario."""
    estimates = own.estimates[(own.estimates["method"] == method) & (own.estimates["client"] == MEAN)]
    means = estimates.set_index("metric")["mean"]
    row: dict[str, Any] = {metric.name: float(means.get(metric.name, math.nan)) for metric in own.scores}
    lift = own.lift[(own.lift["method"] == method) & (own.lift["metric"] == score.name)]
    for over, reference in (("local", own.study.reference), ("alone", BEST_ALONE)):
        of = lift[lift["reference"] == reference].set_index("client")
        verdicts = of["verdict"].drop([MEAN, WORST], errors="ignore")
        row[f"lift_{over}"] = float(of["mean"].get(MEAN, math.nan))
        row |= {f"{verdict}_{over}": int((verdicts == verdict).sum()) for verdict in (JOIN, ALONE)}
    records = own.collected.records
    seconds = pd.to_numeric(records.loc[records["method"] == method, "seconds"])
    results = own.collected.scores
    done = results.loc[(results["method"] == method) & (results["without"] == ""), "seed"].nunique()
    return {**row, "done": done, "seconds": float(seconds.median()) if len(seconds) else math.nan}
