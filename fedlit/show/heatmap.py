"""Draws a table of numbers as colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedlit.show.palette import text_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

TEXT = 9
"""Points of labels: a report shows pictures at 4/3 of their size, and no label is below 12 pixels."""


def draw_heatmap(
    axes: Axes,
    table: NDArray[Any],
    rows: Sequence[str],
    columns: Sequence[str],
    colours: str,
    norm: Any,
    texts: NDArray[Any] | None = None,
) -> AxesImage:
    """Draw a table. Missing values are blank.

    Args:
        axes: the axes to draw in.
        table: (n, m) numbers.
        rows: the names of the n rows.
        columns: the names of the m columns.
        colours: the name of a colour scale.
        norm: maps numbers to the scale.
        texts: (n, m) the texts of the cells; no text if None.
    """
    import matplotlib

    scale = matplotlib.colormaps[colours].with_extremes(bad=(0, 0, 0, 0))
    shown = np.ma.masked_invalid(table)
    picture = axes.imshow(shown, cmap=scale, norm=norm, interpolation="nearest", aspect="auto")
    axes.set_xticks(range(len(columns)), columns, fontsize=TEXT, rotation=90 if max(map(len, columns)) > 4 else 0)
    axes.set_yticks(range(len(rows)), rows, fontsize=TEXT)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if texts is None:
        return picture
    for i, j in np.argwhere(~np.isnan(table)):
        colour = text_on(picture.cmap(picture.norm(shown[i, j])))
        axes.text(j, i, str(texts[i, j]), ha="center", va="center", fontsize=TEXT, color=colour)
    return picture
