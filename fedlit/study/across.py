"""What the scenarios of a study say together: each method's rank among the others, whom it helps and whom it harms, and
what it costs to get where a client gets alone.

<study>/across.md     tables
       /across.csv    one row per scenario and method
       /ranks.csv     one row per method
       /ranks.png     (and .svg) mean ranks with their intervals
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fedlit import statistics as verdicts
from fedlit.files import write_frames, write_text
from fedlit.seeding import derive_seed
from fedlit.show.canvas import canvas, save_figure
from fedlit.show.palette import ALONE, INK, LINE, LOCAL, METHODS, SOFT
from fedlit.show.shown import Grid, Shown
from fedlit.show.table import NOTHING, Cell, Table
from fedlit.study.findings import Findings
from fedlit.study.lift import MEAN, WORST
from fedlit.study.study import BEST_ALONE
from fedlit.tasks import Score

__all__ = ["Across", "rank_table"]

RESAMPLES, FEWEST = 2000, 3
_CLEAR = (verdicts.JOIN, verdicts.ALONE)
_MB = 1e6


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
    def ranked(self) -> pd.DataFrame:
        """Those that every client has (see :func:`rank_table`), with how many clients should join, or stay alone."""
        values = self.values.dropna(axis=1)
        ranks = rank_table(values, higher_is_better=self.score.higher_is_better)
        counts = pd.DataFrame(self._counts(), index=list(self.labels))
        return ranks.join(counts)

    @property
    def unranked(self) -> list[str]:
        """Methods that lack a client, or one of its seeds."""
        return [name for name in self.labels if name not in self.ranked.index]

    def _counts(self) -> dict[str, list[int]]:
        """Of each method, how many clients should join and how many stay alone, by what it is set against."""
        counts: dict[str, list[int]] = {}
        for key, of in (("local", None), ("alone", BEST_ALONE)):
            for verdict in _CLEAR:
                counts[f"{verdict}_{key}"] = [
                    sum(
                        len(self._verdicts(own, name, of or own.study.reference, verdict))
                        for own in self.found.values()
                    )
                    for name in self.labels
                ]
        return counts

    def _verdicts(self, own: Findings, method: str, reference: str, verdict: str) -> pd.DataFrame:
        lift = own.lift
        return lift[
            (lift["metric"] == self.score.name) & (lift["method"] == method) & (lift["reference"] == reference)
            & (lift["verdict"] == verdict) & ~lift["client"].isin([MEAN, WORST])
        ]  # fmt: skip

    @property
    def p(self) -> float:
        """Of Friedman's test that all methods are alike; NaN for fewer than three methods or clients."""
        values = self.values.dropna(axis=1)
        if min(values.shape) < FEWEST:
            return math.nan
        return float(stats.friedmanchisquare(*values.to_numpy(float).T).pvalue)

    # ------------------------------------------------------------------ scenario by scenario

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per scenario and method: means over clients and seeds, lifts, rounds and bytes to reach the reference
        (the median over seeds that reached it), seconds of training.
        """
        rows = [
            {"scenario": scenario, "method": name, **_row(own, name, self.score)}
            for scenario, own in self.found.items()
            for name in self.labels
            if (own.estimates["method"] == name).any()
        ]
        return pd.DataFrame(rows)

    def _table(self, scenario: str) -> Table:
        metrics, unit = self._first.scores, self.found[scenario]
        own = self.frame[self.frame["scenario"] == scenario]
        head = [score.label for score in metrics]
        head += ["over Local", "join, stay alone", "over best alone", "join, stay alone", "rounds", "MB", "seconds"]
        rows = []
        for row in own.to_dict("records"):
            cells = [Cell(score.text(row[score.name])) for score in metrics]
            for key, reference in (("local", unit.study.reference), ("alone", BEST_ALONE)):
                known = not math.isnan(row[f"lift_{key}"])
                who = [len(self._verdicts(unit, row["method"], reference, verdict)) for verdict in _CLEAR]
                cells.append(Cell(self.score.text(row[f"lift_{key}"], signed=True) if known else NOTHING))
                cells.append(Cell(f"{who[0]}, {who[1]}" if known else NOTHING))
            reached = row["reached"]
            cells.append(Cell(f"{row['rounds']:.0f}" if reached else NOTHING, _of(reached, row["seeds"])))
            cells.append(Cell(f"{row['bytes'] / _MB:.3g}" if reached else NOTHING))
            cells.append(Cell(f"{row['seconds']:.1f}" if not math.isnan(row["seconds"]) else NOTHING))
            few = f" ({row['done']} of {len(unit.seeds)} seeds)" if row["done"] < len(unit.seeds) else ""
            rows.append((self.labels[row["method"]] + few, cells))
        return Table(head, rows)

    # ------------------------------------------------------------------ shown

    def _summary(self) -> Table:
        head = ["mean rank", "join, stay alone: over Local", "over best alone"]
        rows = [
            (
                self.labels[str(name)],
                [
                    Cell(f"{row['rank']:.1f}", f"[{row['low']:.1f}, {row['high']:.1f}]"),
                    *(
                        Cell(f"{row[f'{verdicts.JOIN}_{key}']:.0f}, {row[f'{verdicts.ALONE}_{key}']:.0f}")
                        for key in ("local", "alone")
                    ),
                ],
            )
            for name, row in self.ranked.iterrows()
        ]  # fmt: skip
        return Table(head, rows)

    @property
    def _words(self) -> list[str]:
        clients, methods = self.values.shape[0], len(self.ranked)
        alike = "" if math.isnan(self.p) else f" That all are alike has p = {self.p:.2g} (Friedman)."
        told = [
            f"Mean rank of {methods} methods over {clients} clients by {self.score.label}, with a 95 % interval from a "
            f"bootstrap over clients; clients of one scenario are not independent of each other.{alike}",
        ]
        if self.unranked:
            named = ", ".join(self.labels[name] for name in self.unranked)
            told.append(f"Not ranked, for they lack a client's score, or that of a seed: {named}.")
        return told

    def parts(self) -> list[str | Grid]:
        """The ranks."""
        return [*self._words, "", *self._summary().parts()]

    @property
    def markdown(self) -> str:
        """Ranks, and a table for each scenario."""
        parts = [*self._words, self._summary().markdown()]
        for scenario, own in self.found.items():
            seeds = ", ".join(map(str, own.seeds))
            parts += [f"### {scenario}", f"{own.study.about} Seeds {seeds}.", self._table(scenario).markdown()]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write tables and picture into the study's folder."""
        ranks = self.ranked.rename_axis("method").reset_index()
        write_frames({folder / "ranks.csv": ranks, folder / "across.csv": self.frame})
        write_text(self.markdown, folder / "across.md")
        save_figure(self.draw(), folder / "ranks")

    def draw(self) -> Any:
        """Mean ranks with their intervals, the best on top."""
        study, ranked = self._first.study, self.ranked[::-1]
        with canvas(7.0, 0.9 + 0.24 * len(ranked), {"axes.spines.top": False, "axes.spines.right": False}) as figure:
            axes = figure.add_subplot()
            for place, (name, row) in enumerate(ranked.iterrows()):
                colour = LOCAL if name in study.alone else ALONE if name == BEST_ALONE else METHODS[0]
                axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2, alpha=0.5)
                axes.plot(row["rank"], place, "s" if name == BEST_ALONE else "o", color=colour, markersize=5)
            axes.set_yticks(range(len(ranked)), [self.labels[str(name)] for name in ranked.index], fontsize=9)
            axes.set_xlim(0.5, len(ranked) + 0.5)
            axes.grid(axis="x", color=LINE)
            axes.set_axisbelow(True)
            axes.set_xlabel(
                f"mean rank by {self.score.label} over {len(self.values)} clients (1: best), 95 % interval",
                color=INK, fontsize=9,
            )  # fmt: skip
            axes.tick_params(axis="x", colors=SOFT, labelsize=9)
            return figure


def _row(own: Findings, method: str, score: Score) -> dict[str, Any]:
    """Of one method in one scenario."""
    estimates = own.estimates[(own.estimates["method"] == method) & (own.estimates["client"] == MEAN)]
    means = estimates.set_index("metric")["mean"]
    lift = own.lift[(own.lift["method"] == method) & (own.lift["client"] == MEAN) & (own.lift["metric"] == score.name)]
    over = lift.set_index("reference")["mean"]
    records = own.collected.records
    records = records[records["method"] == method]
    seconds = pd.to_numeric(records.get("seconds", pd.Series(dtype=float)))
    reached = [found for seed in own.seeds if (found := _reached(own, method, seed, score)) is not None]
    return {
        **{metric.name: float(means.get(metric.name, math.nan)) for metric in own.scores},
        "lift_local": float(over.get(own.study.reference, math.nan)),
        "lift_alone": float(over.get(BEST_ALONE, math.nan)),
        "rounds": float(np.median([rounds for rounds, _ in reached])) if reached else math.nan,
        "bytes": float(np.median([weight for _, weight in reached])) if reached else math.nan,
        "reached": len(reached),
        "seeds": len(own.seeds) if method in own.study.candidates else 0,
        "done": own.collected.results.query("method == @method")["seed"].nunique(),
        "seconds": float(seconds.median()) if len(seconds) else math.nan,
    }


def _reached(own: Findings, method: str, seed: int, score: Score) -> tuple[float, float] | None:
    """Rounds and bytes after which the mean over clients on validation rows is what the reference has at its end; None
    where it never is.
    """
    if method not in own.study.candidates:
        return None
    mine, theirs = (_curve(own, name, seed, score) for name in (method, own.study.reference))
    records = own.collected.records
    record = records[(records["method"] == method) & (records["seed"] == seed)]
    if mine.empty or theirs.empty or record.empty:
        return None
    enough = score.gain(mine.to_numpy(), float(theirs.iloc[-1])) >= 0
    if not enough.any():
        return None
    exchange = record["exchange"].iloc[0]
    share = min(1.0, (int(np.argmax(enough)) + 1) / len(mine))
    return exchange["rounds"] * share, exchange["bytes"] * share


def _curve(own: Findings, method: str, seed: int, score: Score) -> pd.Series:
    """The mean over clients on validation rows, by step."""
    curves = own.collected.curves
    curves = curves[(curves["method"] == method) & (curves["seed"] == seed) & (curves["metric"] == f"val/{score.name}")]
    return curves.groupby("step")["value"].mean().sort_index()


def _of(reached: int, seeds: int) -> str:
    return f"({reached}/{seeds})" if seeds and reached < seeds else ""
