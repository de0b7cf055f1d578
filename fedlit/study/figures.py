"""The report's pictures, as SVG: narrow enough for a phone, with text that stays text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlit import statistics as verdicts
from fedlit.show.canvas import canvas, svg_text
from fedlit.show.palette import ALONE, BEST, INK, LINE, LOCAL, METHODS, PAPER, SOFT, THEME
from fedlit.study.lift import client_label
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, Study
from fedlit.study.units import drawn, in_unit, lift_unit
from fedlit.tasks import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Look", "calibration_figure", "curves_figure", "importance_figure", "lift_figure", "looks", "scores_figure"]

# A unit of the picture is a pixel where it is this wide: on a phone. Wider pages show it larger, none smaller.
_WIDTH, _TEXT = 4.1, 12.0
_STYLE = {"font.size": _TEXT, "axes.spines.top": False, "axes.spines.right": False, "axes.formatter.useoffset": False}
_BEST_ALONE, _BEST_FEDERATED, _METHOD, _PAPER = "s", "*", "o", "D"  # squares are of going alone, in any figure
_MANY = 10  # rows: more stand closer
_NAMES = {light: name for name, (light, _) in THEME.items()}
_LINES = ("solid", "dashed", "dotted")
# With the colours used up, dots take another shape; the page writes it as a letter. Triangles are verdicts.
_SHAPES = {_METHOD: "●", "P": "✚", "X": "✖"}


@dataclass(frozen=True)
class Look:
    """How a method is drawn, in every figure.

    Attributes:
        colour: of the palette.
        line: solid, dashed, or dotted: a second way to tell it from others.
        mark: Matplotlib's marker: where a colour comes again, of another shape.
    """

    colour: str
    line: str = "solid"
    mark: str = _METHOD

    @property
    def variable(self) -> str:
        """The page's name of the colour."""
        return f"var(--{_NAMES[self.colour]})"

    @property
    def sign(self) -> str:
        """A method's mark as a letter."""
        return _SHAPES[self.mark]


def looks(study: Study) -> dict[str, Look]:
    """Method → how it is drawn: networks alone dark, other go-alone models grey, federated methods in colours, the best
    of both kinds in a shape of its own.
    """
    found = {name: Look(ALONE) for name in study.labels}
    found |= {name: Look(LOCAL) for name in study.methods if name in study.alone}
    half, shapes = len(METHODS) // 2, list(_SHAPES)
    for place, name in enumerate(study.federated):
        again = place // len(METHODS)
        line = _LINES[min(min(place // half, 1) + again, 2)]  # the second half is dashed, what comes again is dotted
        found[name] = Look(METHODS[place % len(METHODS)], line, shapes[min(again, len(shapes) - 1)])
    alone = {name: Look(ALONE, mark=_BEST_ALONE) for name in (BEST_ALONE, HINDSIGHT)}
    best = {**alone, BEST_FEDERATED: Look(BEST, mark=_BEST_FEDERATED)}
    return found | {name: look for name, look in best.items() if name in found}


def _svg(height: float, draw: Callable[[Axes], None], title: str) -> str:
    with canvas(_WIDTH, height, _STYLE) as figure:
        axes = figure.add_subplot()
        draw(axes)
        axes.locator_params(axis="x", nbins=4)
        return svg_text(figure, title)


def scores_figure(study: Study, estimates: pd.DataFrame, score: Score, client: str) -> str:
    """One client: methods from top to bottom, mean over seeds with its 95 % interval, the best model alone as a
    square and the best federated method as a star, the paper's figure as a hollow diamond, and a line where the best
    model alone is.
    """
    own = estimates[(estimates["metric"] == score.name) & (estimates["client"] == client)].set_index("method")
    methods = [method for method in study.labels if method in own.index]
    drawn_as, labels = looks(study), [study.labels[method] for method in methods]
    short = ".1f" if score.percent else ".3g"

    def draw(axes: Axes) -> None:
        if BEST_ALONE in own.index:
            axes.axvline(drawn(score, float(own["mean"][BEST_ALONE])), color=ALONE, lw=1, ls=":")
        for row, method in zip(_places(labels)[0], methods, strict=True):
            mean, low, high = (drawn(score, float(own[name][method])) for name in ("mean", "low", "high"))
            look = drawn_as[method]
            if not _bar(axes, row, mean, low, high, look.colour):
                continue
            axes.plot(mean, row, look.mark, color=look.colour, ms=11 if look.mark == _BEST_FEDERATED else 7)
            axes.annotate(f"{mean:{short}}", (mean, row), (0, 6), textcoords="offset points", ha="center")
            paper = study.paper.value(method, client, score.name) if study.paper is not None else None
            if paper is not None:
                axes.plot(paper, row, _PAPER, mfc=PAPER, mec=look.colour, ms=6, zorder=1)
        axes.margins(x=0.17)  # room for the value above a dot at the edge, which would lie on the names
        _rows(axes, labels)
        axes.set_xlabel(_wrapped(f"{in_unit(score)}, test", 26))

    return _svg(_places(labels)[1] + 0.8, draw, f"{score.label} of {client_label(client)} by method")


def lift_figure(
    study: Study, lift: pd.DataFrame, score: Score, method: str, clients: Sequence[str], limits: tuple[float, float]
) -> str:
    """A method's forest plot in its own colour: lift over the reference (its own sign) and over the best model alone
    (squares), client by client, with 95 % intervals; what lies right of zero is gained by federation.
    """
    own = lift[(lift["metric"] == score.name) & (lift["method"] == method)]
    references = list(dict.fromkeys([study.reference_of(method), study.best_alone]))
    found = {(row["reference"], row["client"]): row for row in own.to_dict("records")}
    look, labels = looks(study)[method], [client_label(client) for client in clients]

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=SOFT, lw=1)
        for number, reference in enumerate(references):
            marker = (look.mark, _BEST_ALONE)[number]
            size = 11 if marker == _BEST_FEDERATED else 7
            shift = (number - (len(references) - 1) / 2) * 0.16
            for row, client in zip(_places(labels)[0], clients, strict=True):
                cell: Mapping[Any, Any] | None = found.get((reference, client))
                if cell is None:
                    continue
                mean, low, high = (drawn(score, float(cell[name])) for name in ("mean", "low", "high"))
                if not _bar(axes, row + shift, mean, low, high, look.colour):
                    continue
                clear = cell["verdict"] in (verdicts.JOIN, verdicts.ALONE)
                axes.plot(mean, row + shift, marker, color=look.colour, mfc=look.colour if clear else PAPER, ms=size)
        _rows(axes, labels)
        axes.set_xlim(*limits)
        axes.set_xlabel(_wrapped(f"lift in {score.label}, {lift_unit(score)}", 26))
        axes.text(1, 1.01, "gains →", transform=axes.transAxes, ha="right", color=INK)
        axes.text(0, 1.01, "← loses", transform=axes.transAxes, ha="left", color=INK)

    return _svg(_places(labels)[1] + 1.1, draw, f"Lift of {study.labels[method]} in {score.label} by client")


def curves_figure(study: Study, curves: pd.DataFrame, score: Score, client: str, alone: float | None) -> str:
    """One client's validation score over training: mean over seeds, band of one standard deviation.

    Args:
        study: whose methods.
        curves: method, seed, client, metric, step, value.
        score: what is drawn.
        client: whose.
        alone: validation score of the best model alone, drawn as a dotted line; None for none.
    """
    own = curves[(curves["client"] == client) & (curves["metric"] == f"val/{score.name}")]
    drawn_as = looks(study)
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
            axes.fill_between(values.index, mean - sd, upper, color=drawn_as[method].colour, alpha=0.15, lw=0)
            axes.plot(
                values.index,
                mean,
                color=drawn_as[method].colour,
                ls=drawn_as[method].line,
                lw=1.6,
                marker=drawn_as[method].mark if len(values) == 1 else "",
            )  # a line of one point is none
            shown = values.index >= late
            ends += [*(mean - sd)[shown], *upper[shown]]
        if alone is not None and np.isfinite(alone):
            axes.axhline(drawn(score, alone), color=ALONE, lw=1.4, ls=":")
            ends.append(drawn(score, alone))
        if ends and np.isfinite(ends).all():
            margin = max(0.05 * (max(ends) - min(ends)), drawn(score, 0.001))
            axes.set_ylim(min(ends) - margin, max(ends) + margin)
        axes.set_xlabel("aligned steps")
        axes.set_ylabel(_wrapped(f"{in_unit(score)}, validation", 26))

    return _svg(3.0, draw, f"{score.label} of {client} on validation rows while training")


def importance_figure(columns: pd.DataFrame, score: Score, client: str) -> str:
    """One client: how much worse its score is when a column says nothing, the column that counts most on top.

    Args:
        columns: ``column``, ``mean`` and ``sd`` of the gain that the column gives, in this order.
        score: of what.
        client: whose.
    """
    labels = columns["column"].tolist()

    def draw(axes: Axes) -> None:
        mean, sd = (drawn(score, columns[name].to_numpy(float)) for name in ("mean", "sd"))
        places = _places(labels)[0]
        axes.barh(places, mean, height=0.24, color=BEST)
        for place, middle, reach in zip(places, mean, np.nan_to_num(sd), strict=True):
            axes.plot([middle - reach, middle + reach], [place, place], color=INK, lw=1.2)
        axes.axvline(0, color=SOFT, lw=1)
        _rows(axes, labels)
        lost = "percentage points lost" if score.percent else "how much worse"
        axes.set_xlabel(_wrapped(f"{score.label}: {lost} when the column is shuffled", 30))

    return _svg(_places(labels)[1] + 0.9, draw, f"On which columns {client} rests")


def calibration_figure(bins: pd.DataFrame, client: str) -> str:
    """One client: what was predicted against what was true, a dot for each bin with its number of rows.

    Args:
        bins: ``of``, ``predicted``, ``true``, ``rows``.
        client: whose.
    """
    number = (bins["of"] == "number").any()

    def draw(axes: Axes) -> None:
        x, y, rows = (bins[name].to_numpy(float) for name in ("predicted", "true", "rows"))
        x, y = (x, y) if number else (100 * x, 100 * y)
        low, high = (min(x.min(), y.min()), max(x.max(), y.max())) if number else (0.0, 100.0)
        axes.plot([low, high], [low, high], color=SOFT, lw=1, ls="--")
        axes.plot(x, y, color=BEST, lw=1.2)
        axes.scatter(x, y, 18 + 90 * rows / rows.max(), color=BEST, zorder=3)
        for place in zip(x, y, rows, strict=True):
            axes.annotate(f"{place[2]:.0f}", place[:2], (0, 8), textcoords="offset points", ha="center")
        axes.margins(0.08, 0.14)
        axes.grid(color=LINE, lw=0.8)
        axes.set_axisbelow(True)
        axes.set_xlabel("predicted" if number else "predicted probability, %")
        axes.set_ylabel("true, mean" if number else "came true, %")

    return _svg(3.2, draw, f"What was predicted for {client} against what was true")


def _bar(axes: Axes, row: float, mean: float, low: float, high: float, colour: str) -> bool:
    """Draw an interval, or say that there is nothing to draw; whether there is a mean."""
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
