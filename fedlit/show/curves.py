"""Draws lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedlit.show.palette import CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_LINES", "plot_lines"]

MOST_LINES = len(CLASSES)
"""That can be told apart in one panel."""


def plot_lines(lines: Mapping[str, tuple[Any, Any]], x: str, y: str, axes: Axes | None = None) -> Axes:
    """Draw lines in one pair of axes, with a legend if there are few enough to be distinguished.

    Args:
        lines: maps each label to horizontal positions (k,) and vertical positions (k,).
        x: the label of the horizontal axis.
        y: the label of the vertical axis.
        axes: Matplotlib's axes to draw on; if None, new ones, which a notebook shows below the cell.
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
