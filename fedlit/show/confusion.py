"""Draws confusion matrices."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedlit.show.canvas import canvas
from fedlit.show.heatmap import draw_heatmap
from fedlit.show.palette import SCALE

_FEW = 20  # classes; beyond, numbers cannot be read and take seconds to draw


def confusion_figure(title: str, labels: list[str], matrix: Tensor) -> Any:
    """Return a matplotlib figure with the shares of each true class (rows) by predicted class (columns), and the
    counts.

    Args:
        title: the title of the picture.
        labels: the classes.
        matrix: (len(labels) + 1, len(labels)) counts; the last row counts labels that the client does not know, and is
            drawn if there are any.
    """
    from matplotlib.colors import Normalize

    rows = [*labels, "unknown"] if int(matrix[-1].sum()) else labels
    counts = matrix[: len(rows)].cpu().numpy()
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    few = len(labels) <= _FEW
    with canvas(*((1.6 + 0.55 * len(labels), 1.4 + 0.5 * len(rows)) if few else (9, 9))) as figure:
        axes = figure.add_subplot(title=title, xlabel="predicted", ylabel="true")
        draw_heatmap(axes, shares, rows, labels, SCALE, Normalize(0, 1), counts if few else None)
        if not few:
            figure.set_layout_engine(None)
            axes.set(xticks=[], yticks=[])
    return figure
