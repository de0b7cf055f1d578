"""Draws clusters of clients, and losses along paths between clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedlit.explain.clusters import concepts_of, stable_numbers
from fedlit.show.canvas import CLUSTERS, INK, PAPER, canvas
from fedlit.show.heatmap import TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BY_ITSELF, _NOTHING = "#c4c8ce", (0.0, 0.0, 0.0, 0.0)
_LETTERS = 900  # cells, up to which a cluster's letter stands where a client comes into it


def membership_figure(frame: pd.DataFrame, title: str = "") -> Figure:
    """Draw clients × rounds with a colour for each cluster, and grey for a client by itself. The cluster's letter marks
    the round in which a client joins it. Clients are grouped by planted concept if it is known.

    Args:
        frame: the table of :data:`CLUSTERS`.
        title: the title above the picture.

    Raises:
        ValueError: there are no rounds.
    """
    if not len(frame):
        raise ValueError("expected clusters of at least one round, found none")
    numbers, concepts = stable_numbers(frame), concepts_of(frame)
    concept = {name: concepts.get(name, "") for name in numbers.index}  # 2 comes before 10
    clients = sorted(numbers.index, key=lambda name: (name not in concepts, len(concept[name]), concept[name], name))
    table, rounds = numbers.loc[clients].to_numpy(), numbers.columns.tolist()
    groups = [concepts.get(name, "concept not known") for name in clients]
    groups = [f"concept {group}" if group.isdigit() else group for group in groups]
    starts = [row for row in range(len(clients)) if row == 0 or groups[row] != groups[row - 1]] if concepts else []
    labels = [f"{groups[row]} │ {name}" if row in starts else name for row, name in enumerate(clients)]
    width = min(max(3.0, 0.22 * len(rounds)), 9.0) + 0.4 + 0.08 * max(map(len, labels))
    with canvas(width, max(1.5, 0.25 * len(clients) + 0.9)) as figure:
        axes = figure.add_subplot()
        axes.imshow([[_colour(value) for value in row] for row in table], aspect="auto", interpolation="nearest")
        axes.set_yticks(range(len(clients)), labels, fontsize=TEXT)
        places = [place for place in range(len(rounds)) if place % -(-len(rounds) // 12) == 0]
        axes.set_xticks(places, [str(rounds[place]) for place in places], fontsize=TEXT)
        for row in range(1, len(clients)):
            axes.axhline(row - 0.5, color=INK if row in starts else PAPER, lw=1.6 if row in starts else 0.8)
        for row, column in np.argwhere(table >= 0) if table.size <= _LETTERS else ():
            if column == 0 or table[row, column] != table[row, column - 1]:  # colours alone tell few people apart
                again, letter = divmod(int(table[row, column]), 26)
                called = chr(ord("A") + letter) + (str(again) if again else "")
                axes.text(column, row, called, ha="center", va="center", fontsize=TEXT, color="#000000")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("round (grey: a client by itself)", fontsize=TEXT)
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def paths_figure(paths: pd.DataFrame, title: str = "") -> Figure:
    """Draw the loss along paths between two clients' models, as mean and standard deviation over pairs (Lucchetti et
    al. 2022, Fig. 2).

    Args:
        paths: the table of :data:`PATHS`.
        title: the title above the picture.
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
        axes.set_xlabel("u, from one client's model (0) to another's (1)", fontsize=TEXT)
        axes.set_ylabel("loss on random inputs", fontsize=TEXT)
        axes.tick_params(labelsize=TEXT)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=TEXT, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def _colour(number: float) -> tuple[float, float, float, float]:
    """Return the colour of a cluster: transparent if there is none. If there are more clusters than colours, these are
    used again; letters tell them apart.
    """
    from matplotlib.colors import to_rgba

    if np.isnan(number):
        return _NOTHING
    return to_rgba(_BY_ITSELF if number < 0 else CLUSTERS[int(number) % len(CLUSTERS)])
