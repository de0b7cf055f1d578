"""Effects of a mixed model as pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedlit.show.canvas import canvas
from fedlit.show.palette import INK, LINE, METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["caterpillar_figure", "forest_figure"]

_NAMED, _TEXT = 40, 9  # sites up to which each is named; points
_Z = 1.96


def forest_figure(effects: pd.DataFrame, title: str = "") -> Figure:
    """Shared effects with 95 % intervals, a line each.

    Args:
        effects: columns ``column``, ``value`` and ``error``.
        title: above it.
    """
    effects = effects[effects["error"] > 0][::-1]  # the first on top
    return _intervals(effects["column"].tolist(), effects, title, "effect", line=0.3)


def caterpillar_figure(own: pd.DataFrame, title: str = "") -> Figure:
    """Sites' own effects with 95 % intervals, in their order; more than 40 sites are not named.

    Args:
        own: columns ``client``, ``value`` and ``error``.
        title: above it.
    """
    own = own.sort_values("value")
    named = len(own) <= _NAMED
    names = own["client"].tolist() if named else []
    return _intervals(names, own, title, "difference from all", line=0.22 if named else max(0.03, 8 / len(own)))


def _intervals(names: list[str], rows: pd.DataFrame, title: str, label: str, line: float) -> Figure:
    value, error = rows["value"].to_numpy(float), rows["error"].to_numpy(float)
    places = np.arange(len(rows))
    longest = max(map(len, names), default=0)
    with canvas(5.0 + 0.075 * longest, min(40, 1.0 + line * len(rows))) as figure:
        axes = figure.subplots()
        axes.axvline(0, color=LINE, lw=1)
        axes.errorbar(value, places, xerr=_Z * error, fmt="o", ms=3, lw=1, color=METHODS[0], ecolor=METHODS[0])
        axes.set_yticks(places if names else [], names, fontsize=_TEXT)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        if not names:
            axes.set_ylabel(f"{len(rows):,} sites", fontsize=_TEXT, color=INK)
        axes.set_xlabel(f"{label}, with 95 % intervals", fontsize=_TEXT)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_title(title, fontsize=10, loc="left")
    return figure
