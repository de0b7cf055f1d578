"""Draws how values are distributed over clients, as violins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedlit.show.canvas import FINDING, INK, METHOD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXT = 9
"""The size of text, in points."""


def plot_violins(
    names: Sequence[str], values: Sequence[NDArray[np.float64]], label: str, axes: Axes
) -> Axes:
    """Draw the distribution of each method's values over clients, one violin per row, with the
    first at the top (Roschewitz et al. 2021, arXiv:2107.06580, Figs 5 to 12). A dot is the median
    of all clients. A bar, if there are several seeds, is the standard deviation over seeds of the
    median over clients.

    Args:
        names: the names of the methods.
        values: for each method an array of shape (seeds, clients) without NaN.
        label: the label of the horizontal axis.
        axes: Matplotlib's axes to draw on.
    """
    heights = np.arange(len(names))[::-1]
    for height, scores in zip(heights, values, strict=True):
        client_means = scores.mean(axis=0)
        parts: Any = axes.violinplot(
            [client_means], [height], orientation="horizontal", widths=0.85, showextrema=False
        )
        for body in parts["bodies"]:
            body.set(facecolor=METHOD, edgecolor=METHOD, alpha=0.35)
        median = np.median(client_means)
        seed_medians = np.median(scores, axis=1)
        if len(seed_medians) > 1:
            deviation = seed_medians.std(ddof=1)
            axes.errorbar(median, height, xerr=deviation, color=FINDING, lw=1.5, capsize=3)
        axes.scatter(median, height, 12, INK, zorder=3)
    axes.set_yticks(heights, names, fontsize=_TEXT)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel(label, fontsize=_TEXT)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return axes
