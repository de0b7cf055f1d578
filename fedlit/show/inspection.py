"""Draws on which columns a client relies, and how far its probabilities are calibrated."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pandas as pd

from fedlit.show.canvas import CLUSTERS, FINDING, METHOD, canvas
from fedlit.show.effects import plot_intervals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_COLUMNS = 40
_COLOURS = (METHOD, FINDING, *CLUSTERS)


def importance_figure(importance: pd.DataFrame, label: str, title: str) -> Figure:
    """Draw the importance of columns with one standard deviation over shuffles, the most important
    ones at the top.

    Args:
        importance: a table with the columns ``column``, ``importance`` and ``deviation``, in this
            order of rows.
        label: the label of the horizontal axis.
        title: the title above the picture.
    """
    rows = importance.head(_MOST_COLUMNS)
    names = rows["column"].astype(str).tolist()
    low = rows["importance"] - rows["deviation"]
    high = rows["importance"] + rows["deviation"]
    with canvas(5.0 + 0.075 * max(map(len, names), default=0), 1.0 + 0.25 * len(rows)) as figure:
        axes = plot_intervals(names, rows["importance"], low, high, label, figure.subplots())
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def calibration_figure(calibration: pd.DataFrame, title: str) -> Figure:
    """Draw the share of rows of a class over the probability that was predicted for it, with
    scikit-learn's display.

    Args:
        calibration: a table with the columns ``class``, ``predicted`` and ``observed``.
        title: the title above the picture.
    """
    from sklearn.calibration import CalibrationDisplay

    with canvas(5.0, 5.0) as figure:
        axes = figure.subplots()
        colours = itertools.cycle(_COLOURS)
        for label, rows in calibration.groupby("class", sort=False):
            observed = rows["observed"].to_numpy()
            display = CalibrationDisplay(observed, rows["predicted"].to_numpy(), None)
            display.plot(ax=axes, name=str(label), color=next(colours))
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("share of rows")
        axes.set_title(title, fontsize=10, loc="left")
    return figure
