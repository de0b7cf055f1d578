"""Lines as pictures."""

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
