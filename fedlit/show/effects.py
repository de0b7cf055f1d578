"""Draws values with their intervals: effects of a mixed or a Cox model, lifts of clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fedlit.show.canvas import INK, LINE, METHOD, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMED = 40
"""The largest number of sites that are named."""
_TEXT = 9
"""The size of text, in points."""
_Z = 1.96
_RATIOS = (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""The ratios that are marked on an axis, and ten times these, and so on."""


def forest_figure(effects: pd.DataFrame, title: str = "", *, ratios: bool = False) -> Figure:
    """Draw shared effects with 95 % intervals, one per line.

    Args:
        effects: a table with the columns ``column``, ``value`` and ``error``.
        title: the title above the picture.
        ratios: whether they are logarithms of hazard ratios, which are then drawn on a logarithmic
            axis.
    """
    effects = effects[effects["error"] > 0]
    label = "hazard ratio" if ratios else "effect"
    return _figure(effects["column"].tolist(), effects, title, label, ratios=ratios)


def caterpillar_figure(effects: pd.DataFrame, title: str = "") -> Figure:
    """Draw sites' random effects with 95 % intervals, sorted by value. If there are more than 40
    sites, their names are left out.

    Args:
        effects: a table with the columns ``client``, ``value`` and ``error``.
        title: the title above the picture.
    """
    effects = effects.sort_values("value", ascending=False)
    names: list[str] = []
    if len(effects) <= _NAMED:
        names = effects["client"].tolist()
    return _figure(names, effects, title, "difference from all")


def _figure(
    names: list[str], rows: pd.DataFrame, title: str, label: str, *, ratios: bool = False
) -> Figure:
    from matplotlib.ticker import LogLocator, NullLocator

    value = rows["value"].to_numpy(float)
    error = _Z * rows["error"].to_numpy(float)
    low = value - error
    high = value + error
    if ratios:
        value, low, high = np.exp([value, low, high])
    longest = max(map(len, names), default=0)
    height = 0.25 * len(rows) if names else 8.0
    label = f"{label}, with 95 % intervals"
    with canvas(5.0 + 0.075 * longest, 1.0 + height) as figure:
        axes = figure.subplots()
        plot_intervals(names, value, low, high, label, axes, zero=not ratios)
        if ratios:
            axes.axvline(1, color=LINE, lw=1, zorder=0)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=_RATIOS))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def plot_intervals(
    names: Sequence[str],
    values: ArrayLike,
    lows: ArrayLike,
    highs: ArrayLike,
    label: str,
    axes: Axes | None = None,
    *,
    zero: bool = True,
) -> Axes:
    """Draw values with their intervals, one per row, with the first at the top.

    Args:
        names: the names of the rows; empty if there are too many rows to name.
        values: the positions of the dots.
        lows: the lower ends of intervals; NaN if there is none.
        highs: the upper ends of intervals.
        label: the label of the horizontal axis.
        axes: Matplotlib's axes to draw on; if None, new ones, which a notebook shows below the
            cell.
        zero: whether a line is drawn at zero.
    """
    value = np.asarray(values, float)
    heights = np.arange(len(value))[::-1]
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(6, min(12, 1 + 0.3 * len(value))), layout="constrained")
    if zero:
        axes.axvline(0, color=LINE, lw=1)
    axes.hlines(heights, np.asarray(lows, float), np.asarray(highs, float), METHOD, lw=1)
    axes.scatter(value, heights, 12, METHOD, zorder=3)
    if names:
        axes.set_yticks(heights, names, fontsize=_TEXT)
    else:
        axes.set_yticks([], [], fontsize=_TEXT)
        axes.set_ylabel(f"{len(value):,} sites", fontsize=_TEXT, color=INK)
    axes.set_ylim(-0.6, len(value) - 0.4)
    axes.set_xlabel(label, fontsize=_TEXT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return axes
