"""Draws the share of rows without the event over time, with the numbers at risk."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.outcomes.life_table import LifeTable
from fedlit.show.canvas import SERIES, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TEXT = 9
"""The size of text, in points."""
_STYLES = ("-", "--", ":", "-.")
"""The styles of lines, for more groups than colours."""
_TICKS = 8
"""About how many times are marked below the curves."""


def curves_figure(tables: Mapping[str, LifeTable], label: str, title: str = "") -> Figure:
    """Draw a step curve for each group, and below it the numbers at risk.

    Args:
        tables: maps each group to its life table, of which one says something.
        label: the label of the time axis.
        title: the title above the picture.
    """
    from matplotlib.ticker import MaxNLocator

    longest = max(map(len, tables), default=0)
    width = 5.6 + 0.06 * longest
    beside: dict[str, Any] = {}
    if len(tables) > len(SERIES):  # a long legend would cover the curves
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        width += 0.8 + 0.06 * longest
    with canvas(width, 3.4 + 0.2 * len(tables)) as figure:
        upper, lower = figure.subplots(
            2, 1, sharex=True, height_ratios=(3.0, 0.2 * len(tables) + 0.1)
        )
        end = max(float(table.times.max(initial=0.0)) for table in tables.values())
        for number, (name, table) in enumerate(tables.items()):
            style = _STYLES[number // len(SERIES) % len(_STYLES)]
            colour = SERIES[number % len(SERIES)]
            upper.step(
                table.times, table.shares, where="post", color=colour, ls=style, lw=1.4, label=name
            )
        upper.set_ylim(0, 1.02)
        upper.set_xlim(-0.03 * end, 1.03 * end)
        lower.xaxis.set_major_locator(MaxNLocator(_TICKS, steps=[1, 2, 5, 10]))
        upper.set_ylabel("without the event", fontsize=_TEXT)
        upper.tick_params(labelsize=_TEXT)
        upper.legend(fontsize=_TEXT, frameon=False, **beside)
        upper.spines[["top", "right"]].set_visible(False)
        upper.set_title(title, fontsize=10, loc="left")
        _numbers_at_risk(lower, tables, label)
    return figure


def _numbers_at_risk(axes: Axes, tables: Mapping[str, LifeTable], label: str) -> None:
    """Write the numbers at risk of each group, one group per line, at the known times that are
    closest to the marks of the axis.
    """
    heights = np.arange(len(tables))[::-1]
    colours = cycle(SERIES)
    low, high = axes.get_xlim()
    marks = [mark for mark in axes.get_xticks() if low <= mark <= high]
    for height, table, colour in zip(heights, tables.values(), colours, strict=False):
        until = [mark for mark in marks if mark <= table.times.max(initial=-1.0)]
        if not until:
            continue
        distances = np.abs(table.times - np.reshape(until, (-1, 1)))
        chosen = np.unique(distances.argmin(1))
        for time, number in zip(table.times[chosen], table.at_risk[chosen], strict=True):
            text = f"{number:,.0f}"
            axes.text(time, height, text, ha="center", va="center", fontsize=_TEXT, color=colour)
    axes.set_yticks(heights, list(tables), fontsize=_TEXT)
    axes.set_ylim(-0.6, len(tables) - 0.4)
    axes.set_xlabel(f"{label}; below the curves: rows at risk", fontsize=_TEXT)
    axes.tick_params(labelsize=_TEXT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
