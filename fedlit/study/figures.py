"""The report's pictures, as SVG: narrow enough for a phone, with text that stays text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlit.show.canvas import svg_text
from fedlit.show.palette import BLUE, GREY, LINES, ORANGE
from fedlit.study.lift import client_label
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study
from fedlit.study.units import drawn, in_unit, lift_unit
from fedlit.tasks import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curves_figure", "lift_figure", "method_colours", "scores_figure"]

_WIDTH = 4.6


def method_colours(study: Study) -> dict[str, str]:
    """Method → colour: the reference black, federated methods in colours, go-alone models grey."""
    colours = {name: LINES[position % len(LINES)] for position, name in enumerate(study.federated)}
    alone = {name: "#111111" for name in study.methods if name in study.alone}
    return {**{name: GREY for name in study.labels}, **colours, **alone}


def _svg(height: float, draw: Any, title: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "fedlit", "font.family": "sans-serif", "font.size": 9,
        "font.sans-serif": ["DejaVu Sans"], "axes.spines.top": False, "axes.spines.right": False,
        "axes.edgecolor": "#999", "text.parse_math": False, "xtick.color": "#444", "ytick.color": "#222",
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        return svg_text(figure, title)


def scores_figure(study: Study, estimates: pd.DataFrame, score: Score, client: str) -> str:
    """One client: methods from top to bottom, mean over seeds with its 95 % interval, the paper's figure as a hollow
    diamond, and a line where the best go-alone model is.
    """
    own = estimates[(estimates["metric"] == score.name) & (estimates["client"] == client)].set_index("method")
    methods = [method for method in study.labels if method in own.index]
    colours = method_colours(study)
    short = ".1f" if score.percent else ".3g"

    def draw(axes: Axes) -> None:
        if BEST_ALONE in own.index:
            axes.axvline(drawn(score, float(own["mean"][BEST_ALONE])), color=GREY, lw=0.8, ls=":")
        for row, method in enumerate(methods):
            mean, low, high = (drawn(score, float(own[name][method])) for name in ("mean", "low", "high"))
            if not _bar(axes, row, mean, low, high, colours[method]):
                continue
            axes.plot(mean, row, "D" if method in (BEST_ALONE, BEST_FEDERATED) else "o", color=colours[method], ms=6)
            axes.annotate(f"{mean:{short}}", (mean, row), (0, 6), textcoords="offset points", ha="center", fontsize=7.5)
            paper = study.paper.value(method, client, score.name) if study.paper is not None else None
            if paper is not None:
                axes.plot(paper, row, "D", mfc="white", mec=colours[method], ms=5, zorder=1)
        _rows(axes, [study.labels[method] for method in methods])
        axes.set_xlabel(f"{in_unit(score)}, test")

    return _svg(0.42 * len(methods) + 0.7, draw, f"{score.label} of {client_label(client)} by method")


def lift_figure(
    study: Study, lift: pd.DataFrame, score: Score, method: str, clients: Sequence[str], limits: tuple[float, float]
) -> str:
    """A method's forest plot: lift over the reference and over the best go-alone model, client by client, with 95 %
    intervals; what lies right of zero is gained by federation.
    """
    own = lift[(lift["metric"] == score.name) & (lift["method"] == method)]
    references = list(dict.fromkeys([study.reference_of(method), study.best_alone]))
    found = {(row["reference"], row["client"]): row for row in own.to_dict("records")}

    def draw(axes: Axes) -> None:
        axes.axvline(0, color="#444", lw=1)
        for number, reference in enumerate(references):
            colour, marker = ((BLUE, "o"), (ORANGE, "D"))[number]
            shift = (number - (len(references) - 1) / 2) * 0.32
            for row, client in enumerate(clients):
                cell: Mapping[Any, Any] | None = found.get((reference, client))
                if cell is None:
                    continue
                mean, low, high = (drawn(score, float(cell[name])) for name in ("mean", "low", "high"))
                if not _bar(axes, row + shift, mean, low, high, colour):
                    continue
                clear = cell["verdict"] in ("helped", "harmed")
                axes.plot(mean, row + shift, marker, color=colour, mfc=colour if clear else "white", ms=6)
        _rows(axes, [client_label(client) for client in clients])
        axes.set_xlim(*limits)
        axes.set_xlabel(f"lift in {score.label}, {lift_unit(score)}")
        axes.text(0.99, 1.01, "federation gains →", transform=axes.transAxes, ha="right", fontsize=7.5, color="#444")
        axes.text(0.01, 1.01, "← loses", transform=axes.transAxes, ha="left", fontsize=7.5, color="#444")

    return _svg(0.45 * len(clients) + 0.9, draw, f"Lift of {study.labels[method]} in {score.label} by client")


def curves_figure(study: Study, curves: pd.DataFrame, score: Score, client: str, alone: float | None) -> str:
    """One client's validation score over training: mean over seeds, band of one standard deviation.

    Args:
        study: whose methods.
        curves: method, seed, client, metric, step, value.
        score: what is drawn.
        client: whose.
        alone: validation score of the best go-alone model, drawn as a dotted line; None for none.
    """
    own = curves[(curves["client"] == client) & (curves["metric"] == f"val/{score.name}")]
    colours = method_colours(study)

    late = own["step"].max() / 2  # the first epochs, or a method that breaks, would flatten all others

    def draw(axes: Axes) -> None:
        ends: list[float] = []
        for method in study.methods:
            values = own[own["method"] == method].pivot_table(index="step", columns="seed", values="value")
            values = drawn(score, values).dropna()
            if values.empty:
                continue
            mean, sd = values.mean(axis=1), values.std(axis=1).fillna(0.0)
            upper = (mean + sd).clip(upper=drawn(score, score.high))
            axes.fill_between(values.index, mean - sd, upper, color=colours[method], alpha=0.15, lw=0)
            axes.plot(values.index, mean, color=colours[method], lw=1.4)
            shown = values.index >= late
            ends += [*(mean - sd)[shown], *upper[shown]]
        if alone is not None and np.isfinite(alone):
            axes.axhline(drawn(score, alone), color=GREY, lw=1, ls=":")
            ends.append(drawn(score, alone))
        if ends and np.isfinite(ends).all():
            margin = max(0.05 * (max(ends) - min(ends)), drawn(score, 0.001))
            axes.set_ylim(min(ends) - margin, max(ends) + margin)
        axes.set_xlabel("aligned steps")
        axes.set_ylabel(f"{in_unit(score)}, validation")

    return _svg(3.0, draw, f"{score.label} of {client} on validation rows while training")


def _bar(axes: Axes, row: float, mean: float, low: float, high: float, colour: str) -> bool:
    """Draw an interval, or say that there is nothing to draw; whether there is a mean."""
    if not np.isfinite(mean):
        axes.text(0.02, row, "predictions not finite", transform=axes.get_yaxis_transform(), fontsize=7.5)
        return False
    if np.isfinite(low + high):
        axes.plot([low, high], [row, row], color=colour, lw=2.1, alpha=0.6, solid_capstyle="round")
    return True


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), ["\n".join(textwrap.wrap(label, 19)) for label in labels], fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e5e5e5", lw=0.8)
    axes.set_axisbelow(True)
