"""Draws clusters of clients, and losses along paths between clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedlit.explain.clusters import concepts_of, stable_numbers
from fedlit.show.canvas import CLUSTERS, SERIES, canvas
from fedlit.show.heatmap import LEGIBLE, TEXT, draw_heatmap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BY_ITSELF = "#c4c8ce"
_TICKS = 12
_STYLES = {"straight": "--"}
"""Path → the style of its line; others are solid."""


def membership_figure(frame: pd.DataFrame, title: str = "") -> Figure:
    """Draw clients × rounds with a colour for each cluster, and grey for a client by itself. The
    cluster's letter marks the round in which a client joins it. Clients are sorted by their true
    concept if it is known.

    Args:
        frame: the table of :data:`CLUSTERS`.
        title: the title above the picture.

    Raises:
        ValueError: there are no rounds.
    """
    from matplotlib.colors import ListedColormap, Normalize

    if not len(frame):
        raise ValueError("expected clusters of at least one round, found none")
    numbers = stable_numbers(frame)
    concepts = concepts_of(frame)
    concept = {name: concepts.get(name, "") for name in numbers.index}
    # By the length of a concept's name first, so that 2 comes before 10.
    clients = sorted(
        numbers.index,
        key=lambda name: (name not in concepts, len(concept[name]), concept[name], name),
    )
    labels = [f"{concept[name]} │ {name}" if concept[name] else str(name) for name in clients]
    step = -(-numbers.shape[1] // _TICKS)
    rounds = [""] * numbers.shape[1]
    rounds[::step] = map(str, numbers.columns[::step])
    table = numbers.loc[clients].to_numpy()
    # Few people can tell many colours apart, so letters mark clusters, too.
    joins = (table >= 0) & (np.diff(table, axis=1, prepend=-2) != 0)
    letters = np.full(table.shape, "", dtype="<U1")
    for cell in np.argwhere(table >= 0):
        letters[*cell] = chr(ord("A") + int(table[*cell]) % 26)
    # With more clusters than colours, colours repeat.
    colours = np.where(table >= 0, table % len(CLUSTERS), table)
    scale = ListedColormap([_BY_ITSELF, *CLUSTERS])
    width = min(max(3.0, 0.22 * len(rounds)), 9.0) + 0.4 + 0.08 * max(map(len, labels))
    with canvas(width, max(1.5, 0.25 * len(clients) + 0.9)) as figure:
        axes = figure.add_subplot(xlabel="round (grey: a client by itself)")
        texts = np.where(joins, letters, "") if table.size <= LEGIBLE else None
        norm = Normalize(-1.5, len(CLUSTERS) - 0.5)
        draw_heatmap(axes, colours, labels, rounds, scale, norm, texts)
        axes.set_title(title, fontsize=10, loc="left")
    return figure


def paths_figure(paths: pd.DataFrame, title: str = "") -> Figure:
    """Draw the loss along paths between two clients' models, as mean and standard deviation over
    pairs (Lucchetti et al. 2022, Fig. 2).

    Args:
        paths: the table of :data:`PATHS`.
        title: the title above the picture.
    """
    with canvas(4.6, 3.2) as figure:
        axes = figure.add_subplot()
        for colour, (path, rows) in zip(SERIES, paths.groupby("path", sort=False), strict=False):
            loss = rows.groupby("u")["loss"].agg(["mean", "std"]).fillna(0.0)
            style = _STYLES.get(str(path), "-")
            axes.plot(loss.index, loss["mean"], color=colour, label=f"{path} path", ls=style)
            low = (loss["mean"] - loss["std"]).clip(lower=0)
            high = loss["mean"] + loss["std"]
            axes.fill_between(loss.index, low, high, color=colour, alpha=0.15, lw=0)
        axes.set_xlabel("u, from one client's model (0) to another's (1)", fontsize=TEXT)
        axes.set_ylabel("loss on random inputs", fontsize=TEXT)
        axes.tick_params(labelsize=TEXT)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=TEXT, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title, fontsize=10, loc="left")
    return figure
