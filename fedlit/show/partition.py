"""How clients of a partition differ, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedlit.show.canvas import canvas
from fedlit.show.palette import CLASSES, INK, PAPER, SOFT, class_colours, text_on

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["partition_figure"]


_NAMED = 0.032


def partition_figure(
    shares: pd.DataFrame,
    rows: Mapping[str, int],
    distances: Mapping[str, float] | None = None,
    mean: float = float("nan"),
    title: str = "",
) -> Figure:
    """Bars of class shares, a client each, and beside them the clients' distances to the whole.

    Args:
        shares: clients × classes, the share of each class in a client's training rows.
        rows: client → number of its training rows.
        distances: client → its distance to the whole, where there is one.
        mean: of the distances.
        title: above all.
    """
    names = list(shares.index)
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with canvas(8.5, min(1.5 + 0.34 * len(names), 60), style) as figure:
        ratios = [1] if distances is None else [3, 1]
        axes = figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False)[0]
        _bars(axes[0], shares)
        axes[0].set_yticks(range(len(names)), [f"{name}  ({rows[name]:,})" for name in names])
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        if distances is not None:
            _distances(axes[1], [distances[name] for name in names], mean)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def _bars(axes: Axes, table: pd.DataFrame) -> None:
    from matplotlib.colors import to_rgb

    count, colours = table.shape[1], class_colours(list(table))
    left = np.zeros(len(table))
    for place, label in enumerate(table):
        colour = to_rgb(colours[label])
        shares = 100 * table.to_numpy()[:, place]
        axes.barh(range(len(left)), shares, 0.82, left, color=colour, edgecolor=PAPER, lw=0.8, label=str(label))
        for row in np.flatnonzero(shares > 100 * _NAMED * max(1, len(str(label)) / 1.8)).tolist():
            # names in the bars, so that no one has to tell colours apart
            middle = left[row] + shares[row] / 2
            axes.text(middle, row, str(label), ha="center", va="center", fontsize=9, color=text_on(colour))
        left += shares
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of classes in training rows, %")
    axes.set_ylabel("client (training rows)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if count <= 2 * len(CLASSES):
        axes.legend(ncols=min(count, 10), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, fontsize=9,
                    handlelength=1, columnspacing=1, handletextpad=0.4)  # fmt: skip


def _distances(axes: Axes, values: list[float], mean: float) -> None:
    axes.hlines(range(len(values)), 0, values, color=SOFT, lw=1.2)
    axes.plot(values, range(len(values)), "o", color=INK, ms=5)
    axes.axvline(mean, color=INK, lw=1.2, ls="--")
    axes.annotate(f"mean {mean:.3g}", (mean, 1), (0, 3), xycoords=("data", "axes fraction"),
                  textcoords="offset points", ha="center", fontsize=9)  # fmt: skip
    for row, value in enumerate(values):
        axes.annotate(f"{value:.3g}", (1, row), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=9)
    axes.set_xlim(0, 1.35 * max(values) or 1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("EMD to the whole")
