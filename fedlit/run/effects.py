"""``fedlit explain`` of a mixed model: shared effects, how much sites differ, and each site's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedlit.errors import ConfigError, did_you_mean
from fedlit.explain import EFFECTS
from fedlit.explain.effects import intraclass
from fedlit.files import read_named
from fedlit.show.canvas import save_figure
from fedlit.show.effects import caterpillar_figure, forest_figure
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, shorten

__all__ = ["Effects", "explain_effects"]

_MOST = 10  # sites at each end


@dataclass(frozen=True, repr=False)
class Effects(Shown):
    """A mixed model: shared effects, variance components, and sites' own effects.

    Attributes:
        effects: of :data:`fedlit.explain.EFFECTS`.
        files: what was written.
        client: whose own effects are shown alone; of all, the lowest and the highest, if None.
    """

    effects: pd.DataFrame
    files: list[Path]
    client: str | None = None

    def parts(self) -> Iterable[str | Grid]:
        """For each output: effects with intervals, variances, and sites' own effects."""
        shares = intraclass(self.effects)
        for key, rows in self.effects.groupby("output", sort=False):
            output, parts = str(key), {str(part): own for part, own in rows.groupby("part", sort=False)}
            yield f"{output}: effects of all sites, per standard deviation of a number"
            yield _grid("effect", parts["effect"]["column"], parts["effect"])
            if not (parts["effect"]["error"] > 0).all():
                yield "Without an error: a combination of the columns before it"
            yield ""
            spread = zip(parts["variance"]["column"], parts["variance"]["value"], strict=True)
            told = ", ".join(f"{column} {math.sqrt(value):.4g}" for column, value in spread)
            yield f"Standard deviations between sites, and of the residual: {told}"
            if output in shares:
                yield f"Intraclass correlation: {shares[output]:.3f} of the variance lies between sites"
            own = parts["own"].sort_values(["column", "value"])
            own = own if self.client is None else own[own["client"] == self.client]
            for column, sites in own.groupby("column"):
                few = len(sites) <= MOST_ROWS
                yield ""
                yield f"Sites' own {column}" + ("" if few else f", the {_MOST} lowest and highest of {len(sites):,}")
                shown = sites if few else pd.concat([sites.head(_MOST), sites.tail(_MOST)])
                yield _grid("client", shown["client"], shown)


def _grid(first: str, names: Iterable[str], rows: pd.DataFrame) -> Grid:
    """Estimates with intervals; without where a column is made up by others, or sites do not differ."""
    lines = []
    for name, value, error in zip(names, rows["value"], rows["error"], strict=True):
        interval = f"{value - 1.96 * error:.4g} to {value + 1.96 * error:.4g}" if error > 0 else "–"
        lines.append([name, f"{value:.4g}", f"{error:.3g}" if error > 0 else "–", interval])
    return Grid([first, "estimate", "error", "95 % interval"], lines)


def explain_effects(run: str | Path, *, client: str | None = None, out: str | Path | None = None) -> Effects:
    """Write a mixed model's forest plot of shared effects and a caterpillar plot of sites' own ones (PNG and SVG).

    Args:
        run: the folder of a trained run of :class:`fedlit.MixedModel`.
        client: show this site's own effects alone.
        out: where to; ``explain`` in the run's folder if None.

    Raises:
        ConfigError: no such client.
    """
    effects = read_named(Path(run) / EFFECTS)
    clients = sorted(set(effects["client"]) - {""})
    if client is not None and client not in clients:
        hint = did_you_mean(client, clients)
        raise ConfigError(f"--client: expected one of {shorten(clients)}, found {client!r}.{hint}")
    target = Path(out) if out is not None else Path(run) / "explain"
    target.mkdir(parents=True, exist_ok=True)
    files = list[Path]()
    for place, (output, rows) in enumerate(effects.groupby("output", sort=False)):
        mark = f"_{place}" if effects["output"].nunique() > 1 else ""
        shared = rows[(rows["part"] == "effect") & (rows["column"] != "(intercept)")]
        files += save_figure(forest_figure(shared, str(output)), target / f"effects{mark}")
        for column, own in rows[rows["part"] == "own"].groupby("column"):
            slope = re.sub(r"[^A-Za-z0-9]+", "_", str(column))
            name = "intercepts" if column == "(intercept)" else f"slopes_{slope}"
            files += save_figure(caterpillar_figure(own, f"{output}: {column}"), target / f"{name}{mark}")
    return Effects(effects, files, client)
