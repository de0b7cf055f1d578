"""Turns a client's table into tensors, by what its training rows and the agreement with other
clients say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.agree import Agreement, Terms
from fedlit.data.columns import (
    NUMBERS,
    ColumnEncoder,
    RowEncoder,
    categories_of,
    frequent,
    input_names,
    named_categories,
    plain_values,
)
from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.moments import Moments, own_edges
from fedlit.data.note import Note, client_note
from fedlit.data.schema.column import kind_of
from fedlit.data.schema.schema import Schema
from fedlit.data.statement import Statement, state
from fedlit.data.table import SPLITS, ClientTable, target_facts
from fedlit.errors import DataError, Told, expect
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
        if strange := set(target.get("labels", ())) - set(self.task.classes):
            known = (
                f"labels of the run's clients ({shorten([*map(str, self.task.classes)])}), for "
                "outputs are common"
            )
            advice = (
                "rename them, drop these rows, or train a run in which heads are private "
                "(data.align: none)"
            )
            where = f"client {self.client!r}, target {table.target.name!r}"
            found = shorten(sorted(map(str, strange)))
            expect(False, where, known, Told(found), advice, DataError)
        self.seen = tuple(map(self.task.classes.index, target.get("labels", ())))
        self.target_name = str(table.target.name)
        coded = set(table.categorical)
        self.columns = {  # column by column: a copy of all training rows may not fit
            str(column): self._fit(table.features[column].iloc[rows], column in coded)
            for column in table.features
        }
        self.schema = table.schema or Schema.typed(table.features, table.categorical, rows)
        own = input_names(self._inputs(), f"client {self.client!r}: ")
        groups = (
            None
            if agreement.groups is None
            else [g for g in agreement.groups if self.client in g.clients]
        )
        self.common = (
            None if groups is None else {group.name: list(group.columns) for group in groups}
        )
        self.features = agreement.features or own
        return self

    def _fit(self, train: pd.Series, categorical: bool) -> ColumnEncoder:
        name = str(train.name)
        terms = self._agreement.terms
        agreed = self._agreement.shared(self.client, name)
        kind = kind_of(train, categorical)
        if agreed is not None and agreed.kind and kind not in (None, agreed.kind):
            where = f"client {self.client!r}, column {name!r}"
            told = f"{agreed.kind}, as the run's clients have there"
            expect(
                False,
                where,
                told,
                Told(kind),
                "declare the column's type, rename it, or drop it",
                DataError,
            )
        if kind is None:
            kind = (agreed.kind if agreed and terms.alike else None) or (
                "categorical" if categorical else NUMBERS
            )
        if kind == NUMBERS:
            moments = (agreed and agreed.moments) or Moments.of(plain_values(train, kind, name))
            gap = terms.missing == "indicator" and (terms.features or bool(train.isna().any()))
            return ColumnEncoder(name, kind, moments, gap=gap)
        if agreed is not None and agreed.categories is not None:
            unnamed = agreed.tail == "other" or (terms.facts_from > 1 and not agreed.tail)
            own = set(categories_of(train, kind)) if unnamed else set()
            return replace(
                agreed.encoder(name, terms), rare=tuple(sorted(own - set(agreed.categories)))
            )
        # names of categories become names of inputs and of slices of tensors, which may be sent
        least = terms.facts_from
        if self.categories == "auto":
            gaps = int(train.isna().sum())
            return ColumnEncoder(
                name, kind, None, *frequent(train, kind, least), gap=0 < gaps < len(train)
            )
        named = tuple(named_categories(train, kind, least))
        rare = sorted({*categories_of(train, kind)}.difference(named)) if least > 1 else []
        return ColumnEncoder(name, kind, None, named, rare=tuple(rare))

    def statements(self, table: ClientTable) -> dict[str, Statement]:
        """Return what the client would say about each column of categories, without those that
        other clients name.
        """
        terms = self._agreement.terms
        made = dict[str, Statement]()
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
            made[name] = replace(statement, withheld=withheld)
        return made

    def _edges(self, x: np.ndarray) -> dict[str, tuple[float, ...]]:
        """Map each numeric input to the edges of its bins; ``x`` holds the encoded training
        rows.
        """
        terms = self._agreement.terms
        found = dict[str, tuple[float, ...]]()
        place = {name: own for own, name in enumerate(self.features)}
        for column in self.columns.values() if terms.bins != "none" else ():
            agreed = self._agreement.shared(self.client, column.name)
            edges = np.array(agreed.edges if agreed and column.moments else ())
            for each in column.describe(self.categories):
                if not each.values:
                    given = (
                        tuple(column.numbers(edges, self.scaling).tolist())
                        if each.name == column.name
                        else ()
                    )
                    found[each.name] = given or own_edges(x[:, place[each.name]], terms.num_bins)
        return found

    def _inputs(self) -> dict[str, list[str]]:
        return {name: column.inputs(self.categories) for name, column in self.columns.items()}

    def encode(self, table: ClientTable) -> EncodedClient:
        """Return the client's table as tensors, together with what a network has to know about
        it.
        """
        x = self.transform(table.features)
        y = self.target(table.target)
        weights = (
            None if table.weights is None else torch.from_numpy(table.weights.astype(np.float32))
        )
        splits = {
            split: Rows(
                torch.from_numpy(x[rows]),
                y[rows],
                table.features.index.to_numpy()[rows],
                None if weights is None else weights[rows],
            )
            for split in SPLITS
            for rows in [table.splits[split]]
        }
        sizes: dict[str, int] = {split: len(rows) for split, rows in splits.items()}
        if self.edges is None:
            self.edges = self._edges(x[table.splits["train"]])
        task = self.task.fit(splits["train"].y)
        inputs = self._inputs()
        own = {
            each.name: each
            for column in self.columns.values()
            for each in column.describe(self.categories)
        }
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
            else {
                group: tuple(n for column in names for n in inputs[column])
                for group, names in self.common.items()
            },
            concept=table.concept,
            task=task,
            # only the name is known of an input that the table does not have
            inputs=tuple(
                replace(own[name], edges=self.edges.get(name, ()))
                if name in own
                else Input(name, name)
                for name in self.features
            ),
            facts_from=self._agreement.terms.facts_from,
        )
        notes = (
            *table.notes,
            *_notes(table),
            *_notes_of_target(table, task, splits["validation"].y),
        )
        coded = tuple(name for name, column in self.columns.items() if column.kind != NUMBERS)
        categorical = coded if self.categories == "codes" else ()
        numbers = table.features.index.tolist()
        groups = (
            None if table.groups is None else dict(zip(numbers, table.groups.tolist(), strict=True))
        )
        return EncodedClient(
            spec, splits["train"], {table.name: splits}, notes, categorical, groups
        )

    def target(self, column: pd.Series) -> Tensor:
        """Encode the target as the client's task does: (n,), or (n, labels).

        Raises:
            DataError: values of another type than those that were trained on.
        """
        try:
            return self.task.encode(
                column if isinstance(column.name, tuple) else column.rename(self.target_name)
            )
        except DataError as error:
            raise DataError(f"client {self.client!r}, {error}") from error

    def state_dict(self) -> dict[str, Any]:
        """Return everything that was learnt as plain data, for JSON or ``torch.save``."""
        return {
            "scaling": self.scaling,
            "categories": self.categories,
            "columns": {name: column.state_dict() for name, column in self.columns.items()},
            "features": list(self.features),
            "edges": None
            if self.edges is None
            else {name: list(own) for name, own in self.edges.items()},
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
        self.task = task_from(state["task"])
        self.seen = tuple(state["seen"])


def _notes(table: ClientTable) -> list[Note]:
    """Return notes on columns that carry no information."""
    rows = table.splits["train"]
    empty = list[str]()
    constant = list[str]()
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
        client_note(
            table.name, kind, f"{text}: {', '.join(names)}", columns=names, fix={"drop": names}
        )
        for names, kind, text in said
        if names
    ]


def _notes_of_target(table: ClientTable, task: Task, validation: Tensor) -> list[Note]:
    """Return notes on a table's target; ``validation`` holds the encoded target of the validation
    rows.
    """
    rows = len(table.splits["train"])
    notes = list[Note]()
    if task.label_counts:
        counted = [(label, have, known) for label, (have, known) in task.label_counts.items()]
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
    if classes > 20 and classes > rows / 4 and not task.outcome.sequence:
        text = f"{classes} classes in {rows} training rows; is {target[0]!r} the target?"
        notes.append(client_note(table.name, "many classes", text, columns=target))
    if not task.classes and table.target.iloc[table.splits["train"]].nunique() == 1:
        text = f"{target[0]!r} is the same in all training rows: there is nothing to learn"
        notes.append(client_note(table.name, "one value", text, columns=target))
    if unseen := int(task.unseen(validation).sum()):
        unit = task.outcome.unit
        what = "validation rows" if unit == "row" else f"{unit}s of validation rows"
        text = f"{unseen:,} {what} have a label that no training row has; they count as wrong"
        notes.append(client_note(table.name, "rare class", text, columns=target))
    return notes


# ---------------------------------------------------------------- a client that joins a trained run


def newcomer(
    table: ClientTable, terms: Terms, agreed: Agreement, clients: Iterable[str]
) -> tuple[TableEncoder, ClientTable]:
    """Return the encoder of a client that was not part of the run's agreement.

    Columns that clients of the run have in common are coded as these code them, labels too, as far
    as the terms say that they are common. All else is learnt of the client's own training rows.

    Args:
        table: the client's table.
        terms: the settings of its own run.
        agreed: the agreement of the run that it joins.
        clients: the clients of that run.

    Returns:
        The encoder, and the table without the columns that the run does not know where inputs are
        common, with notes.

    Raises:
        DataError: a column of another kind than in the run, or a label that no client of the run
            has.
        ConfigError: nothing in common.
    """
    if terms.alike:  # what is common is coded as in the run, whatever sort of table this is
        terms = replace(terms, categories=agreed.terms.categories, missing=agreed.terms.missing)
    if terms.features:
        table = _without_strange(table, agreed, shorten(list(clients)))
    agreement = agreed.with_client(table.name, terms, map(str, table.features))
    target = target_facts(table)
    encoder = TableEncoder(table.name, agreement).fit(table)
    notes = list(table.notes)
    if terms.shares(target) and all(
        other["task"] != target["task"] for other in agreed.targets.values()
    ):
        text = f"no client of the run has the task {target['task']}, so its outputs are its own"
        notes.append(client_note(table.name, "task", text, [str(table.target.name)]))
    for name, own in encoder.columns.items():
        count, new = own.unseen(table.features[name].iloc[table.splits["train"]])
        if count and name in agreement.columns:
            text = (
                f"{count:,} training rows have a category that the run's clients did not have "
                f"({shorten(new)})"
            )
            said = f"{text}; they count as unseen"
            notes.append(
                Note(
                    said, "unseen", clients=[table.name], column=name, head=f"{table.name}: {name}"
                )
            )
    return encoder, replace(table, notes=tuple(notes))


def _without_strange(table: ClientTable, agreed: Agreement, clients: str) -> ClientTable:
    """Drop the columns whose place among the run's inputs, or whose codes, the run does not
    know.
    """
    known = [
        name
        for name, own in agreed.columns.items()
        if own.kind in (None, NUMBERS) or own.categories is not None
    ]
    own = list(map(str, table.features))
    kept = [name for name in own if name in known]
    left = [name for name in own if name not in known]
    wanted = (
        "a column that clients of the run have, for its inputs are common (data.align), of "
        f"{shorten(known)}"
    )
    expect(
        bool(kept),
        f"client {table.name!r}",
        wanted,
        shorten(own),
        "rename columns that mean the same",
    )
    notes = list(table.notes)
    if left:
        text = (
            f"left out, because it is not common to clients of the run ({clients}): {shorten(left)}"
        )
        notes.append(client_note(table.name, "left out", text, fix={"drop": left}))
    if lacking := [name for name in known if name not in kept]:
        notes.append(
            client_note(
                table.name, "absent", f"has no column for inputs of the run: {shorten(lacking)}"
            )
        )
    return replace(table.only(kept), notes=tuple(notes))
