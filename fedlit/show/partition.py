"""How clients of a partition differ, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedlit.show.canvas import canvas
from fedlit.show.palette import CLASSES, INK, PAPER, class_colours, text_on

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["partition_figure"]


_NAMED = 3.2


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
    from matplotlib.colors import to_rgb

    places, left = np.arange(len(shares)), np.zeros(len(shares))
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with canvas(8.5, min(1.5 + 0.34 * len(shares), 60), style) as figure:
        ratios = [1] if distances is None else [3, 1]
        axes, *beside = figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False)[0]
        for label, colour in class_colours(list(shares)).items():
            own = 100 * shares[label].to_numpy()
            bars = axes.barh(places, own, 0.82, left, color=to_rgb(colour), edgecolor=PAPER, lw=0.8, label=str(label))
            # names in the bars, so that no one has to tell colours apart
            wide = own > _NAMED * max(1, len(str(label)) / 1.8)
            names = np.where(wide, str(label), "").tolist()
            axes.bar_label(bars, names, label_type="center", fontsize=9, color=text_on(to_rgb(colour)))
            left += own
        axes.set(xlim=(0, 100), xlabel="share of classes in training rows, %", ylabel="client (training rows)")
        axes.set_yticks(places, [f"{name}  ({rows[name]:,})" for name in shares.index])
        axes.set_ylim(len(shares) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        if shares.shape[1] <= 2 * len(CLASSES):
            axes.legend(ncols=min(shares.shape[1], 10), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
        if distances is not None:
            (other,) = beside
            values = [distances[name] for name in shares.index]
            other.plot(values, places, "o", color=INK, ms=5)
            other.axvline(mean, color=INK, lw=1.2, ls="--", label=f"mean {mean:.3g}")
            other.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)
            for place, value in zip(places, values, strict=True):
                other.annotate(f"{value:.3g}", (value, place), (6, 0), textcoords="offset points", va="center")
            other.set(xlim=(0, 1.35 * max(values) or 1), xlabel="EMD to the whole")
            other.tick_params(axis="y", length=0)
        figure.suptitle(title, fontsize=10)
    return figure
