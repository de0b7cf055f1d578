"""Turns a client's table into tensors, by what its training rows and the agreement with other
clients say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.agree import Agreement
from fedlit.data.columns import (
    NUMBERS,
    ColumnEncoder,
    RowEncoder,
    blocks_of,
    categories_of,
    frequent,
    input_names,
    named_categories,
)
from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.moments import own_edges_of_each
from fedlit.data.note import Note, client_note
from fedlit.data.schema.column import Kind, usual_kind
from fedlit.data.schema.schema import Schema
from fedlit.data.statement import Statement, state
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.data.targets import target_facts
from fedlit.data.terms import Terms
from fedlit.data.training import numbers_of
from fedlit.errors import DataError
from fedlit.inputs import Input
from fedlit.show.text import shorten
from fedlit.spec import ClientSpec
from fedlit.tasks import Task, task_from, task_state
from fedlit.tasks.metrics import Site


class TableEncoder(RowEncoder):
    """Encodes the rows of one client. It needs the client's own table and the agreement, and
    nothing else of other clients.

    Numbers are standardised over the observed training rows and missing ones set to the training
    mean (0); a column without any observed number becomes 0 throughout. Categories become ordinal
    codes, −1 where missing or unseen in training, or indicators. Labels become positions in the
    sorted list of training labels.

    Args:
        client: the client's name.
        agreement: what clients agreed on; None for a client on its own.

    Attributes:
        common: group of clients → the columns that this one shares in it; None if no columns are
            common.
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
        self.scaling = self._agreement.terms.scaling
        self.categories = self._agreement.terms.categories
        self.common: dict[str, list[str]] | None = None
        self.edges: dict[str, tuple[float, ...]] | None = None

    def fit(self, table: ClientTable) -> TableEncoder:
        """Learn the encoding from a table's training rows.

        Raises:
            DataError: one class alone, labels of several types, indicators of a name that a column
                has.
        """
        agreement = self._agreement
        rows = table.splits["train"]
        target = target_facts(table)
        self.task = agreement.task_of(self.client, target)
        strange = set(target.get("labels", ())) - set(self.task.classes)
        if strange:
            classes = shorten([*map(str, self.task.classes)])
            raise DataError(
                f"client {self.client!r}, target {table.target.name!r}: expected labels of the "
                f"run's clients ({classes}), because outputs are common, found "
                f"{shorten(sorted(map(str, strange)))}; rename them, drop these rows, or train a "
                "run in which heads are private (data.align: none)"
            )
        self.seen = tuple(map(self.task.classes.index, target.get("labels", ())))
        self.target_name = table.target_title
        coded = {*table.categorical}
        usual_kinds = {name: usual_kind(name in coded) for name in table.kinds}
        self.columns = {
            name: self._fit(table, name, kind or usual_kinds[name], known=kind is not None)
            for name, kind in table.kinds.items()
        }
        if table.schema is None:
            kinds = {name: kind or usual_kinds[name] for name, kind in table.kinds.items()}
            self.schema = Schema.typed(table.features, kinds, rows)
        else:
            self.schema = table.schema
        inputs = input_names(self._inputs(), f"client {self.client!r}: ")
        self.common = None
        if agreement.groups is not None:
            self.common = {
                group.name: list(group.columns)
                for group in agreement.groups
                if self.client in group.clients
            }
        self.features = agreement.features or inputs
        return self

    def _fit(self, table: ClientTable, name: str, kind: Kind, *, known: bool) -> ColumnEncoder:
        """Learn the encoding of a column from its training rows.

        Args:
            table: the client's table.
            name: the name of the column.
            kind: its kind.
            known: whether a training row has a value; without one, other clients may say another
                kind.
        """
        terms = self._agreement.terms
        agreed = self._agreement.shared(self.client, name)
        if agreed is not None and agreed.kind and known and kind != agreed.kind:
            raise DataError(
                f"client {self.client!r}, column {name!r}: expected {agreed.kind}, as the run's "
                f"clients have there, found {kind}; declare the column's type, rename it, or drop "
                "it"
            )
        if not known and agreed and agreed.kind and terms.alike:
            kind = agreed.kind
        # One column after another, because a copy of all training rows may not fit into memory.
        if kind == NUMBERS:
            numbers = table.numbers.get(name)
            if numbers is None:
                numbers = numbers_of(table.features, [name], table.splits["train"])[name]
            gap = terms.missing == "indicator" and (terms.features or numbers.has_gaps)
            return ColumnEncoder(
                name, kind, (agreed and agreed.moments) or numbers.moments, gap=gap
            )
        train = table.features[name].iloc[table.splits["train"]]
        if agreed is not None and agreed.categories is not None:
            unnamed = agreed.tail == "other" or (terms.facts_from > 1 and not agreed.tail)
            rare = set[Any]()
            if unnamed:
                rare = set(categories_of(train, kind)) - set(agreed.categories)
            return replace(agreed.encoder(name, terms), rare=tuple(sorted(rare)))
        return self._fit_categories(train, kind)

    def _fit_categories(self, train: pd.Series, kind: Kind) -> ColumnEncoder:
        """Learn a column of categories on which clients have not agreed.

        Names of categories become names of inputs and of slices of tensors, which may be sent.
        """
        name = str(train.name)
        least = self._agreement.terms.facts_from
        if self.categories == "auto":
            gaps = int(train.isna().sum())
            categories, tail, rare = frequent(train, kind, least)
            gap = 0 < gaps < len(train)
            return ColumnEncoder(name, kind, None, categories, tail, rare, gap)
        categories = tuple(named_categories(train, kind, least))
        rare = ()
        if least > 1:
            rare = tuple(sorted({*categories_of(train, kind)}.difference(categories)))
        return ColumnEncoder(name, kind, None, categories, rare=rare)

    def statements(self, table: ClientTable) -> dict[str, Statement]:
        """Return the client's statement on each column of categories, without the categories that
        other clients name.
        """
        terms = self._agreement.terms
        stated = dict[str, Statement]()
        for name, column in self.columns.items():
            if column.kind == NUMBERS:
                continue
            train = table.features[name].iloc[table.splits["train"]]
            statement = state("categories", train, column.kind, terms.categories, terms.facts_from)
            withheld = {
                label: rows
                for label, rows in statement.withheld.items()
                if label not in column.categories
            }
            stated[name] = replace(statement, withheld=withheld)
        return stated

    def _edges(self, x: np.ndarray) -> dict[str, tuple[float, ...]]:
        """Map each numeric input to the edges of its bins; ``x`` holds the encoded training
        rows.
        """
        terms = self._agreement.terms
        if terms.bins == "none":
            return {}
        bins = dict[str, tuple[float, ...]]()
        not_agreed = list[str]()
        for column in self.columns.values():
            agreed = self._agreement.shared(self.client, column.name)
            common = tuple[float, ...]()
            if agreed and column.moments:
                common = tuple(column.numbers(np.array(agreed.edges), self.scaling).tolist())
            for item in column.describe(self.categories):
                if item.values:
                    continue
                if common and item.name == column.name:
                    bins[item.name] = common
                else:
                    bins[item.name] = ()  # It keeps the order of the inputs.
                    not_agreed.append(item.name)
        positions = {name: position for position, name in enumerate(self.features)}
        for names in blocks_of(not_agreed, len(x)):
            columns = x.T[[positions[name] for name in names]]
            bins |= zip(names, own_edges_of_each(columns, terms.num_bins), strict=True)
        return bins

    def _inputs(self) -> dict[str, list[str]]:
        return {name: column.inputs(self.categories) for name, column in self.columns.items()}

    def encode(self, table: ClientTable) -> EncodedClient:
        """Return the client's table as tensors, together with what a network has to know about
        it.
        """
        x = self.transform(table.features)
        y = self.target(table.target)
        weights = None
        if table.weights is not None:
            weights = torch.from_numpy(table.weights.astype(np.float32))
        numbers = table.features.index.to_numpy()
        splits: dict[Split, Rows] = {}
        for split in SPLITS:
            rows = table.splits[split]
            weight = None if weights is None else weights[rows]
            splits[split] = Rows(torch.from_numpy(x[rows]), y[rows], numbers[rows], weight)
        if self.edges is None:
            self.edges = self._edges(x[table.splits["train"]])
        task = self.task.fit(splits["train"].y)
        spec = self._spec(table, task, {split: len(rows) for split, rows in splits.items()})
        target_notes = _notes_of_target(table, task, splits["validation"].y)
        categorical = tuple[str, ...]()
        if self.categories == "codes":
            categorical = tuple(
                name for name, column in self.columns.items() if column.kind != NUMBERS
            )
        groups = None
        if table.groups is not None:
            groups = dict(zip(numbers.tolist(), table.groups.tolist(), strict=True))
        return EncodedClient(
            spec,
            splits["train"],
            {table.name: splits},
            (*table.notes, *_notes(table), *target_notes),
            categorical,
            groups,
        )

    def _spec(self, table: ClientTable, task: Task, sizes: dict[str, int]) -> ClientSpec:
        """Return what a network has to know about a client."""
        inputs = self._inputs()
        edges = self.edges or {}
        described = dict[str, Input]()
        for column in self.columns.values():
            for item in column.describe(self.categories):
                described[item.name] = replace(item, edges=edges.get(item.name, ()))
        common = None
        if self.common is not None:
            common = dict[str, tuple[str, ...]]()
            for group, columns in self.common.items():
                common[group] = tuple(chain(*(inputs[column] for column in columns)))
        return ClientSpec(
            table.name,
            self.features,
            task.classes,
            sizes,
            (Site(table.name, self.seen, sizes),),
            task.class_rows,
            absent=tuple(name for name in self.features if name not in described),
            common=common,
            concept=table.concept,
            task=task,
            # Only the name is known of an input that the table does not have.
            inputs=tuple(described.get(name, Input(name, name)) for name in self.features),
            facts_from=self._agreement.terms.facts_from,
        )

    def target(self, column: pd.Series) -> Tensor:
        """Encode the target as the client's task does: (n,), or (n, labels).

        Raises:
            DataError: values of another type than those that were trained on.
        """
        if not isinstance(column.name, tuple):
            column = column.rename(self.target_name)
        try:
            return self.task.encode(column)
        except DataError as error:
            raise DataError(f"client {self.client!r}, {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """Return everything that was learnt as plain data, for JSON or ``torch.save``."""
        edges = None
        if self.edges is not None:
            edges = {name: list(bins) for name, bins in self.edges.items()}
        return {
            "scaling": self.scaling,
            "categories": self.categories,
            "columns": {name: column.state_dict() for name, column in self.columns.items()},
            "features": list(self.features),
            "edges": edges,
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
        self.edges = None
        if state["edges"] is not None:
            self.edges = {name: tuple(edges) for name, edges in state["edges"].items()}
        self.task = task_from(state["task"])
        self.seen = tuple(state["seen"])


def _notes(table: ClientTable) -> list[Note]:
    """Return notes on columns that carry no information."""
    rows = table.splits["train"]
    empty = list[str]()
    constant = list[str]()
    for column, kind in table.kinds.items():
        if kind is None:
            empty.append(column)
        elif column in table.numbers:
            if table.numbers[column].is_constant:
                constant.append(column)
        elif _is_constant(table.features[column].iloc[rows]):
            constant.append(column)
    kinds = (
        (empty, "no value", "no value in training rows, so without effect"),
        (constant, "one value", "the same value in all training rows"),
    )
    return [
        client_note(
            table.name, kind, f"{text}: {', '.join(names)}", columns=names, fix={"drop": names}
        )
        for names, kind, text in kinds
        if names
    ]


def _is_constant(values: pd.Series) -> bool:
    """Return whether all cells (n,) are equal; the first rows rule out most columns."""
    few = values.iloc[:1000]
    return few.nunique(dropna=False) < 2 and values.nunique(dropna=False) < 2


def _notes_of_target(table: ClientTable, task: Task, validation: Tensor) -> list[Note]:
    """Return notes on a table's target; ``validation`` holds the encoded target of the validation
    rows.
    """
    rows = len(table.splits["train"])
    notes = list[Note]()
    if task.label_counts:
        counted = [(label, have, labelled) for label, (have, labelled) in task.label_counts.items()]
        if same := [
            label for label, have, labelled in counted if labelled and have in (0, labelled)
        ]:
            text = f"the same in all training rows, so nothing is learnt of: {', '.join(same)}"
            notes.append(client_note(table.name, "one class", text, columns=same))
        gaps = {label: rows - labelled for label, _, labelled in counted if 0 < labelled < rows}
        if gaps:
            gaps_text = ", ".join(f"{label} ({count:,})" for label, count in gaps.items())
            text = f"not known of some training rows, which count nowhere for it: {gaps_text}"
            notes.append(client_note(table.name, "unlabelled", text, columns=list(gaps)))
        return notes
    target = [str(table.target.name)]
    classes = sum(class_rows > 0 for class_rows in task.class_rows)
    if classes > 20 and classes > rows / 4 and not task.outcome.sequence:
        text = f"{classes} classes in {rows} training rows; is {target[0]!r} the target?"
        notes.append(client_note(table.name, "many classes", text, columns=target))
    if not task.classes and table.target.iloc[table.splits["train"]].nunique() == 1:
        text = f"{target[0]!r} is the same in all training rows: there is nothing to learn"
        notes.append(client_note(table.name, "one value", text, columns=target))
    if unseen := int(task.unseen(validation).sum()):
        unit = task.outcome.unit
        rows_text = "validation rows" if unit == "row" else f"{unit}s of validation rows"
        text = f"{unseen:,} {rows_text} have a label that no training row has; they count as wrong"
        notes.append(client_note(table.name, "rare class", text, columns=target))
    return notes
