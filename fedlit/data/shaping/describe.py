"""How the clients of a federation differ: rows, classes, earth mover's distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedlit.data.shaping.by_distance import NORMAL
from fedlit.data.shaping.distance import Distances, Measure, Space
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.target import has_classes, without_classes
from fedlit.show.shown import Grid, Shown

__all__ = ["Described", "describe"]


_MOST_COLUMNS = 12


@dataclass(frozen=True, eq=False, repr=False)
class Described(Shown):
    """The description of how clients differ.

    Attributes:
        rows: client → rows by split.
        classes: all clients' labels in training rows.
        shares: (clients, classes), the share of each class in a client's training rows.
        concepts: client → its concept, where an experiment knows.
        measure: how distances were measured.
        distances: None where they cannot be.
        reason: why not.
        numbers: client → mean and standard deviation of its training rows' target, where that is a number to predict.
    """

    rows: Mapping[str, Mapping[str, int]]
    classes: tuple[Any, ...]
    shares: np.ndarray
    concepts: Mapping[str, str]
    measure: Measure
    distances: Distances | None
    reason: str = ""
    numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def parts(self) -> list[str | Grid]:
        """The table of clients, then what its columns mean."""
        head = ["client", *SPLITS, *(["concept"] if self.concepts else [])]
        wide = len(self.classes) > _MOST_COLUMNS
        head += ["classes", "most frequent"] if wide else [str(label) for label in self.classes]
        head += ["mean of target", "standard deviation"] if self.numbers else []
        head += ["EMD"] if self.distances else []
        lines = []
        for (name, rows), shares in zip(self.rows.items(), self.shares, strict=True):
            line = [name, *(f"{rows[split]:,}" for split in SPLITS)]
            line += [self.concepts.get(name, "")] if self.concepts else []
            if wide:
                top = np.argsort(-shares, kind="stable")[:3]
                named = [f"{self.classes[place]} ({100 * shares[place]:.0f} %)" for place in top if shares[place]]
                line += [str(np.count_nonzero(shares)), ", ".join(named)]
            else:
                line += [f"{100 * share:.0f} %" if share else "·" for share in shares]
            if self.numbers:
                line += [f"{value:.4g}" for value in self.numbers[name]] if name in self.numbers else ["·", "·"]
            line += [f"{self.distances.to_whole[name]:.4g}"] if self.distances else []
            lines.append(line)
        shown = ["Classes: shares of a client's training rows."] if self.classes else []
        shown += ["Targets that are numbers: mean and standard deviation of training rows."] if self.numbers else []
        return [Grid(head, lines), "", *shown, *self._told()]

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
    """The description of how clients differ.

    Args:
        tables: one per client, in any order.
        seed: the run's seed, which draws the rows that distances are measured on.
        measure: how distances are measured.

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
          (standardised features; another label costs 1 × the mean distance; samples of at most 200 training rows).
        Too few clients for a test of the distances between them.
    """
    import pandas as pd

    tables = sorted(tables, key=lambda table: table.name)
    measure = measure or Measure()
    targets = [table.target.iloc[table.splits["train"]] for table in tables]
    other_task = {t.name: without_classes(t.target) for t in tables if not has_classes(t)}
    labels = {
        label
        for table, target in zip(tables, targets, strict=True)
        for label in ([] if table.name in other_task else target.unique().tolist())
    }
    classes = tuple(sorted(labels, key=lambda label: (isinstance(label, str), label)))
    shares = np.stack(
        [
            np.zeros(len(classes))
            if table.name in other_task
            else target.value_counts(normalize=True).reindex(classes, fill_value=0)
            for table, target in zip(tables, targets, strict=True)
        ]
    )
    distances, reason = None, ""
    columns, categorical = list(tables[0].features), set(tables[0].categorical)
    other = [t.name for t in tables if set(t.features) != set(columns) or set(t.categorical) != categorical]
    if other_task:
        reason = "it compares classes, and the target of {} is {}".format(*next(iter(other_task.items())))
    elif other:
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
        numbers={
            table.name: (float(target.mean()), float(target.std(ddof=0)))
            for table, target in zip(tables, targets, strict=True)
            if table.name in other_task and target.dtype.kind in "iuf"
        },
    )
