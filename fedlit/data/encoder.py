"""Turns a client's table into tensors, by what its training rows and the agreement with other
clients say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    blocks_of,
    categories_of,
    frequent,
    input_names,
    named_categories,
)
from fedlit.data.encoder_notes import column_notes, target_notes
from fedlit.data.encoding import EncodedClient, Rows
from fedlit.data.grouped import runs
from fedlit.data.moments import edge_step, own_edges_of_each
from fedlit.data.row_encoder import RowEncoder, encode_rows
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

    def common_edges(self) -> tuple[dict[str, tuple[float, ...]], list[str]]:
        """Map each numeric input to the edges of the bins on which clients agreed, and list the
        inputs that have bins of the client's own, which are empty here.
        """
        if self._agreement.terms.bins == "none":
            return {}, []
        bins = dict[str, tuple[float, ...]]()
        not_agreed = list[str]()
        for column in self.columns.values():
            agreed = self._agreement.shared(self.client, column.name)
            common = tuple[float, ...]()
            if agreed and column.moments:
                common = tuple(column.numbers(np.array(agreed.edges), self.scaling).tolist())
            for item in column.describe(self.categories, {}):
                if item.values:
                    continue
                if common and item.name == column.name:
                    bins[item.name] = common
                else:
                    bins[item.name] = ()  # It keeps the order of the inputs.
                    not_agreed.append(item.name)
        return bins, not_agreed

    @property
    def num_bins(self) -> int:
        """The largest number of bins of an input."""
        return self._agreement.terms.num_bins

    def _inputs(self) -> dict[str, list[str]]:
        return {name: column.inputs(self.categories) for name, column in self.columns.items()}

    def encode(self, table: ClientTable) -> EncodedClient:
        """Return the client's table as tensors, together with what a network has to know about
        it.
        """
        (client,) = encode_tables([self], [table])
        return client

    def encoded(self, table: ClientTable, x: np.ndarray, y: Tensor) -> EncodedClient:
        """Return the client's table, whose inputs ``x`` (n, inputs) and target ``y`` (n, …) are
        encoded, in its splits.
        """
        weights = None
        if table.weights is not None:
            weights = torch.from_numpy(table.weights.astype(np.float32))
        numbers = table.features.index.to_numpy()
        splits: dict[Split, Rows] = {}
        for split in SPLITS:
            rows = table.splits[split]
            weight = None if weights is None else weights[rows]
            splits[split] = Rows(torch.from_numpy(x[rows]), y[rows], numbers[rows], weight)
        task = self.task.fit(splits["train"].y)
        spec = self._spec(table, task, {split: len(rows) for split, rows in splits.items()})
        notes_on_target = target_notes(table, task, splits["train"].y, splits["validation"].y)
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
            (*table.notes, *column_notes(table), *notes_on_target),
            categorical,
            groups,
        )

    def _spec(self, table: ClientTable, task: Task, sizes: dict[str, int]) -> ClientSpec:
        """Return what a network has to know about a client."""
        edges = self.edges or {}
        described = dict[str, Input]()
        for column in self.columns.values():
            for item in column.describe(self.categories, edges):
                described[item.name] = item
        common = None
        if self.common is not None:
            inputs = self._inputs()
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


def encode_tables(
    encoders: Sequence[TableEncoder], tables: Sequence[ClientTable]
) -> list[EncodedClient]:
    """Encode the table of each client.

    Args:
        encoders: the encoder of each client.
        tables: its table.

    Raises:
        DataError: a table that cannot be encoded; names the client and the column.
    """
    clients = list[EncodedClient]()
    for run in runs([table.features.size for table in tables]):
        run_encoders = encoders[run]
        run_tables = tables[run]
        x = encode_rows(run_encoders, [table.features for table in run_tables])
        y = _targets(run_encoders, [table.target for table in run_tables])
        _find_edges(run_encoders, run_tables, x)
        clients += map(TableEncoder.encoded, run_encoders, run_tables, x, y)
    return clients


def _targets(encoders: Sequence[TableEncoder], targets: Sequence[pd.Series]) -> list[Tensor]:
    """Encode the target of each client; those of one task together."""
    encoded: list[Tensor] = [torch.empty(0)] * len(targets)
    same_task = dict[tuple[Any, ...], list[int]]()
    for position, (encoder, target) in enumerate(zip(encoders, targets, strict=True)):
        key = repr(task_state(encoder.task)), target.name, target.dtype
        same_task.setdefault(key, []).append(position)
    for positions in same_task.values():
        members = [targets[position] for position in positions]
        try:
            y = encoders[positions[0]].target(pd.concat(members))
        except DataError:
            for position in positions:  # The message names the client with the wrong values.
                encoders[position].target(targets[position])
            raise
        for position, part in zip(positions, y.split([*map(len, members)]), strict=True):
            encoded[position] = part
    return encoded


def _find_edges(
    encoders: Sequence[TableEncoder], tables: Sequence[ClientTable], encoded: Sequence[np.ndarray]
) -> None:
    """Find the edges of bins from the encoded training rows; clients with equally many rows
    together.
    """
    same_size = dict[tuple[int, int], list[tuple[TableEncoder, str, np.ndarray]]]()
    for encoder, table, x in zip(encoders, tables, encoded, strict=True):
        if encoder.edges is not None:
            continue
        encoder.edges, names = encoder.common_edges()
        train = table.splits["train"]
        columns = x[train[:: edge_step(len(train))]].T
        positions = {name: position for position, name in enumerate(encoder.features)}
        parts = same_size.setdefault((encoder.num_bins, columns.shape[1]), [])
        parts += [(encoder, name, columns[positions[name]]) for name in names]
    for (num_bins, rows), items in same_size.items():
        for block in blocks_of(items, rows):
            columns = np.array([column for _, _, column in block])
            edges_of_each = own_edges_of_each(columns, num_bins)
            for (encoder, name, _), edges in zip(block, edges_of_each, strict=True):
                assert encoder.edges is not None  # set above
                encoder.edges[name] = edges
