"""Corrections and distributions as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlit.explain.judge import IDENTITY, Judgement
from fedlit.show.canvas import canvas
from fedlit.show.heatmap import TEXT, draw_heatmap
from fedlit.show.palette import CLASSES, FINDING, INK, SIGNED_SCALE, class_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MOST_HISTOGRAMS", "heatmap_figure", "histogram_figure"]

MOST_HISTOGRAMS = 12

_LEGIBLE = 900  # cells, beyond which numbers in them are left out

_CELL = (0.48, 0.3)  # inches


def heatmap_figure(judged: Judgement, side: str = "input", title: str = "") -> Figure:
    """Clients × features, a panel for each part of one side; marked cells have a thin frame, findings a thick orange
    one; names of marked features are bold.

    Args:
        judged: corrections.
        side: ``input`` or ``output``.
        title: above all panels.

    Raises:
        ValueError: no corrections on this side.
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


def histogram_figure(
    client: str,
    rows: pd.DataFrame,
    target: pd.Series,
    features: Sequence[str],
    notes: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> Figure:
    """Distributions of a client's own columns by class, in the table's own units, each class with the number of its
    rows that have a value; of all rows together where the target is a number of many values, or several
    labels.

    Args:
        client: its name.
        rows: its training rows.
        target: their labels.
        features: names of inputs: a column, or ``column=category``.
        notes: a line above each.
        categorical: columns that hold categories.

    Raises:
        ValueError: no feature that the table has.
    """
    numeric = pd.api.types.is_float_dtype(target) and target.nunique() > len(CLASSES)
    if together := isinstance(target.name, tuple) or numeric:
        target = pd.Series("all rows", target.index, name="")
    colours = class_colours(sorted(target.unique().tolist()))
    chosen: dict[str, str] = {}
    for place, feature in enumerate(features):
        if column := _column_of(feature, [str(name) for name in rows]):
            chosen.setdefault(column, notes[place] if place < len(notes) else "")
    if not chosen:
        raise ValueError(f"expected columns of client {client!r}, found {list(features)}")
    shown = list(chosen)[:MOST_HISTOGRAMS]
    across = min(3, len(shown))
    down = -(-len(shown) // across)
    with canvas(3.6 * across, 2.9 * down + 0.3) as figure:
        for position, column in enumerate(shown, 1):
            axes, own = figure.add_subplot(down, across, position), rows[column]
            draw = _bars if column in categorical or own.nunique() <= 6 else _curves
            draw(axes, own, target, colours)
            missing = int(own.isna().sum())
            lost = f" ({missing} of {len(own)} missing)" if missing else ""
            axes.set_title(f"{column}{lost}\n{chosen[column]}".strip(), fontsize=TEXT)
            axes.set_ylabel("share of the class", fontsize=TEXT)
            axes.tick_params(labelsize=TEXT)
            if len(colours) <= len(CLASSES):
                axes.legend(fontsize=8, title=str(target.name), title_fontsize=8)
        by_class = "" if together else ", by class"
        figure.suptitle(f"{client}: its own {len(target):,} training rows{by_class}", fontsize=10)
    return figure


def _column_of(feature: str, columns: Sequence[str]) -> str | None:
    """The table's column that an input was made of: of that name, or the longest one before ``=category``."""
    if feature in columns:
        return feature
    return max((name for name in columns if feature.startswith(f"{name}=")), key=len, default=None)


def _curves(axes: Axes, values: pd.Series, target: pd.Series, colours: Mapping[Any, Any]) -> None:
    numbers = values.to_numpy(np.float64, na_value=np.nan)
    edges = np.histogram_bin_edges(numbers[~np.isnan(numbers)], bins=24)
    for label, colour in colours.items():
        own = numbers[(target == label).to_numpy() & ~np.isnan(numbers)]
        if len(own):
            shares, called = np.full(len(own), 1 / len(own)), f"{label} (n = {len(own):,})"
            axes.hist(own, bins=edges.tolist(), weights=shares, alpha=0.6, color=colour, label=called)


def _bars(axes: Axes, values: pd.Series, target: pd.Series, colours: Mapping[Any, Any]) -> None:
    names = [*sorted(values.dropna().unique().tolist()), *(["missing"] if values.isna().any() else [])]
    for position, (label, colour) in enumerate(colours.items()):
        own = values[(target == label).to_numpy()]
        shares = [(own.isna() if name == "missing" else own == name).mean() for name in names]
        width = 0.8 / len(colours)
        places = np.arange(len(names)) + (position - (len(colours) - 1) / 2) * width
        axes.bar(places, shares, width, color=colour, label=f"{label} (n = {len(own):,})")
    axes.set_xticks(range(len(names)), [f"{name:g}" if isinstance(name, float) else str(name) for name in names])
