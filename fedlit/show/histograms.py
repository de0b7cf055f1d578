"""Draws the distributions of clients' columns, which show the reason for a correction (Roschewitz
et al. 2021, Fig. 1 C, and the right halves of Figs 2 to 4 and 13 to 17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlit.show.canvas import CLUSTERS, SOFT, canvas

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 6
"""The maximum number of columns in one picture."""
_FEW = 6
"""The largest number of different values that have a bar each."""
_BINS = 24
_POINTS = 8
_MISSING = "missing"


class Sample(NamedTuple):
    """The rows of one client that are drawn: its columns, and the labels by which rows are told
    apart.
    """

    rows: pd.DataFrame
    labels: pd.Series

    def classes(self) -> list[Any]:
        """Return the labels to tell apart; none if there are too many, or several a row."""
        if isinstance(self.labels.name, tuple) or self.labels.nunique() > len(CLUSTERS):
            return []
        return sorted(self.labels.unique().tolist())

    def parts(self) -> dict[str, pd.DataFrame]:
        """Return the rows of each class, by its name; all rows together if there are no classes to
        tell apart.
        """
        classes = self.classes()
        if not classes:
            return {"all rows": self.rows}
        return {str(label): self.rows[(self.labels == label).to_numpy()] for label in classes}


def column_of(feature: str, columns: Sequence[str]) -> str | None:
    """Return the column of which an input was made: that of the same name, or the longest name
    before ``=category``; None if there is no such column.

    Example:
        >>> column_of("ward=north", ["age", "ward"]), column_of("age", ["age", "ward"])
        ('ward', 'age')
        >>> column_of("sex", ["age"]) is None
        True
    """
    if feature in columns:
        return feature
    return max((name for name in columns if feature.startswith(f"{name}=")), key=len, default=None)


def histogram_figure(
    samples: Mapping[str, Sample],
    columns: Sequence[str],
    categorical: Sequence[str] = (),
    captions: Mapping[tuple[str, str], str] | None = None,
) -> Figure:
    """Draw columns × clients: how a client's values of a column are distributed in each class, in
    the table's own units. The panels of a column have one axis of values. Each class is drawn as
    shares of its rows, missing ones included, with the numbers of rows and of missing values.

    Args:
        samples: the rows of each client.
        columns: the columns, the first :data:`MOST_COLUMNS` of which are drawn.
        categorical: the columns that hold categories.
        captions: a line for the panel of a client and a column.
    """
    columns = list(columns)[:MOST_COLUMNS]
    captions = captions or {}
    labels = dict.fromkeys(chain.from_iterable(sample.parts() for sample in samples.values()))
    colours = dict(zip(labels, cycle(CLUSTERS)))
    with canvas(3.8 * len(samples), 2.6 * len(columns) + 0.3) as figure:
        panels = figure.subplots(len(columns), len(samples), squeeze=False, sharex="row")
        for row, column in zip(panels, columns, strict=True):
            values: list[str | float] = []
            for sample in samples.values():
                values += sample.rows[column].dropna().unique().tolist()
            levels = sorted(set(values))
            bars = column in categorical or len(levels) <= _FEW
            for axes, (client, sample) in zip(row, samples.items(), strict=True):
                if bars:
                    _draw_bars(axes, column, sample, colours, levels)
                else:
                    edges = np.histogram_bin_edges(values, bins=_BINS)
                    _draw_bins(axes, column, sample, colours, edges)
                title = f"{client}, {column}\n{captions.get((client, column), '')}"
                axes.set_title(title.strip(), fontsize=_POINTS + 1, loc="left")
                axes.set_ylabel("share of the class", fontsize=_POINTS)
                axes.tick_params(labelsize=_POINTS, labelbottom=True)
                axes.legend(fontsize=_POINTS, title=str(sample.labels.name), title_fontsize=_POINTS)
    return figure


def _name(label: str, values: pd.Series) -> str:
    missing = int(values.isna().sum())
    if missing:
        return f"{label} (n = {len(values):,}, {missing:,} missing)"
    return f"{label} (n = {len(values):,})"


def _draw_bins(
    axes: Axes, column: str, sample: Sample, colours: Mapping[str, str], edges: NDArray[np.float64]
) -> None:
    """Draw how a client's numbers are distributed in each class."""
    for label, rows in sample.parts().items():
        values = rows[column]
        numbers = values.dropna().to_numpy(np.float64)
        # Each number is a share of all rows of the class: missing ones lower the bars.
        shares = np.full(len(numbers), 1 / max(len(values), 1))
        axes.hist(
            numbers,
            bins=edges.tolist(),
            weights=shares,
            alpha=0.6,
            color=colours[label],
            edgecolor=SOFT,
            linewidth=0.4,
            label=_name(label, values),
        )


def _draw_bars(
    axes: Axes,
    column: str,
    sample: Sample,
    colours: Mapping[str, str],
    levels: Sequence[str | float],
) -> None:
    parts = sample.parts()
    width = 0.8 / len(parts)
    centres = np.arange(len(levels) + 1)  # The last one is for missing values.
    for position, (label, rows) in enumerate(parts.items()):
        values = rows[column]
        shares = [float((values == level).mean()) for level in levels]
        shares.append(float(values.isna().mean()))
        axes.bar(
            centres + (position - (len(parts) - 1) / 2) * width,
            shares,
            width,
            color=colours[label],
            edgecolor=SOFT,
            linewidth=0.4,
            label=_name(label, values),
        )
    names = [f"{level:g}" if isinstance(level, float) else str(level) for level in levels]
    axes.set_xticks(centres.tolist(), [*names, _MISSING])
