"""Summarises a client's table in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.table import SPLITS, ClientTable

SAMPLE = 100_000
"""Rows of which quantiles and values are taken, spread over the table."""
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_VALUES = 500  # of a column of categories that are kept


@dataclass(frozen=True)
class ColumnFacts:
    """A summary of one raw column, or of one target.

    Attributes:
        kind: numeric, categorical, ordinal, boolean or date.
        missing: the share of cells without a value.
        different: the number of distinct values in a sample of :data:`SAMPLE` rows.
        quantiles: the quantiles of numbers (of days since 1970 for dates) at :data:`QUANTILES`; empty if there are
            none.
        values: maps categories or classes to their number of rows, the most frequent first.
    """

    kind: str
    missing: float
    different: int
    quantiles: tuple[float, ...] = ()
    values: Mapping[Any, int] | None = None

    @property
    def group(self) -> str:
        """The kind, with ordinal columns counted as numbers."""
        return "number" if self.kind in ("numeric", "ordinal") else self.kind


@dataclass(frozen=True)
class ClientFacts:
    """A summary of a client's table.

    Attributes:
        table: the table itself.
        columns: the summary of each column, by name.
        targets: the summary of each target, by name; there are several if a row has several labels.
    """

    table: ClientTable
    columns: Mapping[str, ColumnFacts]
    targets: Mapping[str, ColumnFacts]

    @property
    def client(self) -> str:
        """The client's name."""
        return self.table.name

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each split."""
        return {split: len(self.table.splits[split]) for split in SPLITS}

    @property
    def target(self) -> str:
        """The name of the target, or the names of several."""
        return ", ".join(self.targets)

    @property
    def task(self) -> str:
        """The name of the task."""
        task = self.table.task or "classification"  # looked at without torch, which knows all tasks
        return task if isinstance(task, str) else str(task["name"])

    @property
    def left_out(self) -> dict[str, str]:
        """Maps each column that is not used to the reason."""
        return dict(self.table.schema.left_out) if self.table.schema is not None else {}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        made = {key: getattr(self, key) for key in ("client", "rows", "target", "task", "left_out")}
        for key, held in (("columns", self.columns), ("targets", self.targets)):
            made[key] = {name: asdict(own) for name, own in held.items()}
        return {**made, "positive": self.table.positive}


def facts_of(table: ClientTable) -> ClientFacts:
    """Summarise one table."""
    types = {} if table.schema is None else table.schema.columns
    shown: dict[str, str] = {}  # raw column → the typed one that stands for it
    for typed in map(str, table.features):
        raw = typed if not types or typed in types else typed.rpartition(".")[0]
        if raw not in shown or typed.endswith(".elapsed"):  # days since 1970, of a date's parts
            shown[raw] = typed
    few = table.features
    few = few.iloc[sampled(np.arange(len(few)), SAMPLE)] if len(few) > SAMPLE else few
    numbers = [typed for typed in shown.values() if typed not in table.categorical]
    ordered = dict(zip(numbers, np.sort(few[numbers].to_numpy(np.float64).T), strict=True))  # NaN comes last
    missing = table.features.isna().mean().to_dict()
    columns = {}
    for name, typed in shown.items():
        kind = "categorical" if typed in table.categorical else "numeric"
        kind = types[name].kind.replace("coded", "categorical") if name in types else kind
        of_numbers = typed in ordered
        columns[name] = (
            _of_numbers(ordered[typed], kind, missing[typed])
            if of_numbers
            else _of_values(few[typed], kind, missing[typed])
        )
    return ClientFacts(table, columns, _targets(table))


def _targets(table: ClientTable) -> dict[str, ColumnFacts]:
    target = table.target
    if isinstance(target.name, tuple):
        held = zip(*(row for row in target if isinstance(row, tuple)), strict=True)
        labels = zip(map(str, target.name), held, strict=True)
        return {name: _of_values(pd.Series(own, dtype=object), "categorical", 0) for name, own in labels}
    task = ClientFacts(table, {}, {}).task
    if task == "classification":
        return {str(target.name): _of_values(target, "categorical", 0)}
    numbers = np.sort(target.to_numpy(np.float64)) if is_number(target) else np.array([])
    return {str(target.name): _of_numbers(numbers, "numeric", 0)}


def _of_numbers(ordered: np.ndarray, kind: str, missing: float) -> ColumnFacts:
    held = ordered[: len(ordered) - np.isnan(ordered).sum()]
    if not len(held):
        return ColumnFacts(kind, missing, 0)
    places = np.asarray(QUANTILES) * (len(held) - 1)  # np.quantile's own call costs more than sorting
    quantiles = np.interp(places, np.arange(len(held)), held).tolist()
    return ColumnFacts(kind, missing, 1 + int(np.count_nonzero(np.diff(held))), tuple(quantiles))


def _of_values(cells: pd.Series, kind: str, missing: float) -> ColumnFacts:
    codes, different = cells.factorize()
    counts = np.bincount(codes[codes >= 0], minlength=len(different))
    known = different.tolist()  # as Python has them
    values = {_plain(known[place]): int(counts[place]) for place in np.argsort(-counts, kind="stable")[:MOST_VALUES]}
    return ColumnFacts(kind, missing, len(different), values=values)


def _plain(value: Any) -> Any:
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return value if isinstance(value, str | int | float) else str(value)  # such as a date


def is_number(column: pd.Series) -> bool:
    """Return whether a typed column holds numbers."""
    return column.dtype.kind in "iuf"


def sampled(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the rows, spread evenly over all."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def owners(clients: Sequence[ClientFacts]) -> dict[str, list[ClientFacts]]:
    """Map each column to the clients that have it."""
    made: dict[str, list[ClientFacts]] = {}
    for own in clients:
        for name in own.columns:
            made.setdefault(name, []).append(own)
    return made
