"""Turns a client's table into tensors, by what its training rows and the agreement with other clients say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.agree import Agreement, Terms
from fedlit.data.columns import NUMBERS, ColumnEncoder, categories_of, frequent, input_names, plain_values
from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.moments import Moments, own_edges
from fedlit.data.note import Note, client_note
from fedlit.data.row_encoder import RowEncoder
from fedlit.data.schema.column import kind_of
from fedlit.data.schema.schema import Schema
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.target import target_facts
from fedlit.errors import DataError
from fedlit.inputs import Input
from fedlit.spec import ClientSpec
from fedlit.tasks import MultiLabel, SequenceLabelling, Task, task_from, task_state
from fedlit.tasks.metrics import Site


class TableEncoder(RowEncoder):
    """Encodes the rows of one client. It needs the client's own table and the agreement, and nothing else of other
    clients.

    Numbers are standardised over the observed training rows and missing ones set to the training mean (0); a column
    without any observed number becomes 0 throughout. Categories become ordinal codes, −1 where missing or unseen in
    training, or indicators. Labels become positions in the sorted list of training labels.

    Args:
        client: the client's name.
        agreement: what clients agreed on; None for a client on its own.

    Attributes:
        common: group of clients → the columns that this one shares in it; None if no columns are common.
        edges: input → edges of its bins, as it is encoded; None until rows are encoded.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> (table,) = Bundled(clients=["wine"]).tables(seed=0)
        >>> encoder = TableEncoder("wine").fit(table)
        >>> shipped = TableEncoder("wine")
        >>> shipped.load_state_dict(encoder.state_dict())
        >>> tomorrow = table.features.tail(2)
        >>> bool((shipped.transform(tomorrow) == encoder.transform(tomorrow)).all()), shipped.transform(tomorrow).shape
        (True, (2, 13))
    """

    task: Task
    seen: tuple[int, ...]

    def __init__(self, client: str, agreement: Agreement | None = None) -> None:
        super().__init__(client)
        self._agreement = agreement or Agreement(Terms())
        self.scaling, self.categories = self._agreement.terms.scaling, self._agreement.terms.categories
        self.common: dict[str, list[str]] | None = None
        self.edges: dict[str, tuple[float, ...]] | None = None

    def fit(self, table: ClientTable) -> TableEncoder:
        """Learn the encoding from a table's training rows.

        Raises:
            DataError: one class alone, labels of several types, indicators of a name that a column has.
        """
        agreement, rows = self._agreement, table.splits["train"]
        target = target_facts(table)
        self.task = agreement.task_of(self.client, target)
        self.seen = tuple(map(self.task.classes.index, target.get("labels", ())))
        self.target_name = str(table.target.name)
        coded = set(table.categorical)
        self.columns = {  # column by column: a copy of all training rows may not fit
            str(column): self._fit(table.features[column].iloc[rows], column in coded) for column in table.features
        }
        self.schema = table.schema or Schema.typed(table.features, table.categorical, rows)
        own = input_names(self._inputs(), f"client {self.client!r}: ")
        groups = None if agreement.groups is None else [g for g in agreement.groups if self.client in g.clients]
        self.common = None if groups is None else {group.name: list(group.columns) for group in groups}
        self.features = agreement.features or own
        return self

    def _fit(self, train: pd.Series, categorical: bool) -> ColumnEncoder:
        name, terms = str(train.name), self._agreement.terms
        agreed, kind = self._agreement.shared(self.client, name), kind_of(train, categorical)
        if kind is None:
            kind = (agreed.kind if agreed and terms.alike else None) or ("categorical" if categorical else NUMBERS)
        if kind == NUMBERS:
            moments = (agreed and agreed.moments) or Moments.of(plain_values(train, kind, name))
            gap = terms.missing == "indicator" and (terms.features or bool(train.isna().any()))
            return ColumnEncoder(name, kind, moments, gap=gap)
        if agreed is not None and agreed.categories is not None:
            own = set(categories_of(train, kind)) if agreed.tail == "other" else set()
            return replace(agreed.encoder(name, terms), rare=tuple(sorted(own - set(agreed.categories))))
        if self.categories == "auto":
            gaps = int(train.isna().sum())
            return ColumnEncoder(name, kind, None, *frequent(train, kind), gap=0 < gaps < len(train))
        return ColumnEncoder(name, kind, None, tuple(categories_of(train, kind)))

    def _edges(self, x: np.ndarray) -> dict[str, tuple[float, ...]]:
        """Map each numeric input to the edges of its bins; ``x`` holds the encoded training rows."""
        terms, found = self._agreement.terms, dict[str, tuple[float, ...]]()
        place = {name: own for own, name in enumerate(self.features)}
        for column in self.columns.values() if terms.bins != "none" else ():
            agreed = self._agreement.shared(self.client, column.name)
            edges = np.array(agreed.edges if agreed and column.moments else ())
            for name, values in column.describe(self.categories):
                if not values:
                    given = tuple(column.numbers(edges, self.scaling).tolist()) if name == column.name else ()
                    found[name] = given or own_edges(x[:, place[name]], terms.num_bins)
        return found

    def _described(self) -> tuple[Input, ...]:
        """Describe each input. Only the name is known of an input that the table does not have."""
        edges = self.edges or {}
        own = {
            name: Input(name, column.name, values, edges.get(name, ()))
            for column in self.columns.values()
            for name, values in column.describe(self.categories)
        }
        return tuple(own.get(name) or Input(name, name) for name in self.features)

    def _inputs(self) -> dict[str, list[str]]:
        return {name: column.inputs(self.categories) for name, column in self.columns.items()}

    def encode(self, table: ClientTable) -> EncodedClient:
        """Return the client's table as tensors, together with what a network has to know about it."""
        x, y = self.transform(table.features), self.target(table.target)
        splits = {
            split: Rows(torch.from_numpy(x[rows]), y[rows], table.features.index.to_numpy()[rows])
            for split in SPLITS
            for rows in [table.splits[split]]
        }
        sizes: dict[str, int] = {split: len(rows) for split, rows in splits.items()}
        if self.edges is None:
            self.edges = self._edges(x[table.splits["train"]])
        task, inputs = self.task.fit(splits["train"].y), self._inputs()
        own = {name for names in inputs.values() for name in names}
        spec = ClientSpec(
            table.name,
            self.features,
            task.classes,
            sizes,
            (Site(table.name, self.seen, sizes),),
            task.class_rows,
            absent=tuple(name for name in self.features if name not in own),
            common=None
            if self.common is None
            else {group: tuple(n for column in names for n in inputs[column]) for group, names in self.common.items()},
            concept=table.concept,
            task=task,
            inputs=self._described(),
        )
        notes = (*table.notes, *_notes(table), *_notes_of_target(table, task, splits["validation"].y))
        coded = tuple(name for name, column in self.columns.items() if column.kind != NUMBERS)
        categorical = coded if self.categories == "codes" else ()
        numbers = table.features.index.tolist()
        groups = None if table.groups is None else dict(zip(numbers, table.groups.tolist(), strict=True))
        return EncodedClient(spec, splits["train"], {table.name: splits}, notes, categorical, groups)

    def target(self, column: pd.Series) -> Tensor:
        """Encode the target as the client's task does: (n,), or (n, labels).

        Raises:
            DataError: values of another type than those that were trained on.
        """
        try:
            return self.task.encode(column if isinstance(column.name, tuple) else column.rename(self.target_name))
        except DataError as error:
            raise DataError(f"client {self.client!r}, {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """Return everything that was learnt as plain data, for JSON or ``torch.save``."""
        return {
            "scaling": self.scaling,
            "categories": self.categories,
            "columns": {name: column.state_dict() for name, column in self.columns.items()},
            "features": list(self.features),
            "edges": None if self.edges is None else {name: list(own) for name, own in self.edges.items()},
            "common": self.common,
            "task": task_state(self.task),
            "seen": list(self.seen),
            "target": self.target_name,
            "schema": self.schema.to_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the encoder from its state."""
        super().load_state_dict(state)
        self.common = state["common"]
        edges = state["edges"]
        self.edges = None if edges is None else {name: tuple(own) for name, own in edges.items()}
        self.task, self.seen = task_from(state["task"]), tuple(state["seen"])


def _notes(table: ClientTable) -> list[Note]:
    """Return notes on columns that carry no information."""
    rows, empty, constant = table.splits["train"], list[str](), list[str]()
    for column in table.features:
        values = table.features[column].iloc[rows]
        if values.iloc[:1000].nunique(dropna=False) > 1 or values.nunique(dropna=False) > 1:
            continue
        (empty if values.isna().all() else constant).append(str(column))
    said = (
        (empty, "no value", "no value in training rows, so without effect"),
        (constant, "one value", "the same value in all training rows"),
    )
    return [
        client_note(table.name, kind, f"{text}: {', '.join(names)}", columns=names, fix={"drop": names})
        for names, kind, text in said
        if names
    ]


def _notes_of_target(table: ClientTable, task: Task, validation: Tensor) -> list[Note]:
    """Return notes on a table's target; ``validation`` holds the encoded target of the validation rows."""
    rows, notes, sequence = len(table.splits["train"]), list[Note](), isinstance(task, SequenceLabelling)
    if isinstance(task, MultiLabel):
        counted = list(zip(task.classes, task.class_rows, task.known_rows, strict=True))
        if same := [label for label, have, known in counted if known and have in (0, known)]:
            text = f"the same in all training rows, so nothing is learnt of: {', '.join(same)}"
            notes.append(client_note(table.name, "one class", text, columns=same))
        gaps = {label: rows - known for label, _, known in counted if 0 < known < rows}
        if gaps:
            shown = ", ".join(f"{label} ({count:,})" for label, count in gaps.items())
            text = f"not known of some training rows, which count nowhere for it: {shown}"
            notes.append(client_note(table.name, "unlabelled", text, columns=list(gaps)))
        return notes
    target = [str(table.target.name)]
    classes = sum(own > 0 for own in task.class_rows)
    if classes > 20 and classes > rows / 4 and not sequence:
        text = f"{classes} classes in {rows} training rows; is {target[0]!r} the target?"
        notes.append(client_note(table.name, "many classes", text, columns=target))
    if not task.classes and table.target.iloc[table.splits["train"]].nunique() == 1:
        text = f"{target[0]!r} is the same in all training rows: there is nothing to learn"
        notes.append(client_note(table.name, "one value", text, columns=target))
    if unseen := int(((validation == -1) if sequence else ~task.known(validation)).sum()):
        what = "positions of validation rows" if sequence else "validation rows"
        text = f"{unseen:,} {what} have a label that no training row has; they count as wrong"
        notes.append(client_note(table.name, "rare class", text, columns=target))
    return notes
