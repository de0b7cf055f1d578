"""Draws the distributions of clients' own columns, which show what a correction answers (Roschewitz
et al. 2021, Fig. 1 C, and the right halves of Figs 2 to 4 and 13 to 17).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlit.show.canvas import CLUSTERS, SOFT, canvas

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 6
"""Columns in one picture, at most."""
_FEW = 6  # different numbers up to which each has a bar of its own
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
        >>> column_of("ward=north", ["age", "ward"]), column_of("age", ["age", "ward"]), column_of("sex", ["age"])
        ('ward', 'age', None)
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
    shown = list(columns)[:MOST_COLUMNS]
    captions = captions or {}
    labels = dict.fromkeys(label for sample in samples.values() for label in sample.parts())
    colours = {label: CLUSTERS[place % len(CLUSTERS)] for place, label in enumerate(labels)}
    with canvas(3.8 * len(samples), 2.6 * len(shown) + 0.3) as figure:
        panels = figure.subplots(len(shown), len(samples), squeeze=False, sharex="row")
        for row, column in zip(panels, shown, strict=True):
            values = [
                value
                for sample in samples.values()
                for value in sample.rows[column].dropna().unique().tolist()
            ]
            bars = column in categorical or len({*values}) <= _FEW
            for axes, (client, sample) in zip(row, samples.items(), strict=True):
                if bars:
                    _draw_bars(axes, column, sample, colours, sorted({*values}))
                else:
                    _draw_bins(
                        axes, column, sample, colours, np.histogram_bin_edges(values, bins=_BINS)
                    )
                title = f"{client}, {column}\n{captions.get((client, column), '')}"
                axes.set_title(title.strip(), fontsize=_POINTS + 1, loc="left")
                axes.set_ylabel("share of the class", fontsize=_POINTS)
                axes.tick_params(labelsize=_POINTS, labelbottom=True)
                axes.legend(fontsize=_POINTS, title=str(sample.labels.name), title_fontsize=_POINTS)
    return figure


def _name(label: str, values: pd.Series) -> str:
    missing = int(values.isna().sum())
    return f"{label} (n = {len(values):,}" + (f", {missing:,} missing)" if missing else ")")


def _draw_bins(
    axes: Axes, column: str, sample: Sample, colours: Mapping[str, str], edges: NDArray[np.float64]
) -> None:
    for label, rows in sample.parts().items():
        values = rows[column]
        numbers = values.dropna().to_numpy(np.float64)
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
    axes: Axes, column: str, sample: Sample, colours: Mapping[str, str], known: Sequence[Any]
) -> None:
    parts = sample.parts()
    width = 0.8 / len(parts)
    places = np.arange(len(known) + 1)  # the last one for missing values
    for position, (label, rows) in enumerate(parts.items()):
        values = rows[column]
        shares = [float((values == name).mean()) for name in known]
        shares.append(float(values.isna().mean()))
        left = places + (position - (len(parts) - 1) / 2) * width
        axes.bar(
            left,
            shares,
            width,
            color=colours[label],
            edgecolor=SOFT,
            linewidth=0.4,
            label=_name(label, values),
        )
    names = [f"{name:g}" if isinstance(name, float) else str(name) for name in known]
    axes.set_xticks(places.tolist(), [*names, _MISSING])
