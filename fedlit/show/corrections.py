"""Draws corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedlit.explain.judge import IDENTITY, Judgement
from fedlit.show.canvas import canvas
from fedlit.show.heatmap import TEXT, draw_heatmap
from fedlit.show.palette import FINDING, INK, SIGNED_SCALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEGIBLE = 900  # cells, beyond which numbers in them are left out

_CELL = (0.48, 0.3)  # inches


def heatmap_figure(judged: Judgement, side: str = "input", title: str = "") -> Figure:
    """Draw clients × features, with a panel for each part of one side. Marked cells have a thin frame and findings a
    thick orange one; the names of marked features are bold.

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
    across = rows > columns  # side by side where there are more clients than columns, else one below the other
    panel = (max(2.4, _CELL[0] * columns + 1.8), max(1.2, _CELL[1] * rows + 0.5) + 0.09 * longest)
    shape = (1, len(parts)) if across else (len(parts), 1)
    with canvas(min(panel[0] * shape[1], 40), min(panel[1] * shape[0] + 0.6, 60)) as figure:
        for axes, part in zip(figure.subplots(*shape, squeeze=False).ravel(), parts, strict=True):
            _panel(axes, judged, part)
        figure.suptitle(title, fontsize=10)
    return figure


def _panel(axes: Axes, judged: Judgement, part: str) -> None:
    from matplotlib.colors import Normalize
    from matplotlib.patches import Rectangle

    values, bold = judged.matrix(part), judged.matrix(part, "feature_marked")
    centre = IDENTITY.get(part.rpartition(" ")[2], 0.0)
    table = values.to_numpy(float) - centre
    reach = max(float(np.nanmax(np.abs(table))), 1e-3)
    # digits of a cell do not show so little, while colours always use their whole scale
    little = f"\nat most {reach:.1g} from it" if reach < 0.01 else ""
    texts = np.array([[_number(value) for value in row] for row in (table + centre).tolist()])
    shown = texts if table.size <= _LEGIBLE else None
    names = list(map(str, values.columns))
    norm = Normalize(-reach, reach)
    picture = draw_heatmap(axes, table, list(values.index), names, SIGNED_SCALE, norm, shown)
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.01, fraction=0.05, aspect=12)
    bar.ax.tick_params(labelsize=TEXT)
    ends = [-reach, 0, reach]
    bar.set_ticks(ends, labels=[f"{value + centre:.{4 if little else 2}g}" for value in ends])
    axes.set_title(f"{part} (none: {centre:g}){little}", fontsize=9, loc="left")
    for label, name in zip(axes.get_xticklabels(), values.columns, strict=True):
        label.set_fontweight("bold" if bold[name].fillna(False).any() else "normal")
    for column, colour, line in (("marked", INK, 0.8), ("finding", FINDING, 2.2)):
        for i, j in np.argwhere(judged.matrix(part, column).fillna(False).to_numpy(bool)):
            axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor=colour, lw=line))


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}" if abs(value) < 10 else f"{value:.3g}"  # 0.00, not -0.00
