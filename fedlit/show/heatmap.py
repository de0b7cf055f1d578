"""Draws tables of numbers as colours: confusion matrices, and corrections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedlit.explain.judge import IDENTITY, Judgement
from fedlit.show.canvas import FINDING, INK, SCALE, SIGNED_SCALE, canvas, text_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from torch import Tensor

TEXT = 9
"""Points of labels: a report shows pictures at 4/3 of their size, and no label is below 12
pixels."""

_FEW = 20
"""The largest number of classes whose counts are written; more cannot be read and take seconds."""
LEGIBLE = 900
"""The largest number of cells that have texts."""
_CELL = (0.48, 0.3)
"""The width and height of a cell, in inches."""


def draw_heatmap(
    axes: Axes,
    table: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    colours: str | Colormap,
    norm: Normalize,
    texts: np.ndarray | None = None,
) -> AxesImage:
    """Draw a table. Missing values are blank.

    Args:
        axes: the axes to draw in.
        table: (n, m) numbers.
        rows: the names of the n rows.
        columns: the names of the m columns.
        colours: a colour scale, or its name.
        norm: maps numbers to the scale.
        texts: (n, m) the texts of the cells; no text if None.
    """
    import matplotlib

    scale = matplotlib.colormaps.get_cmap(colours).with_extremes(bad=(0, 0, 0, 0))
    numbers = np.ma.masked_invalid(table)
    picture = axes.imshow(numbers, cmap=scale, norm=norm, interpolation="nearest", aspect="auto")
    rotation = 90 if max(map(len, columns)) > 4 else 0
    axes.set_xticks(range(len(columns)), columns, fontsize=TEXT, rotation=rotation)
    axes.set_yticks(range(len(rows)), rows, fontsize=TEXT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if texts is None:
        return picture
    for i, j in np.argwhere(~np.isnan(table)):
        background = tuple(picture.cmap(picture.norm(numbers[i, j])))
        colour = text_on(background)
        axes.text(j, i, str(texts[i, j]), ha="center", va="center", fontsize=TEXT, color=colour)
    return picture


def confusion_figure(title: str, labels: list[str], matrix: Tensor) -> Figure:
    """Return a matplotlib figure with the shares of each true class (rows) by predicted class
    (columns), and the counts.

    Args:
        title: the title of the picture.
        labels: the classes.
        matrix: (len(labels) + 1, len(labels)) counts; the last row counts labels that the client
            does not know, and is drawn if there are any.
    """
    from matplotlib.colors import Normalize

    rows = list(labels)
    if int(matrix[-1].sum()):
        rows.append("unknown")
    counts = matrix[: len(rows)].cpu().numpy()
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    norm = Normalize(0, 1)
    few = len(labels) <= _FEW
    width = 9.0
    height = 9.0
    if few:
        width = 1.6 + 0.55 * len(labels)
        height = 1.4 + 0.5 * len(rows)
    with canvas(width, height) as figure:
        axes = figure.add_subplot(title=title, xlabel="predicted", ylabel="true")
        if few:
            draw_heatmap(axes, shares, rows, labels, SCALE, norm, counts)
        else:
            draw_heatmap(axes, shares, rows, labels, SCALE, norm)
            figure.set_layout_engine(None)
            axes.set(xticks=[], yticks=[])
    return figure


def heatmap_figure(judged: Judgement, side: str = "input", title: str = "") -> Figure:
    """Draw clients × features, with a panel for each part of one side. Marked cells have a thin
    frame and findings a thick orange one; the names of marked features are bold.

    Args:
        judged: the evaluated corrections.
        side: ``input`` or ``output``.
        title: the title above all panels.

    Raises:
        ValueError: there are no corrections on this side.
    """
    parts = [part for part in judged.parts if part.startswith(side)]
    if not parts:
        raise ValueError(f"expected corrections of the {side}s, found none")
    rows, columns = judged.matrix(parts[0]).shape
    longest = max(len(str(name)) for name in judged.matrix(parts[0]).columns)
    width = max(2.4, _CELL[0] * columns + 1.8)
    height = max(1.2, _CELL[1] * rows + 0.5) + 0.09 * longest
    # Panels are side by side if there are more clients than columns, otherwise below each other.
    shape = (len(parts), 1)
    if rows > columns:
        shape = (1, len(parts))
    with canvas(min(width * shape[1], 40), min(height * shape[0] + 0.6, 60)) as figure:
        panels = figure.subplots(*shape, squeeze=False).ravel()
        for axes, part in zip(panels, parts, strict=True):
            _panel(axes, judged, part)
        figure.suptitle(title, fontsize=10)
    return figure


def _panel(axes: Axes, judged: Judgement, part: str) -> None:
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    values = judged.matrix(part)
    bold = judged.matrix(part, "feature_marked")
    centre = IDENTITY.get(part.rpartition(" ")[2], 0.0)
    table = values.to_numpy(float) - centre
    reach = max(float(np.nanmax(np.abs(table))), 1e-3)
    texts = None
    if table.size <= LEGIBLE:
        texts = np.vectorize(_two_decimals, otypes=[object])(table + centre)
    names = list(map(str, values.columns))
    norm = Normalize(-reach, reach)
    picture = draw_heatmap(axes, table, list(values.index), names, SIGNED_SCALE, norm, texts)
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.01, fraction=0.05, aspect=12)
    bar.ax.tick_params(labelsize=TEXT)
    ends = [-reach, 0, reach]
    bar.set_ticks(ends, labels=[f"{value + centre:.4g}" for value in ends])
    axes.set_title(f"{part} (none: {centre:g})", fontsize=9, loc="left")
    for label, name in zip(axes.get_xticklabels(), values.columns, strict=True):
        label.set_fontweight("bold" if bold[name].fillna(False).any() else "normal")
    for column, colour, line in (("marked", INK, 0.8), ("finding", FINDING, 2.2)):
        framed = judged.matrix(part, column).fillna(False).to_numpy(bool)
        for i, j in np.argwhere(framed):
            corner = (j - 0.46, i - 0.46)
            axes.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=colour, lw=line))


def _two_decimals(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # Adding 0.0 turns −0.0 into 0.0.
