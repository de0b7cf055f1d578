"""Draws the report's pictures as SVG. They are narrow enough for a phone, and their text stays text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedlit.show.canvas import canvas, svg_text
from fedlit.show.effects import plot_intervals
from fedlit.show.palette import ALONE, BEST, LOCAL, METHODS
from fedlit.study.lift import client_label
from fedlit.study.study import BEST_FEDERATED, Study
from fedlit.study.units import drawn, in_unit, lift_unit
from fedlit.tasks import Score

__all__ = ["lift_figure", "scores_figure"]

_WIDTH, _ROW = 4.1, 0.42  # inches: the width of a phone; of two lines of text
_MOST = 8  # an interval of few seeds would flatten all means: so many times the largest is shown


def scores_figure(study: Study, estimates: pd.DataFrame, score: Score, client: str) -> str:
    """Draw the mean over seeds with its 95 % interval for one client and each method, from top to bottom. Networks
    trained alone are dark, other models alone are grey, and federated methods are coloured, with another colour for the
    best.
    """
    own = estimates[(estimates["metric"] == score.name) & (estimates["client"] == client)].set_index("method")
    own = own.reindex([method for method in study.labels if method in own.index])
    colours = [
        BEST if method == BEST_FEDERATED else METHODS[0] if method in study.federated
        else LOCAL if method in study.methods else ALONE
        for method in own.index
    ]  # fmt: skip
    title = f"{score.label} of {client_label(client)} by method"
    return _intervals([study.labels[str(name)] for name in own.index], own, score, in_unit(score), title, colours)


def lift_figure(study: Study, lift: pd.DataFrame, score: Score, clients: Sequence[str]) -> str:
    """Draw the lift of the best federated method over the best model alone, for each client, with 95 % intervals."""
    own = lift[(lift["metric"] == score.name) & (lift["method"] == BEST_FEDERATED)]
    own = own[own["reference"] == study.best_alone].set_index("client").reindex(list(clients))
    label = f"lift in {score.label}, {lift_unit(score)}"
    title = f"Lift of the best federated method in {score.label} by client"
    return _intervals(list(map(client_label, clients)), own, score, label, title)


def _intervals(
    names: Sequence[str], own: pd.DataFrame, score: Score, label: str, title: str, colours: Sequence[str] = ()
) -> str:
    mean, low, high = (drawn(score, own[name].to_numpy(float)) for name in ("mean", "low", "high"))
    with canvas(_WIDTH, _ROW * len(names) + 0.8) as figure:
        rows = [textwrap.fill(name, 20) for name in names]
        axes = plot_intervals(rows, mean, low, high, label, figure.subplots(), zero=not colours, colours=colours)
        if not colours and np.isfinite(mean).any():
            ends, most = np.abs([low, mean, high]), _MOST * np.nanmax(np.abs(mean))
            reach = 1.08 * min(np.nanmax(ends), most or np.inf) or 1.0
            axes.set_xlim(-reach, reach)
        axes.locator_params(axis="x", nbins=4)
        return svg_text(figure, title)
