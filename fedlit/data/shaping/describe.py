"""How the clients of a federation differ: rows, classes, earth mover's distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.shaping.by_distance import NORMAL, SAMPLE, Distances, Features, Space
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.target import has_classes, without_classes
from fedlit.show.shown import Grid, Shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Described", "describe"]


_MOST_COLUMNS = 12


@dataclass(frozen=True, eq=False, repr=False)
class Described(Shown):
    """The description of how clients differ.

    Attributes:
        rows: client → rows by split.
        shares: clients × classes, the share of each class in a client's training rows; 0 where it has no classes.
        features: the features that distances were measured by, ``standardised`` or ``raw``.
        sample: rows of each client that were measured, at most.
        distances: None where they cannot be.
        reason: why not.
        concepts: client → its concept, where an experiment knows.
        numbers: client → mean and standard deviation of its training rows' target, where that is a number to predict.
    """

    rows: Mapping[str, Mapping[str, int]]
    shares: pd.DataFrame
    features: Features
    sample: int
    distances: Distances | None
    reason: str = ""
    concepts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def parts(self) -> list[str | Grid]:
        """The table of clients, then what its columns mean."""
        columns = [("client", list(self.rows))]
        columns += [(split, [f"{own[split]:,}" for own in self.rows.values()]) for split in SPLITS]
        if self.concepts:
            columns.append(("concept", [self.concepts.get(name, "") for name in self.rows]))
        if self.shares.shape[1] > _MOST_COLUMNS:
            columns.append(("classes", list(map(str, np.count_nonzero(self.shares, axis=1)))))
            columns.append(("most frequent", [_most_frequent(own) for _, own in self.shares.iterrows()]))
        else:
            for label, own in self.shares.items():
                columns.append((str(label), [f"{100 * share:.0f} %" if share else "·" for share in own]))
        for place, name in enumerate(("mean of target", "standard deviation") if self.numbers else ()):
            known = {client: f"{own[place]:.4g}" for client, own in self.numbers.items()}
            columns.append((name, [known.get(client, "·") for client in self.rows]))
        if self.distances:
            columns.append(("EMD", [f"{self.distances.to_whole[name]:.4g}" for name in self.rows]))
        grid = Grid([head for head, _ in columns], list(zip(*(cells for _, cells in columns), strict=True)))
        shown = [] if self.shares.empty else ["Classes: shares of a client's training rows."]
        shown += ["Targets that are numbers: mean and standard deviation of training rows."] if self.numbers else []
        return [grid, "", *shown, *self._told()]

    def _told(self) -> list[str]:
        if self.distances is None:
            return [f"No earth mover's distance (EMD): {self.reason}."]
        pairs, p = len(self.distances.pairwise), self.distances.p
        passed = "they pass for normally distributed" if p > NORMAL else "they do not pass for normally distributed"
        return [
            f"Earth mover's distance (EMD) to all clients' rows, mean weighted by rows: {self.distances.mean:.4g}",
            f"  ({self.features} features; another label costs the mean distance; samples of at most {self.sample} "
            "training rows).",
            f"The {pairs} distances between clients: Shapiro and Wilk's p = {p:.2g}, {passed} (p > {NORMAL:g})."
            if pairs > 2
            else "Too few clients for a test of the distances between them.",
        ]


def _most_frequent(shares: pd.Series) -> str:
    top = shares.sort_values(ascending=False, kind="stable").head(3)
    return ", ".join(f"{label} ({100 * share:.0f} %)" for label, share in top.items() if share)


def describe(
    tables: Sequence[ClientTable], seed: int, features: Features = "standardised", sample: int = SAMPLE
) -> Described:
    """The description of how clients differ.

    Args:
        tables: one per client, in any order.
        seed: the run's seed, which draws the rows that distances are measured on.
        features: the features that distances are measured by.
        sample: rows of each client that are measured, at most.

    Example:
        >>> from fedlit.data.shaping.partition import Partition
        >>> from fedlit.data.sources import Bundled
        >>> print(describe(Partition(Bundled(clients=["wine"]), clients=2).tables(seed=0), seed=0))
        client  train  validation  test  class_0  class_1  class_2    EMD
        c01        53          14    23     23 %     34 %     43 %  1.977
        c02        53          13    22     45 %     30 %     25 %  1.977
        <BLANKLINE>
        Classes: shares of a client's training rows.
        Earth mover's distance (EMD) to all clients' rows, mean weighted by rows: 1.977
          (standardised features; another label costs the mean distance; samples of at most 200 training rows).
        Too few clients for a test of the distances between them.
    """
    import pandas as pd

    tables = sorted(tables, key=lambda table: table.name)
    targets = {table.name: table.target.iloc[table.splits["train"]] for table in tables}
    classes = {table.name: targets[table.name].value_counts(normalize=True) for table in tables if has_classes(table)}
    labels = {label for own in classes.values() for label in own.index.tolist()}
    known = pd.Index(sorted(labels, key=lambda label: (isinstance(label, str), label)), dtype=object)
    shares = {name: classes.get(name, pd.Series(dtype=float)).reindex(known, fill_value=0.0) for name in targets}
    first, others = tables[0], [name for name in targets if name not in classes]
    alike = [(set(table.features), set(table.categorical)) for table in tables]
    other = [table.name for table, own in zip(tables, alike, strict=True) if own != alike[0]]
    distances, reason = None, ""
    if others:
        reason = f"it compares classes, and the target of {others[0]} is {without_classes(targets[others[0]])}"
    elif other:
        reason = f"{other[0]} has other columns than {first.name}"
    elif len(tables) < 2:
        reason = "there is one client"
    else:
        all_rows = pd.concat([t.features[list(first.features)].iloc[t.splits["train"]] for t in tables])
        rows = np.arange(len(all_rows))
        space = Space(all_rows, pd.concat(targets.values()), rows, first.categorical, seed, features, sample)
        own = np.split(rows, np.cumsum([len(target) for target in targets.values()])[:-1])
        distances = space.between(dict(zip(targets, own, strict=True)))
    return Described(
        rows={table.name: {split: len(table.splits[split]) for split in SPLITS} for table in tables},
        shares=pd.DataFrame(shares, known).T,
        features=features,
        sample=sample,
        distances=distances,
        reason=reason,
        concepts={table.name: table.concept for table in tables if table.concept is not None},
        numbers={
            name: (float(targets[name].mean()), float(targets[name].std(ddof=0)))
            for name in others
            if targets[name].dtype.kind in "iuf"
        },
    )
