"""Curves of predictions as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlit.show.canvas import canvas
from fedlit.show.palette import CLASSES, INK, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MOST_LINES", "Panel", "curves_figure", "plot_lines"]

MOST_LINES = len(CLASSES)
"""That can be told apart in one panel."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: above it.
        x: what is to the right.
        y: what is upwards.
        lines: label → (k,) positions to the right, (k,) positions upwards; :data:`MOST_LINES` at most.
        marker: of each point, as matplotlib calls it; none by default.
        joined: whether points are joined.
        diagonal: whether the line of equal values is drawn to compare with.
        unit: whether both axes go from 0 to 1.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Any, Any]]
    marker: str = ""
    joined: bool = True
    diagonal: bool = True
    unit: bool = True


def curves_figure(title: str, panels: Sequence[Panel]) -> Figure:
    """A matplotlib figure: the panels side by side, and one legend where they have several lines.

    Args:
        title: what it is of, above all.
        panels: of the same lines.
    """
    labels = list(panels[0].lines)
    width = 2.7 * len(panels)
    with canvas(width, 3.3) as figure:
        figure.set_layout_engine(None)  # looking for places takes longer than drawing
        figure.subplots_adjust(0.55 / width, 0.3, 1 - 0.1 / width, 0.84, wspace=0.32)
        for number, panel in enumerate(panels, 1):
            drawn = _draw(figure.add_subplot(1, len(panels), number), panel)
        figure.suptitle(title, fontsize=10)
        if len(labels) > 1:
            figure.legend(drawn, labels, loc="lower center", ncols=min(5, len(labels)), fontsize=7, frameon=False)
    return figure


def _draw(axes: Any, panel: Panel) -> list[Any]:
    if panel.unit:
        ticks = (0, 0.5, 1)  # drawing text is what takes time
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xticks=ticks, yticks=ticks)
    if panel.diagonal:
        axes.axline((0, 0) if panel.unit else _middle(panel), slope=1, color=SOFT, linewidth=0.8, linestyle="--")
    colours = CLASSES if len(panel.lines) > 1 else (INK,)
    drawn = []
    style = "-" if panel.joined else "none"
    for (x, y), colour in zip(panel.lines.values(), colours, strict=False):
        drawn += axes.plot(x, y, color=colour, linestyle=style, linewidth=1.2, marker=panel.marker, markersize=3)
    axes.set_title(panel.title, fontsize=9, y=1)
    axes.set_xlabel(panel.x, fontsize=8)
    axes.set_ylabel(panel.y, fontsize=8)
    axes.tick_params(labelsize=7)
    return drawn


def _middle(panel: Panel) -> tuple[float, float]:
    """A point of the diagonal that is in sight."""
    value = float(next(iter(panel.lines.values()))[0].mean())
    return value, value


def plot_lines(lines: Mapping[str, tuple[Any, Any]], x: str, y: str, axes: Axes | None = None) -> Axes:
    """Lines in one pair of axes, with a legend where they can be told apart.

    Args:
        lines: label → (k,) positions to the right, (k,) positions upwards.
        x: what is to the right.
        y: what is upwards.
        axes: Matplotlib's, to draw on; new ones, which a notebook shows below the cell, if None.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for name, (right, up) in lines.items():
        axes.plot(right, up, label=name)
    axes.set(xlabel=x, ylabel=y)
    if len(lines) <= MOST_LINES:
        axes.legend(frameon=False)
    return axes
