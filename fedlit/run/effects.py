"""What ``fedlit explain`` shows of effects: of a mixed model, or of a Cox model, whose effects are
logarithms of hazard ratios.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fedlit.explain.effects import ALL, ROBUST, hazard_ratios, intraclass
from fedlit.show.canvas import save_figure
from fedlit.show.effects import caterpillar_figure, forest_figure
from fedlit.show.shown import Grid
from fedlit.show.text import MOST_ROWS

_ENDS = 10  # sites at each end of a long list
_Parts = dict[str, pd.DataFrame]
"""Part of the effects → its rows."""


def effect_pictures(effects: pd.DataFrame, target: Path) -> list[Path]:
    """Draw the effects of all sites, and each site's own, and return the files.

    Args:
        effects: a run's ``effects.csv``.
        target: the folder of the pictures.
    """
    files = list[Path]()
    many_outputs = effects["output"].nunique() > 1
    for number, (output, rows) in enumerate(effects.groupby("output", sort=False)):
        mark = f"_{number}" if many_outputs else ""
        are_ratios = ROBUST in set(rows["part"])
        shared = rows[(rows["part"] == "effect") & (rows["column"] != "(intercept)")]
        figure = forest_figure(shared, str(output), ratios=are_ratios)
        files += save_figure(figure, target / f"effects{mark}")
        if are_ratios:
            continue
        for column, site_effects in rows[rows["part"] == "own"].groupby("column"):
            figure = caterpillar_figure(site_effects, f"{output}: {column}")
            files += save_figure(figure, target / f"{_file_of(str(column))}{mark}")
    return files


def _file_of(column: str) -> str:
    if column == "(intercept)":
        return "intercepts"
    slope = re.sub(r"[^A-Za-z0-9]+", "_", column)
    return f"slopes_{slope}"


def effect_lines(effects: pd.DataFrame) -> Iterator[str | Grid]:
    """Yield, for each output, its effects with intervals, and what else is known of them.

    Args:
        effects: a run's ``effects.csv``.
    """
    shares = intraclass(effects)
    for output, rows in effects.groupby("output", sort=False):
        parts = {str(part): site_effects for part, site_effects in rows.groupby("part", sort=False)}
        if ROBUST in parts:
            yield from _of_hazards(str(output), parts)
        else:
            yield from _of_mixed(str(output), parts, shares.get(str(output)))


def _of_hazards(output: str, parts: _Parts) -> Iterator[str | Grid]:
    """Yield hazard ratios, the test of proportional hazards, and sites' own hazard ratios."""
    ratios = hazard_ratios(parts["effect"], parts[ROBUST], parts["trend"])
    yield f"{output}: hazard ratios of all sites, per standard deviation of a number"
    lines = []
    for column, row in ratios.to_dict("index").items():
        cells = ["–", "–", "–"]
        if row["error"] > 0:
            robust = _interval(row["robust_low"], row["robust_high"])
            cells = [_interval(row["low"], row["high"]), robust, _probability(row["p"])]
        lines.append([str(column), f"{row['ratio']:.4g}", *cells, _probability(row["trend_p"])])
    yield Grid(list(_RATIOS), lines)
    if not (ratios["error"] > 0).all():
        yield "Without an interval: a combination of the columns before it, or no finite effect"
    of_all = parts["trend"]["column"] == ALL
    ((chi_squared, freedom),) = parts["trend"].loc[of_all, ["value", "error"]].to_numpy(float)
    if freedom > 0:
        from scipy.stats import chi2

        p = _probability(float(chi2.sf(chi_squared, freedom)))
        yield ""
        yield (
            f"Proportional hazards, all columns: χ² {chi_squared:.2f} on {freedom:.0f} "
            f"degrees of freedom, p {p}; where it is small, ratios change over time"
        )
    if "own" in parts:
        yield ""
        yield "Sites' own hazard ratios, shrunk towards 1"
        yield Grid(["client", *_RATIOS[:3]], list(_of_sites(parts["own"])))


_RATIOS = ("effect", "ratio", "95 % interval", "robust", "p", "p trend")
"""The headings of hazard ratios."""


def _of_sites(effects: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a line for each hazard ratio of a column that only one site has."""
    columns = ["client", "column", "value", "error"]
    for client, column, value, error in effects[columns].itertuples(index=False):
        interval = "–"
        if error > 0:
            interval = _interval(math.exp(value - 1.96 * error), math.exp(value + 1.96 * error))
        yield [str(client), str(column), f"{math.exp(value):.4g}", interval]


def _interval(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}"


def _probability(p: float) -> str:
    if math.isnan(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _of_mixed(output: str, parts: _Parts, share: float | None) -> Iterator[str | Grid]:
    """Yield effects with intervals, variances, and sites' random effects."""
    yield f"{output}: effects of all sites, per standard deviation of a number"
    yield _estimates("column", parts["effect"])
    if not (parts["effect"]["error"] > 0).all():
        yield "Without an error: a combination of the columns before it"
    yield ""
    spread = parts["variance"].set_index("column")["value"].items()
    deviations = ", ".join(f"{column} {math.sqrt(value):.4g}" for column, value in spread)
    yield f"Standard deviations between sites, and of the residual: {deviations}"
    if share is not None:
        yield (f"Intraclass correlation: {share:.3f} of the variance lies between sites")
    site_effects = parts["own"].sort_values(["column", "value"])
    for column, sites in site_effects.groupby("column"):
        title = f"Sites' own {column}"
        if len(sites) > MOST_ROWS:
            title += f", the {_ENDS} lowest and highest of {len(sites):,}"
            sites = pd.concat([sites.head(_ENDS), sites.tail(_ENDS)])
        yield ""
        yield title
        yield _estimates("client", sites)


_HEADINGS = {"column": "effect", "client": "client"}
"""Column of the names of estimates → its heading."""


def _estimates(named_by: str, rows: pd.DataFrame) -> Grid:
    """Return a table of estimates with intervals. There is no interval if a column is a combination
    of others, or if sites do not differ.
    """
    lines = []
    for name, value, error in rows[[named_by, "value", "error"]].itertuples(index=False):
        cells = ["–", "–"]
        if error > 0:
            low = value - 1.96 * error
            high = value + 1.96 * error
            cells = [f"{error:.3g}", f"{low:.4g} to {high:.4g}"]
        lines.append([name, f"{value:.4g}", *cells])
    return Grid([_HEADINGS[named_by], "estimate", "error", "95 % interval"], lines)
