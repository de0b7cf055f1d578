"""Classes of a client whose training rows have one label only: those of the clients that predict
the same column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pandas as pd

from fedlit.data.labels import meant
from fedlit.data.note import client_note
from fedlit.data.table import ClientTable
from fedlit.data.targets import has_classes
from fedlit.show.text import counted
from fedlit.tasks.label_values import plain, type_of

Known = Mapping[str, Mapping[str, Any]]
"""Client → the ``target`` that it predicts, its ``labels`` and the ``positive`` one; empty for
clients without classes."""


def labels_of(table: ClientTable) -> dict[str, Any]:
    """Return what others must know of a table's classes, as plain data; nothing if it has none.

    Example:
        >>> import numpy as np, pandas as pd
        >>> target = pd.Series(["no", "yes"], name="ill")
        >>> labels_of(ClientTable("bern", pd.DataFrame({"age": [1, 2]}), target, {"train": np.arange(2)}))
        {'target': 'ill', 'labels': ['no', 'yes'], 'positive': None}
    """
    if isinstance(table.target.name, tuple) or not has_classes(table):
        return {}
    labels = _labels(table.target)
    return {
        "target": str(table.target.name),
        "labels": sorted(labels, key=str),
        "positive": plain(table.positive),
    }


def _labels(target: pd.Series) -> list[Any]:
    """Return the different values of a target, without missing ones."""
    return [plain(label) for label in target.unique().tolist() if not pd.isna(label)]


def with_classes(
    tables: Sequence[ClientTable], client_labels: Known, *, whole: bool
) -> list[ClientTable]:
    """Return the tables; one whose training rows have a single label gets the classes of the
    federation, and a note.

    Args:
        tables: the tables of this process.
        client_labels: what is known of the labels of clients, see :func:`labels_of`.
        whole: whether these are all clients. Otherwise others have a label that this process does
            not know.

    Raises:
        DataError: the label that counts as positive is none of the federation's.
    """
    return [_with_classes(table, client_labels, whole) for table in tables]


def _with_classes(table: ClientTable, client_labels: Known, whole: bool) -> ClientTable:
    training_labels = _labels(table.training_target)
    if len(training_labels) != 1:
        return table
    table_labels = labels_of(table)
    if not table_labels:
        return table
    (label,) = training_labels
    same_target = [
        entry
        for entry in (table_labels, *client_labels.values())
        if entry.get("target") == table_labels["target"]
        and type_of(entry["labels"][0]) == type_of(label)
    ]
    labels = dict.fromkeys(chain(*(entry["labels"] for entry in same_target)))
    positives = [entry["positive"] for entry in same_target if entry["positive"] is not None]
    positive = positives[0] if positives else None
    if len(labels) == 1 and whole:  # The task of classes refuses this table later.
        return table
    if len(labels) == 1:
        labels[_other(label, positive)] = None
    if positive is not None:
        positive = meant(
            f"client {table.name!r}, target {table_labels['target']!r}", positive, list(labels)
        )
    rows = len(table.splits["train"])
    text = (
        f"{label!r} is the label of all {counted(rows, 'training row')}: alone, nothing is "
        f"learnt of {table_labels['target']}"
    )
    names = ", ".join(repr(known_label) for known_label in labels if known_label != label)
    note = client_note(
        table.name,
        "one class",
        f"{text}; its classes are {label!r} and {names}",
        [table_labels["target"]],
    )
    return replace(table, classes=tuple(labels), positive=positive, notes=(*table.notes, note))


def _other(label: Any, positive: Any) -> Any:
    """Return the second class if no client of this process has one: the positive label, or the
    negation of the label.
    """
    if positive is not None and type_of(positive) == type_of(label) and positive != label:
        return positive
    if isinstance(label, bool):
        return not label
    if isinstance(label, str):
        return f"not {label}"
    return int(label == 0)
