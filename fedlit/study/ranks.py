"""Ranks of methods over the clients of all scenarios of a study, as in ``<study>/ranks.csv``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from fedlit.files import write_frames
from fedlit.seeding import derive_seed
from fedlit.show.shown import Grid, Shown
from fedlit.study.findings import Findings
from fedlit.study.study import BEST_ALONE
from fedlit.tasks import Score

RESAMPLES = 2000
FEWEST = 3


def rank_table(
    values: pd.DataFrame, *, higher_is_better: bool = True, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Return the mean ranks of methods over clients. Rank 1 is the best, and equal values share a
    rank.

    Args:
        values: one row for each client and one column for each method, without missing values.
        higher_is_better: whether a larger value is better.
        resamples: the number of resamples of clients, for the interval.

    Returns:
        A frame with the methods as index, the best first, and the columns rank, low and high: the
        mean over clients and its 95 % interval by a bootstrap over clients.

    Example:
        >>> rank_table(pd.DataFrame({"a": [0.9, 0.8], "b": [0.7, 0.6]}))[["rank"]].to_dict()
        {'rank': {'a': 1.0, 'b': 2.0}}
    """
    ranks = values.rank(axis=1, ascending=not higher_is_better).to_numpy(float)
    generator = np.random.default_rng(derive_seed(0, "ranks"))
    drawn = ranks[generator.integers(0, len(ranks), (resamples, len(ranks)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    table = pd.DataFrame(
        {"rank": ranks.mean(0), "low": low, "high": high}, index=values.columns.rename("method")
    )
    return table.sort_values("rank", kind="stable")


@dataclass(frozen=True, eq=False, repr=False)
class Ranks(Shown):
    """The methods of several scenarios of one study, ranked by its main score.

    Attributes:
        findings: maps each scenario to its findings.
    """

    findings: Mapping[str, Findings]

    @property
    def score(self) -> Score:
        """The score by which methods are ranked."""
        return next(iter(self.findings.values())).scores[0]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Maps each method to its label: the trained methods, and what a client would do alone."""
        study = next(iter(self.findings.values())).study
        names = [*(name for name in study.methods if not study.methods[name].pooled), BEST_ALONE]
        return {name: study.labels[name] for name in names if name in study.labels}

    @cached_property
    def values(self) -> pd.DataFrame:
        """The mean test score over seeds, with one row for each (scenario, client) and one column
        for each method.

        It is NaN if a method lacks a seed that another one has, because its mean would only be over
        the seeds that went well.
        """
        parts = {}
        for scenario, findings in self.findings.items():
            scores = findings.collected.values(self.score.name)
            clients = findings.collected.clients_of(self.score.name)
            means = scores.mean().unstack("method").loc[clients]
            seeds = scores.notna().sum().unstack("method").loc[clients]
            parts[scenario] = means.where(seeds.eq(seeds.max(axis=1), axis=0))
        return pd.concat(parts, names=["scenario", "client"]).reindex(columns=list(self.labels))

    @cached_property
    def table(self) -> pd.DataFrame:
        """The ranks of the methods that every client has, see :func:`rank_table`."""
        return rank_table(self.values.dropna(axis=1), higher_is_better=self.score.higher_is_better)

    @property
    def p(self) -> float:
        """The p-value of Friedman's test that all methods are equal; NaN for fewer than three
        methods or clients.
        """
        values = self.values.dropna(axis=1)
        if min(values.shape) < FEWEST:
            return math.nan
        return float(stats.friedmanchisquare(*values.to_numpy(float).T).pvalue)

    def parts(self) -> Iterable[str | Grid]:
        """Yield a description of what is ranked, and the ranks."""
        friedman = ""
        if not math.isnan(self.p):
            friedman = f" That all are alike has p = {self.p:.2g} (Friedman)."
        yield (
            f"Mean rank of {len(self.table)} methods over {len(self.values)} clients by "
            f"{self.score.label}, with a 95 % interval from a bootstrap over clients; clients of "
            f"one scenario are not independent of each other.{friedman}"
        )
        if unranked := [
            label for name, label in self.labels.items() if name not in self.table.index
        ]:
            yield (
                "Not ranked, for they lack a client's score, or that of a seed: "
                f"{', '.join(unranked)}."
            )
        rows = [[self.labels[str(name)], f"{rank:.1f} [{low:.1f}, {high:.1f}]"]
                for name, rank, low, high in self.table.itertuples()]  # fmt: skip
        yield Grid(["", "mean rank"], rows)

    def write(self, folder: Path) -> Path:
        """Write ``ranks.csv`` to the study's folder."""
        write_frames({folder / "ranks.csv": self.table.reset_index()})
        return folder / "ranks.csv"
