"""The report's pictures, as SVG: narrow enough for a phone, with text that stays text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedlit import statistics as verdicts
from fedlit.show.canvas import canvas, svg_text
from fedlit.show.palette import ALONE, BEST, INK, LINE, LOCAL, METHODS, PAPER, SOFT
from fedlit.study.lift import client_label
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, Study
from fedlit.study.units import drawn, in_unit, lift_unit
from fedlit.tasks import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["lift_figure", "scores_figure"]

_WIDTH = 4.1  # inches: the width of a phone
_STYLE = {"font.size": 12.0, "axes.spines.top": False, "axes.spines.right": False, "axes.formatter.useoffset": False}
_MANY = 10  # rows: more stand closer


def _svg(height: float, draw: Callable[[Axes], None], title: str) -> str:
    with canvas(_WIDTH, height, _STYLE) as figure:
        axes = figure.add_subplot()
        draw(axes)
        axes.locator_params(axis="x", nbins=4)
        return svg_text(figure, title)


def scores_figure(study: Study, estimates: pd.DataFrame, score: Score, client: str) -> str:
    """One client: methods from top to bottom, mean over seeds with its 95 % interval; networks alone dark, other models
    alone grey (the best of them a square, and a dotted line), federated methods in colour (the best of them a star).
    """
    own = estimates[(estimates["metric"] == score.name) & (estimates["client"] == client)].set_index("method")
    methods = [method for method in study.labels if method in own.index]
    labels, short = [study.labels[method] for method in methods], ".1f" if score.percent else ".3g"
    special = {BEST_FEDERATED: (BEST, "*", 11), BEST_ALONE: (ALONE, "s", 7), HINDSIGHT: (ALONE, "s", 7)}

    def draw(axes: Axes) -> None:
        if BEST_ALONE in own.index:
            axes.axvline(drawn(score, float(own["mean"][BEST_ALONE])), color=ALONE, lw=1, ls=":")
        for row, method in zip(_places(labels)[0], methods, strict=True):
            mean, low, high = (drawn(score, float(own[name][method])) for name in ("mean", "low", "high"))
            alone = LOCAL if method in study.methods else ALONE
            colour, mark, size = special.get(method, (alone if method in study.alone else METHODS[0], "o", 7))
            if _bar(axes, row, mean, low, high, colour):
                axes.plot(mean, row, mark, color=colour, ms=size)
                axes.annotate(f"{mean:{short}}", (mean, row), (0, 6), textcoords="offset points", ha="center")
        axes.margins(x=0.17)  # room for the value above a dot at the edge, which would lie on the names
        _rows(axes, labels)
        left, right = axes.get_xlim()
        if score.percent and right - left < 1:  # less than a point would look like much
            axes.set_xlim((left + right - 1) / 2, (left + right + 1) / 2)
        axes.set_xlabel(_wrapped(f"{in_unit(score)}, test", 26))

    return _svg(_places(labels)[1] + 0.8, draw, f"{score.label} of {client_label(client)} by method")


def lift_figure(study: Study, lift: pd.DataFrame, score: Score, clients: Sequence[str]) -> str:
    """The best federated method, client by client: lift over the reference (stars) and over the best model alone
    (squares) with 95 % intervals, filled where the verdict is to join or to stay alone.
    """
    own = lift[(lift["metric"] == score.name) & (lift["method"] == BEST_FEDERATED)]
    references = list(dict.fromkeys([study.reference, study.best_alone]))
    found = {(row["reference"], row["client"]): row for row in own.to_dict("records")}
    labels = [client_label(client) for client in clients]

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=SOFT, lw=1)
        for number, reference in enumerate(references):
            shift = (number - (len(references) - 1) / 2) * 0.16
            for row, client in zip(_places(labels)[0], clients, strict=True):
                if (cell := found.get((reference, client))) is None:
                    continue
                mean, low, high = (drawn(score, float(cell[name])) for name in ("mean", "low", "high"))
                if _bar(axes, row + shift, mean, low, high, BEST):
                    clear = cell["verdict"] in (verdicts.JOIN, verdicts.ALONE)
                    fill = BEST if clear else PAPER
                    axes.plot(mean, row + shift, "*s"[number], color=BEST, mfc=fill, ms=(11, 7)[number])
        _rows(axes, labels)
        axes.set_xlim(*_reach(drawn(score, own[["low", "high", "mean"]].to_numpy(float))))
        axes.set_xlabel(_wrapped(f"lift in {score.label}, {lift_unit(score)}", 26))
        axes.text(1, 1.01, "gains →", transform=axes.transAxes, ha="right", color=INK)
        axes.text(0, 1.01, "← loses", transform=axes.transAxes, ha="left", color=INK)

    return _svg(_places(labels)[1] + 1.1, draw, f"Lift of the best federated method in {score.label} by client")


def _reach(values: np.ndarray) -> tuple[float, float]:
    """Limits around zero; intervals of few seeds would flatten all that was found."""
    ends, means = np.abs(values[np.isfinite(values).all(axis=1)]), np.abs(values[:, 2])
    reach = 1.08 * ends.max() if ends.any() else 1.0
    means = means[np.isfinite(means)]
    reach = min(reach, 8 * means.max()) if means.any() else reach
    return -reach, reach


def _bar(axes: Axes, row: float, mean: float, low: float, high: float, colour: str) -> bool:
    """Draw an interval; whether there is a mean."""
    if not np.isfinite(mean):
        axes.text(0.02, row, "predictions not finite", transform=axes.get_yaxis_transform())
        return False
    if np.isfinite(low + high):
        axes.plot([low, high], [row, row], color=colour, lw=2.1, alpha=0.6, solid_capstyle="round")
    return True


def _places(labels: Sequence[str]) -> tuple[list[float], float]:
    """Inches from the top to the middle of each row, and to the end of the last: no two labels touch, and a long one
    takes no room from others.
    """
    least = 0.5 if len(labels) <= _MANY else 0.38
    heights = [max(least, 0.06 + 0.19 * (_wrapped(label).count("\n") + 1)) for label in labels]
    ends = np.cumsum([0.0, *heights])
    return ((ends[:-1] + ends[1:]) / 2).tolist(), float(ends[-1])


def _wrapped(label: str, width: int = 15) -> str:
    return "\n".join(textwrap.wrap(label, width))


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    places, end = _places(labels)
    axes.set_yticks(places, [_wrapped(label) for label in labels])
    axes.set_ylim(end, -0.1)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=LINE, lw=0.8)
    axes.set_axisbelow(True)
