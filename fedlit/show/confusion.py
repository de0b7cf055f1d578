"""Confusion matrices as pictures."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedlit.show.canvas import canvas
from fedlit.show.palette import SCALE, text_on

__all__ = ["confusion_figure"]


def confusion_figure(title: str, labels: list[str], matrix: Tensor) -> Any:
    """A matplotlib figure: shares of each true class (rows) by predicted class (columns), with counts.

    Args:
        title: what the matrix is of.
        labels: the classes.
        matrix: (len(labels) + 1, len(labels)) counts; the last row, labels unknown to the client, is drawn if there
            are any.
    """
    few = len(labels) <= 20  # beyond, numbers cannot be read and take seconds to draw
    rows = [*labels, "unknown"] if int(matrix[-1].sum()) else labels
    counts = matrix[: len(rows)].cpu().numpy()
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    size = (1.6 + 0.55 * len(labels), 1.4 + 0.5 * len(rows)) if few else (9, 9)
    with canvas(*size) as figure:
        if not few:
            figure.set_layout_engine(None)
        axes = figure.add_subplot()
        picture = axes.imshow(shares, vmin=0, vmax=1, cmap=SCALE, aspect="auto")
        if few:
            axes.set_xticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 4 else 0)
            axes.set_yticks(range(len(rows)), rows)
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.set_title(title)
        for i, row in enumerate(counts if few else ()):
            for j, count in enumerate(row):
                colour = text_on(picture.cmap(picture.norm(shares[i, j])))
                axes.text(j, i, str(count), ha="center", va="center", fontsize=9, color=colour)
    return figure
