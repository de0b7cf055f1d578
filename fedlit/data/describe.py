"""``fedlit partition describe``: how the clients of a configuration differ, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.dealing import NORMAL, Distance
from fedlit.data.distance import Distances, Measure, Space
from fedlit.data.partition import Partition
from fedlit.data.sources.base import Source
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import ConfigError, Parser, did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Described", "describe", "main", "partition_figure"]

# Paul Tol's muted colours, which people who are colour-blind can tell apart; and his grey
_COLOURS = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
_MOST_COLUMNS = 12
_NAMED = 0.032


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit partition`` and return its exit status."""
    parser = Parser(
        prog="fedlit partition",
        description="Show how the clients of a configuration differ: rows, classes, and the earth mover's distance of "
        "each to the whole. Any key of the configuration can be changed: --seed 5, --data.source.init_args.clients 5",
        allow_abbrev=False,
    )
    parser.add_argument("action", help="describe")
    parser.add_argument("--config", required=True, help="the configuration: its name, or a file")
    parser.add_argument("--out", help="where the picture goes (default: lightning_logs/partition/ and the name)")
    arguments, keys = parser.parse_known_args(argv)
    if arguments.action != "describe":
        raise ConfigError(
            f"fedlit partition: expected describe, found {arguments.action!r}."
            + did_you_mean(arguments.action, ["describe"])
        )
    from fedlit.cli import load
    from fedlit.explain.figures import save_figure

    data = load(arguments.config, *keys).data
    described = describe(data.tables(), data.seed, _measure(data.source))
    print(described)
    name = Path(arguments.config).stem
    folder = Path(arguments.out or Path("lightning_logs", "partition", name))
    folder.mkdir(parents=True, exist_ok=True)
    files = save_figure(partition_figure(described, f"{name}, seed {data.seed}"), folder / "partition")
    print("\nWrote " + ", ".join(map(str, files)))
    return 0


def _measure(source: Source) -> Measure:
    """That of the deal, so that the distance is the one that it was dealt by."""
    inner: Any = source
    while inner is not None:
        if isinstance(inner, Partition) and isinstance(inner.deal, Distance):
            return inner.deal.measure
        inner = getattr(inner, "source", None)
    return Measure()


@dataclass(frozen=True, eq=False)
class Described:
    """How clients differ.

    Attributes:
        rows: client → rows by split.
        classes: all clients' labels in training rows.
        shares: (clients, classes), the share of each class in a client's training rows.
        concepts: client → its concept, where an experiment knows.
        measure: how distances were measured.
        distances: None where they cannot be.
        reason: why not.
    """

    rows: Mapping[str, Mapping[str, int]]
    classes: tuple[Any, ...]
    shares: np.ndarray
    concepts: Mapping[str, str]
    measure: Measure
    distances: Distances | None
    reason: str = ""

    def __str__(self) -> str:
        head = ["client", *SPLITS, *(["concept"] if self.concepts else [])]
        wide = len(self.classes) > _MOST_COLUMNS
        head += ["classes", "most frequent"] if wide else [str(label) for label in self.classes]
        head += ["EMD"] if self.distances else []
        lines = [head]
        for (name, rows), shares in zip(self.rows.items(), self.shares, strict=True):
            line = [name, *(f"{rows[split]:,}" for split in SPLITS)]
            line += [self.concepts.get(name, "")] if self.concepts else []
            if wide:
                top = np.argsort(-shares, kind="stable")[:3]
                named = [f"{self.classes[place]} ({100 * shares[place]:.0f} %)" for place in top if shares[place]]
                line += [str(np.count_nonzero(shares)), ", ".join(named)]
            else:
                line += [f"{100 * share:.0f} %" if share else "·" for share in shares]
            line += [f"{self.distances.to_whole[name]:.4g}"] if self.distances else []
            lines.append(line)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
            )
            for line in lines
        ]
        return "\n".join([*table, "", "Classes: shares of a client's training rows.", *self._told()])

    def _told(self) -> list[str]:
        if self.distances is None:
            return [f"No earth mover's distance (EMD): {self.reason}."]
        pairs, p = len(self.distances.pairwise), self.distances.p
        passed = "they pass for normally distributed" if p > NORMAL else "they do not pass for normally distributed"
        return [
            f"Earth mover's distance (EMD) to all clients' rows, mean weighted by rows: {self.distances.mean:.4g}",
            f"  ({self.measure.features} features; another label costs {self.measure.label:g} × the mean distance; "
            f"samples of at most {self.measure.sample} training rows).",
            f"The {pairs} distances between clients: Shapiro and Wilk's p = {p:.2g}, {passed} (p > {NORMAL:g})."
            if pairs > 2
            else "Too few clients for a test of the distances between them.",
        ]


def describe(tables: Sequence[ClientTable], seed: int, measure: Measure | None = None) -> Described:
    """How clients differ.

    Args:
        tables: one per client, in any order.
        seed: the run's seed, which draws the rows that distances are measured on.
        measure: how distances are measured.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> print(describe(Partition(Bundled(clients=["wine"]), clients=2).tables(seed=0), seed=0))
        client  train  validation  test  class_0  class_1  class_2    EMD
        c01        53          14    23     23 %     34 %     43 %  1.977
        c02        53          13    22     45 %     30 %     25 %  1.977
        <BLANKLINE>
        Classes: shares of a client's training rows.
        Earth mover's distance (EMD) to all clients' rows, mean weighted by rows: 1.977
          (standardised features; another label costs 1 × the mean distance; samples of at most 200 training rows).
        Too few clients for a test of the distances between them.
    """
    import pandas as pd

    tables = sorted(tables, key=lambda table: table.name)
    measure = measure or Measure()
    targets = [table.target.iloc[table.splits["train"]] for table in tables]
    labels = {label for target in targets for label in target.unique().tolist()}
    classes = tuple(sorted(labels, key=lambda label: (isinstance(label, str), label)))
    shares = np.stack([target.value_counts(normalize=True).reindex(classes, fill_value=0) for target in targets])
    distances, reason = None, ""
    columns, categorical = list(tables[0].features), set(tables[0].categorical)
    other = [t.name for t in tables if set(t.features) != set(columns) or set(t.categorical) != categorical]
    if other:
        reason = f"{other[0]} has other columns than {tables[0].name}"
    elif len(tables) < 2:
        reason = "there is one client"
    else:
        features = pd.concat([t.features[columns].iloc[t.splits["train"]] for t in tables])
        ends = np.cumsum([len(target) for target in targets])
        space = Space(measure, features, pd.concat(targets), np.arange(ends[-1]), tables[0].categorical, seed)
        own = np.split(np.arange(ends[-1]), ends[:-1])
        distances = space.between({table.name: rows for table, rows in zip(tables, own, strict=True)})
    return Described(
        rows={table.name: {split: len(table.splits[split]) for split in SPLITS} for table in tables},
        classes=classes,
        shares=shares,
        concepts={table.name: table.concept for table in tables if table.concept is not None},
        measure=measure,
        distances=distances,
        reason=reason,
    )


def partition_figure(described: Described, title: str = "") -> Figure:
    """Bars of class shares, a client each, and beside them the clients' distances to the whole.

    Args:
        described: the clients.
        title: above all.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(described.rows)
    style: Any = {"text.parse_math": False, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(8.5, min(1.5 + 0.34 * len(names), 60)), layout="constrained")
        FigureCanvasAgg(figure)
        ratios = [3, 1] if described.distances else [1]
        axes = figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios, squeeze=False)[0]
        _bars(axes[0], described)
        axes[0].set_yticks(range(len(names)), [f"{name}  ({described.rows[name]['train']:,})" for name in names])
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        if described.distances is not None:
            _distances(axes[1], described.distances, names)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def _bars(axes: Axes, described: Described) -> None:
    import matplotlib
    from matplotlib.colors import to_rgb

    count = len(described.classes)
    many = matplotlib.colormaps["viridis"](np.linspace(0, 1, max(count, 2)))
    left = np.zeros(len(described.rows))
    for place, label in enumerate(described.classes):
        colour = _COLOURS[place] if count <= len(_COLOURS) else many[place]
        shares = 100 * described.shares[:, place]
        axes.barh(range(len(left)), shares, 0.82, left, color=colour, edgecolor="white", lw=0.8, label=str(label))
        dark = np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) < 0.55
        for row in np.flatnonzero(shares > 100 * _NAMED * max(1, len(str(label)) / 1.8)).tolist():
            # names in the bars, so that no one has to tell colours apart
            middle = left[row] + shares[row] / 2
            colour_of_text = "white" if dark else "black"
            axes.text(middle, row, str(label), ha="center", va="center", fontsize=7.5, color=colour_of_text)
        left += shares
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of classes in training rows, %")
    axes.set_ylabel("client (training rows)")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if count <= 2 * len(_COLOURS):
        axes.legend(ncols=min(count, 10), loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, fontsize=7.5,
                    handlelength=1, columnspacing=1, handletextpad=0.4)  # fmt: skip


def _distances(axes: Axes, distances: Distances, names: Sequence[str]) -> None:
    values = [distances.to_whole[name] for name in names]
    axes.hlines(range(len(values)), 0, values, color="#999", lw=1.2)
    axes.plot(values, range(len(values)), "o", color="#222", ms=5)
    axes.axvline(distances.mean, color="#D55E00", lw=1.2, ls="--")
    axes.annotate(f"mean {distances.mean:.3g}", (distances.mean, 1), (0, 3), xycoords=("data", "axes fraction"),
                  textcoords="offset points", ha="center", color="#B24400", fontsize=7.5)  # fmt: skip
    for row, value in enumerate(values):
        axes.annotate(
            f"{value:.3g}", (1, row), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=7.5
        )
    axes.set_xlim(0, 1.35 * max(values) or 1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("EMD to the whole")
