"""Who belongs together, and how far clients are apart, as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlit.explain.clusters import concepts_of, stable_numbers
from fedlit.names import Clusters
from fedlit.show.canvas import canvas
from fedlit.show.palette import CLUSTERS, INK, PAPER, SCALE, SIGNED_SCALE, text_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["membership_figure", "pairs_figure", "paths_figure"]


_BY_ITSELF, _NOTHING, _INFINITE = "#c4c8ce", (0.0, 0.0, 0.0, 0.0), "#000000"
_TEXT = 9  # a report shows these pictures at 4/3 of their size: no label is below 12 pixels
_FEW = 12  # clients, up to which a pair's number stands in its cell
_LETTERS = 900  # cells, up to which a cluster's letter stands where a client comes into it


def membership_figure(frame: pd.DataFrame, title: str = "") -> Figure:
    """Clients × rounds, a colour for each cluster, grey for a client by itself; its letter where a client comes into
    it, and of the last round at the right. Clients are grouped by planted concept, where it is known.

    Args:
        frame: of :data:`CLUSTERS`.
        title: above it.

    Raises:
        ValueError: no rounds.
    """
    if not len(frame):
        raise ValueError("expected clusters of at least one round, found none")
    numbers, concepts = stable_numbers(frame), concepts_of(frame)
    clients = sorted(numbers.index, key=lambda name: (name not in concepts, _natural(concepts.get(name, "")), name))
    table = numbers.loc[clients].to_numpy()
    groups = [concepts.get(name, "") for name in clients]
    starts = [row for row, concept in enumerate(groups) if row == 0 or concept != groups[row - 1]]
    labels = list(clients)
    for row in starts if concepts else ():
        called = f"concept {groups[row]}" if groups[row].isdigit() else groups[row] or "concept not known"
        labels[row] = f"{called} │ {clients[row]}"
    width = min(max(3.0, 0.22 * table.shape[1]), 9.0) + 0.4 + 0.08 * max(map(len, labels))
    with canvas(width, max(1.5, 0.25 * len(clients) + 0.9)) as figure:
        axes = figure.add_subplot()
        axes.imshow([[_colour(value) for value in row] for row in table], aspect="auto", interpolation="nearest")
        axes.set_yticks(range(len(clients)), labels, fontsize=_TEXT)
        _round_ticks(axes, numbers.columns.tolist())
        for row in range(1, len(clients)):
            edge = concepts and row in starts
            axes.axhline(row - 0.5, color=INK if edge else PAPER, lw=1.6 if edge else 0.8)
        _comings(axes, table)
        axes.tick_params(length=0)
        axes.set_xlabel("round (grey: a client by itself)", fontsize=_TEXT)
        ends = axes.secondary_yaxis("right")
        ends.set_yticks(range(len(clients)), [_letter(value) for value in table[:, -1]], fontsize=_TEXT)
        ends.tick_params(length=0)
        _spineless(axes, ends)
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def pairs_figure(pairs: pd.DataFrame, partition: Clusters | None = None, title: str = "") -> Figure:
    """What a rule measured between clients in its last round, a heatmap for each measure; black is infinite, what
    has no value is blank. The scale is logarithmic where positive values span more than two decades.

    Args:
        pairs: of :data:`PAIRS`.
        partition: clients are in this order, with a line around each cluster; by name if None.
        title: above it.

    Raises:
        ValueError: no pairs.
    """
    if not len(pairs):
        raise ValueError("expected at least one pair of clients, found none")
    own = pairs[pairs["round"] == pairs["round"].max()]
    names = sorted({*own["first"], *own["second"]})
    if partition is not None:
        place = {name: number for number, group in enumerate(partition) for name in group}
        names.sort(key=lambda name: (place.get(name, len(place)), name))
        cuts = [i for i in range(1, len(names)) if place.get(names[i]) != place.get(names[i - 1])]
    else:
        cuts = []
    measures = list(dict.fromkeys(own["measure"]))
    side = max(1.6, (0.52 if len(names) <= _FEW else 0.22) * len(names))
    margin = 0.085 * max(map(len, names))
    with canvas((side + 1.0) * len(measures) + margin, side + margin + 0.5) as figure:
        panels = figure.subplots(1, len(measures), sharey=True, squeeze=False).ravel()
        for axes, measure in zip(panels, measures, strict=True):
            _heatmap(axes, own[own["measure"] == measure], names, measure)
            for cut in cuts:
                axes.axhline(cut - 0.5, color=INK, lw=1.4)
                axes.axvline(cut - 0.5, color=INK, lw=1.4)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def paths_figure(paths: pd.DataFrame, title: str = "") -> Figure:
    """The loss along paths between two clients' models, mean and standard deviation over pairs (Lucchetti et al. 2022,
    Fig. 2).

    Args:
        paths: of :data:`PATHS`.
        title: above it.
    """
    with canvas(4.6, 3.2) as figure:
        axes = figure.add_subplot()
        for number, (path, own) in enumerate(paths.groupby("path", sort=False)):
            loss = own.groupby("u")["loss"].agg(["mean", "std"]).fillna(0.0)
            colour = CLUSTERS[number]
            axes.plot(
                loss.index, loss["mean"], color=colour, label=f"{path} path", ls="--" if path == "straight" else "-"
            )
            low = (loss["mean"] - loss["std"]).clip(lower=0)
            axes.fill_between(loss.index, low, loss["mean"] + loss["std"], color=colour, alpha=0.15, lw=0)
        axes.set_xlabel("u, from one client's model (0) to another's (1)", fontsize=_TEXT)
        axes.set_ylabel("loss on random inputs", fontsize=_TEXT)
        axes.tick_params(labelsize=_TEXT)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=_TEXT, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def _heatmap(axes: Axes, own: pd.DataFrame, names: Sequence[str], measure: str) -> None:
    from matplotlib.colors import LogNorm, Normalize, to_rgba

    place = {name: number for number, name in enumerate(names)}
    table = np.full((len(names), len(names)), np.nan)
    for first, second, value in own[["first", "second", "value"]].itertuples(index=False):
        table[place[first], place[second]] = table[place[second], place[first]] = value
    finite = table[np.isfinite(table)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    behind = np.where(np.isinf(table)[..., None], to_rgba(_INFINITE), _NOTHING)
    axes.imshow(behind, interpolation="nearest", aspect="auto")
    colours, scale = SCALE, LogNorm(low, high) if low > 0 and high > 100 * low else Normalize(low, high)
    if low < 0 < high:
        colours, scale = SIGNED_SCALE, Normalize(-max(-low, high), max(-low, high))
    shown = np.ma.masked_invalid(table)
    picture = axes.imshow(shown, cmap=colours, norm=scale, interpolation="nearest", aspect="auto")
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.02, fraction=0.05, aspect=20)
    bar.ax.tick_params(labelsize=_TEXT)
    bar.set_label(measure + (" (black: infinite)" if np.isinf(table).any() else ""), fontsize=_TEXT)
    axes.set_xticks(range(len(names)), names, fontsize=_TEXT, rotation=90)
    axes.set_yticks(range(len(names)), names, fontsize=_TEXT)
    axes.tick_params(length=0)
    _spineless(axes)
    if len(names) > _FEW:
        return
    for i, j in np.argwhere(~np.isnan(table)):
        value = float(table[i, j])
        cell = picture.cmap(picture.norm(np.array(value))) if np.isfinite(value) else to_rgba(_INFINITE)
        axes.text(j, i, _number(value), ha="center", va="center", fontsize=_TEXT, color=text_on(cell))


def _number(value: float) -> str:
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0 or 0.01 <= abs(value) < 100:
        return f"{value:.2f}"
    return f"{value:.0f}" if 100 <= abs(value) < 10_000 else f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")


def _natural(text: str) -> list[tuple[bool, Any]]:
    """Sorts concept 2 before concept 10."""
    import re

    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", text)]


def _colour(number: float) -> tuple[float, float, float, float]:
    """Blank where there is no cluster; colours are used again, lighter, where there are more clusters."""
    from matplotlib.colors import to_rgb, to_rgba

    if np.isnan(number):
        return _NOTHING
    if number < 0:
        return to_rgba(_BY_ITSELF)
    again, position = divmod(int(number), len(CLUSTERS))
    red, green, blue = (1 - (1 - part) * 0.5**again for part in to_rgb(CLUSTERS[position]))
    return red, green, blue, 1.0


def _comings(axes: Axes, table: np.ndarray) -> None:
    """The letter of a cluster in the first cell of each client's stay there: colours alone tell few people apart."""
    if table.size > _LETTERS:
        return
    for row, column in np.argwhere(table >= 0):
        if column == 0 or table[row, column] != table[row, column - 1]:
            letter = _letter(table[row, column])
            axes.text(column, row, letter, ha="center", va="center", fontsize=_TEXT, color="#000000")


def _letter(number: float) -> str:
    """A, …, Z, A1, …; nothing for a client by itself or without a cluster."""
    if not number >= 0:
        return ""
    again, position = divmod(int(number), 26)
    return chr(ord("A") + position) + (str(again) if again else "")


def _round_ticks(axes: Axes, rounds: Sequence[Any]) -> None:
    step = -(-len(rounds) // 12)
    places = [place for place in range(len(rounds)) if place == 0 or (place + 1) % step == 0]
    axes.set_xticks(places, [str(rounds[place]) for place in places], fontsize=_TEXT)


def _spineless(*drawn: Any) -> None:
    for axes in drawn:
        for spine in axes.spines.values():
            spine.set_visible(False)
