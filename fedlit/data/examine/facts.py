"""Summarises a client's table in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.targets import outcome_at, task_name

SAMPLE = 100_000
"""Largest number of rows, spread over the table, from which quantiles and values are taken."""
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_VALUES = 500
"""Largest number of categories of a column that a summary lists."""
_KINDS = {"coded": "categorical", "ordinal": "numeric"}


@dataclass(frozen=True)
class ColumnFacts:
    """A summary of one raw column, or of one target.

    Attributes:
        kind: numeric (also for positions in an order), categorical, boolean or date.
        missing: the share of cells without a value.
        quantiles: the quantiles of numbers (of days since 1970 for dates) at :data:`QUANTILES`;
            empty if there are none.
        values: maps categories or classes to their number of rows, the most frequent first.
        unit: the unit beside numbers; "" if there is none.
        in_question: whether a note of the table asks what these values mean.
    """

    kind: str
    missing: float
    quantiles: tuple[float, ...] = ()
    values: Mapping[Any, int] | None = None
    unit: str = ""
    in_question: bool = False


@dataclass(frozen=True)
class ClientFacts:
    """A summary of a client's table, as plain data.

    Attributes:
        client: the client's name.
        rows: the number of rows of each split.
        task: the name of the task.
        positive: the label that counts as positive, if it is set.
        left_out: maps each column that is not used to the reason.
        columns: the summary of each column, by name.
        targets: the summary of each target, by name; there are several if a row has several labels.
    """

    client: str
    rows: Mapping[str, int]
    task: str
    positive: Any
    left_out: Mapping[str, str]
    columns: Mapping[str, ColumnFacts]
    targets: Mapping[str, ColumnFacts]


def facts_of(table: ClientTable) -> ClientFacts:
    """Summarise one table."""
    few = table.features
    if len(few) > SAMPLE:
        few = few.iloc[sampled(np.arange(len(few)), SAMPLE)]
    missing = table.features.isna().mean().tolist()
    quantiles = _quantiles(few[[name for name in few if name not in table.categorical]])
    columns = {}
    for typed, share in zip(map(str, few), missing, strict=True):
        # The last part of a date, days since 1970, replaces its earlier parts.
        name = raw_column(table, typed)
        kind = "categorical" if typed in table.categorical else "numeric"
        unit = ""
        if table.schema is not None and name in table.schema.columns:
            column = table.schema.columns[name]
            kind = _KINDS.get(column.kind, column.kind)
            unit = column.notation.unit
        values = None if typed in quantiles else _values(few[typed])
        columns[name] = ColumnFacts(kind, share, quantiles.get(typed, ()), values, unit)
    rows = {str(split): len(table.splits[split]) for split in SPLITS}
    left_out = {} if table.schema is None else table.schema.left_out
    return ClientFacts(
        table.name, rows, task_name(table), table.positive, left_out, columns, _targets(table)
    )


def _targets(table: ClientTable) -> dict[str, ColumnFacts]:
    target = table.target
    outcome = outcome_at(table)
    if isinstance(target.name, tuple):
        cells = zip(*(row for row in target if isinstance(row, tuple)), strict=True)
        notes = [note for note in table.notes if isinstance(note, Note)]
        open_columns = {note.column for note in notes if note.kind == "event"}
        summaries = {}
        for position, column in enumerate(cells):
            values = _values(pd.Series(column, dtype=object))
            is_open = str(target.name[position]) in open_columns
            summary = ColumnFacts("categorical", 0, values=values, in_question=is_open)
            numbers = pd.Series(column)
            if outcome.number and position not in outcome.label_cells and is_number(numbers):
                summary = ColumnFacts("numeric", 0, _quantiles(numbers.to_frame())["0"])
            summaries[str(target.name[position])] = summary
        return summaries
    name = str(target.name)
    if outcome.one_label:
        return {name: ColumnFacts("categorical", 0, values=_values(target))}
    quantiles = tuple[float, ...]()
    if is_number(target):
        quantiles = _quantiles(target.to_frame())[name]
    return {name: ColumnFacts("numeric", 0, quantiles, unit=table.unit)}


def _quantiles(columns: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    quantiles = columns.astype(np.float64).quantile(list(QUANTILES)).to_numpy().T.tolist()
    return {
        str(name): () if np.isnan(values[0]) else tuple(values)
        for name, values in zip(columns, quantiles, strict=True)
    }


def _values(cells: pd.Series) -> dict[Any, int]:
    return {
        _plain(value): int(rows) for value, rows in cells.value_counts().head(MOST_VALUES).items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float) else str(value)  # a date is one of these


def raw_column(table: ClientTable, typed: str) -> str:
    """Return the raw column from which a typed one was made: ``seen`` for ``seen.year``."""
    if table.schema is None or typed in table.schema.columns:
        return typed
    return typed.rpartition(".")[0]


def is_number(column: pd.Series) -> bool:
    """Return whether a typed column holds numbers."""
    return column.dtype.kind in "iuf"


def sampled(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the rows, spread evenly over all."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def by_name(
    clients: Sequence[ClientFacts], *, targets: bool = False
) -> dict[str, dict[str, ColumnFacts]]:
    """Map each column, or each target, to the clients that have it, with their summaries."""
    holders: dict[str, dict[str, ColumnFacts]] = {}
    for client in clients:
        summaries = client.targets if targets else client.columns
        for name, column in summaries.items():
            holders.setdefault(name, {})[client.client] = column
    return holders
