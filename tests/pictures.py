"""The pictures of the studies, drawn from the tables of their pages: ``python tests/pictures.py``
writes them."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from fedlit.show.canvas import INK, LINE, METHOD, SCALE, SERIES, SOFT, canvas, save_figure
from fedlit.show.effects import plot_intervals
from fedlit.show.heatmap import TEXT, draw_heatmap

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = DOCS / "pictures"
WIDTH = 7.2
"""Inches of all pictures, so that their text has one size on a page."""

NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*")


def table_after(page: str, words: str) -> pd.DataFrame:
    """The first table of a page that comes after some words; its first column is the index."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert words in text, f"{page}: {words}"
    lines = text[text.index(words) :].splitlines()[1:]
    start = next(place for place, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")])
    header, _, *body = rows
    return pd.DataFrame(
        [row[1:] for row in body], index=[row[0] for row in body], columns=header[1:]
    )


def numbers(cell: str) -> list[float]:
    """All numbers of a cell: a value, and the ends of its interval if it has one."""
    plain = cell.replace(" ± ", " ").replace(",", "").replace("−", "-")
    return [float(number) for number in NUMBER.findall(plain)]


def column(table: pd.DataFrame, name: str) -> np.ndarray:
    """The numbers of a column: (rows, 1), or (rows, 3) with intervals."""
    return np.array([numbers(cell) for cell in table[name]])


@contextmanager
def drawn(name: str, height: float) -> Iterator[Figure]:
    """A figure that is written as a picture of the pages when it is complete."""
    with canvas(WIDTH, height) as figure:
        yield figure
        for path in save_figure(figure, PICTURES / name):
            if path.suffix == ".svg":
                path.unlink()


def style(axes: Axes, title: str, x: str = "", y: str = "", grid: str = "y") -> None:
    """Give axes the look of all pictures."""
    axes.set_title(title, fontsize=TEXT + 1, loc="left")
    axes.set_xlabel(x, fontsize=TEXT)
    axes.set_ylabel(y, fontsize=TEXT)
    axes.tick_params(labelsize=TEXT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=LINE, lw=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def attacks() -> None:
    """Balanced accuracy of honest clients by attack and rule."""
    clients = {
        "alike": "homogeneous clients (Covertype)",
        "unlike": "heterogeneous clients (heart sites)",
    }
    with drawn("attacks", 7.6) as figure:
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for row, (kind, title) in zip(panels, clients.items(), strict=True):
            tables = {
                share: table_after("studies/attacks.md", f"<!-- table: {kind} {share} -->")
                for share in (20, 40)
            }
            values = {share: table.map(float).to_numpy() * 100 for share, table in tables.items()}
            norm = Normalize(min(map(np.min, values.values())), max(map(np.max, values.values())))
            for axes, (share, table) in zip(row, tables.items(), strict=True):
                texts = np.vectorize("{:.0f}".format)(values[share])
                names = list(table.index), list(table.columns)
                picture = draw_heatmap(axes, values[share], *names, SCALE, norm, texts)
                axes.axhline(0.5, color="white", lw=3)
                axes.set_title(f"{title},\n{share} % attackers", fontsize=TEXT + 1, loc="left")
            bar = figure.colorbar(picture, ax=row, pad=0.01, fraction=0.04)
            bar.ax.tick_params(labelsize=TEXT)
            bar.set_label("balanced accuracy, %", fontsize=TEXT)


def clusters() -> None:
    """Accuracy by method, and by how much clients differ."""
    table = table_after("studies/clusters.md", "<!-- begin accuracy -->")
    distances = table.iloc[0]
    titles = {
        "digits": "digits: labels mean\nthe same everywhere",
        "covertype": "Covertype: labels have\ntwo meanings",
    }
    with drawn("clusters", 4.6) as figure:
        for axes, (data, title) in zip(
            figure.subplots(1, 2, sharey=True), titles.items(), strict=True
        ):
            columns = [name for name in map(str, table) if name.startswith(data)]
            values = table.iloc[1:][columns].map(lambda cell: numbers(cell)[0]).to_numpy()
            texts = np.vectorize("{:.0f}".format)(values)
            names = [f"{name.split(', ')[1]}\n({distances[name]})" for name in columns]
            picture = draw_heatmap(
                axes, values, list(table.index[1:]), names, SCALE, Normalize(35, 97), texts
            )
            axes.tick_params(axis="x", rotation=0)
            axes.set_xlabel("earth mover's distance", fontsize=TEXT)
            axes.set_title(title, fontsize=TEXT + 1, loc="left")
        bar = figure.colorbar(picture, ax=figure.axes, pad=0.01, fraction=0.04)
        bar.ax.tick_params(labelsize=TEXT)
        bar.set_label("test accuracy, %", fontsize=TEXT)


def crossing() -> None:
    """Lift by the rows of each client: of the clients, and of their mean."""
    panels = {
        "**Four areas of Covertype**": ("Covertype, four areas (one seed)", "points of AUROC"),
        "**Pupils of two school sectors": ("Hsb82, two sectors (three seeds)", "% of RMSE"),
    }
    with drawn("crossing", 3.6) as figure:
        for axes, (words, (title, unit)) in zip(figure.subplots(1, 2), panels.items(), strict=True):
            table = table_after("studies/sites.md", words)
            table.columns = [str(name).removeprefix("lift, ") for name in table]
            rows = [float(own.replace(",", "")) for own in table.index]
            clients = [name for name in map(str, table) if not re.match("mean|alone|mixture", name)]
            for name, colour, marker in zip(clients, SERIES, "ov^D", strict=False):
                axes.plot(
                    rows,
                    column(table, name)[:, 0],
                    color=colour,
                    marker=marker,
                    ms=4,
                    lw=1,
                    label=name,
                )
            hindsight = column(table, "mean, in hindsight")[:, 0]
            axes.plot(
                rows,
                hindsight,
                color=SOFT,
                ls=":",
                lw=1.4,
                label="mean, over the best in hindsight",
            )
            mean, low, high = column(table, "mean").T
            axes.errorbar(
                rows,
                mean,
                [mean - low, high - mean],
                color=INK,
                lw=2,
                capsize=3,
                label="mean, 95 %",
            )
            axes.axhline(0, color=SOFT, lw=1)
            style(axes, title, "rows of each client", f"lift over the best local baseline, {unit}")
            axes.set_xscale("log")
            axes.set_xticks(rows, list(table.index))
            axes.minorticks_off()
            axes.legend(fontsize=TEXT - 1, frameon=False)


def sites() -> None:
    """Lift of the mixture at each table of many small sites."""
    results = table_after(
        "studies/sites.md", "The mixture that sites choose together, as a share of the loss."
    )
    count = table_after("studies/sites.md", "What a site can do alone:")["sites"]
    bars = {
        "lift over alone, chosen together": (
            "the local baseline that sites choose together",
            METHOD,
            "o",
            0.12,
        ),
        "lift over it": ("the best local baseline in hindsight", SERIES[1], "s", -0.12),
    }
    lift = column(results, "lift over alone, chosen together")[:, 0]
    results = results.iloc[np.argsort(-lift)]
    places = np.arange(len(results))[::-1]
    with drawn("sites", 4.6) as figure:
        axes = figure.subplots()
        for name, (label, colour, marker, offset) in bars.items():
            value, low, high = column(results, name).T
            errors = [value - low, high - value]
            axes.errorbar(
                value,
                places + offset,
                xerr=errors,
                color=colour,
                fmt=marker,
                ms=4,
                lw=1.4,
                label=label,
            )
        axes.axvline(0, color=SOFT, lw=1)
        axes.set_yticks(places, [f"{name} ({count[name]} sites)" for name in results.index])
        style(axes, "", "lift of the mixture, % of the table's loss, with 95 % intervals", grid="x")
        axes.tick_params(axis="y", length=0)
        axes.legend(
            title="over", fontsize=TEXT, title_fontsize=TEXT, frameon=False, loc="lower right"
        )


def methods() -> None:
    """Mean rank of each method, with lines at the two local baselines."""
    table = table_after("studies/methods.md", "<!-- begin ranks -->")
    value, low, high = column(table, "mean rank").T
    bars = {"Local": ("--", "Local"), "Best alone": (":", "best local\nbaseline")}
    with drawn("methods", 8.4) as figure:
        names = ["best local baseline" if name == "Best alone" else name for name in table.index]
        label = "mean rank by AUROC over 18 clients (1: best), with 95 % intervals"
        axes = plot_intervals(names, value, low, high, label, figure.subplots(), zero=False)
        style(axes, "", label, grid="x")
        for name, (line, title) in bars.items():
            place = list(table.index).index(name)
            axes.axvline(value[place], color=INK, ls=line, lw=1.2, zorder=1)
            height = len(table) - 1 - place
            axes.hlines(height, low[place], high[place], INK, lw=1, zorder=4)
            axes.scatter(value[place], height, 26, INK, zorder=4)
            right = name == "Local"
            shift = (4 if right else -4, 0)
            side = "left" if right else "right"
            axes.annotate(
                title,
                (value[place], -0.4),
                shift,
                textcoords="offset points",
                fontsize=TEXT,
                ha=side,
            )


def chfl() -> None:
    """Accuracy of each method by which columns are common, and that of the paper."""
    here = table_after("studies/chfl.md", "by which columns are common:")
    everything = table_after(
        "studies/chfl.md", "Test accuracy, mean over clients ± standard deviation over runs:"
    )
    paper = {
        str(name).partition(":")[0].partition(", chosen")[0]: cell
        for name, cell in everything["the paper"].items()
    }
    places = np.arange(len(here))
    with drawn("chfl", 3.6) as figure:
        axes = figure.subplots()
        for name, colour, marker in zip(map(str, here), SERIES, "ov^", strict=False):
            axes.plot(
                places,
                column(here, name)[:, 0],
                color=colour,
                marker=marker,
                ms=6,
                ls="",
                label=name,
            )
        known = [
            (place, *numbers(paper[name]))
            for place, name in enumerate(here.index)
            if paper.get(name)
        ]
        place, mean, deviation = np.array(known).T
        label = "the paper: mean ± sd"
        axes.errorbar(
            place - 0.2, mean, deviation, color=SOFT, fmt="D", ms=4, capsize=3, label=label
        )
        axes.set_xticks(places, list(here.index))
        style(axes, "", y="test accuracy, mean over clients")
        axes.legend(fontsize=TEXT, frameon=False, ncols=2)


DRAWN: dict[str, Callable[[], Any]] = {
    own.__name__: own for own in (attacks, chfl, clusters, crossing, methods, sites)
}
"""Picture → what draws it."""

if __name__ == "__main__":
    for draw in DRAWN.values():
        draw()
