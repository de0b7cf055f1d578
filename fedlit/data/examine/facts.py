"""What a client's table holds, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.table import SPLITS, ClientTable

__all__ = ["ClientFacts", "ColumnFacts", "facts_of", "is_number", "last_of", "named", "owners", "sampled"]

SAMPLE = 100_000
"""Rows of which quantiles and different values are taken, spread over the table."""
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MOST_VALUES = 500  # of a column of categories that are kept


@dataclass(frozen=True)
class ColumnFacts:
    """The facts of one raw column.

    Attributes:
        kind: numeric, categorical, ordinal, boolean or date.
        missing: share of its cells without a value.
        different: how many different values, in a sample of :data:`SAMPLE` rows.
        quantiles: of numbers (dates: of days since 1970), at :data:`QUANTILES`; empty where there are none.
        values: of categories: value → share of rows, the most frequent first.
    """

    kind: str
    missing: float
    different: int
    quantiles: tuple[float, ...] = ()
    values: Mapping[str, float] | None = None

    @property
    def group(self) -> str:
        """The kind, where a column of an order counts as numbers."""
        return "number" if self.kind in ("numeric", "ordinal") else self.kind


@dataclass(frozen=True)
class ClientFacts:
    """A client's table in numbers.

    Attributes:
        table: the table itself.
        columns: by name.
        classes: label → rows, the most frequent first; empty where a number is predicted.
        quantiles: of a number that is predicted, at :data:`QUANTILES`.
        labels: of several labels a row, each with its known values → rows.
    """

    table: ClientTable
    columns: Mapping[str, ColumnFacts]
    classes: Mapping[Any, int] = field(default_factory=dict)
    quantiles: tuple[float, ...] = ()
    labels: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)

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
        """The name of what is predicted, or several."""
        return ", ".join(self.labels) or str(self.table.target.name)

    @property
    def task(self) -> str:
        """The name of the task."""
        task = self.table.task or "classification"  # looked at without torch, which knows all tasks
        return task if isinstance(task, str) else str(task["name"])

    @property
    def positive(self) -> Any:
        """The label that counts as positive where there are two."""
        if len(self.classes) != 2:
            return None
        return last_of(self.classes) if self.table.positive is None else self.table.positive

    @property
    def missing(self) -> int:
        """Cells without a value."""
        return round(sum(own.missing for own in self.columns.values()) * len(self.table.features))

    @property
    def left_out(self) -> dict[str, str]:
        """Columns that are not used → why."""
        return dict(self.table.schema.left_out) if self.table.schema is not None else {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        made = {
            key: getattr(self, key)
            for key in ("client", "rows", "target", "task", "positive", "quantiles", "missing", "left_out")
        }
        made["columns"] = {name: asdict(own) for name, own in self.columns.items()}
        made["classes"] = {str(label): rows for label, rows in self.classes.items()}
        made["labels"] = {name: {str(value): rows for value, rows in own.items()} for name, own in self.labels.items()}
        return made


def facts_of(table: ClientTable) -> ClientFacts:
    """Look at one table."""
    target, columns = table.target, _columns(table)
    if isinstance(target.name, tuple):
        rows = [row for row in target if isinstance(row, tuple)]
        held_by = zip(*rows, strict=True)
        known = (Counter(label for label in held if label is not None) for held in held_by)
        labels = dict(zip(map(str, target.name), (dict(held.most_common()) for held in known), strict=True))
        return ClientFacts(table, columns, labels=labels)
    if ClientFacts(table, columns).task == "classification":
        return ClientFacts(table, columns, classes={label: int(n) for label, n in target.value_counts().items()})
    return ClientFacts(table, columns, quantiles=tuple(target.quantile(QUANTILES)) if is_number(target) else ())


def is_number(column: pd.Series) -> bool:
    """Return whether a typed column holds numbers."""
    return column.dtype.kind in "iuf"


def last_of(values: Iterable[Any]) -> Any:
    """The last one in their order; numbers come before text.

    >>> last_of(["no", "yes"]), last_of([0, "yes"])
    ('yes', 'yes')
    """
    return max(values, key=lambda own: (isinstance(own, str), own))


def sampled(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, spread over all."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def owners(clients: Sequence[ClientFacts]) -> dict[str, list[ClientFacts]]:
    """Column → the clients that have it."""
    made: dict[str, list[ClientFacts]] = {}
    for own in clients:
        for name in own.columns:
            made.setdefault(name, []).append(own)
    return made


def named(clients: Iterable[str], most: int = 4) -> str:
    """Clients in a sentence.

    Example:
        >>> named(["a"]), named(["a", "b", "c"]), named("abcdef")
        ('a', 'a, b and c', 'a, b, c and 3 more')
    """
    *others, last = clients
    if len(others) >= most:
        return f"{', '.join(others[: most - 1])} and {len(others) + 2 - most} more"
    return f"{', '.join(others)} and {last}" if others else last


def _columns(table: ClientTable) -> dict[str, ColumnFacts]:
    """Return the facts of each raw column; the parts of a date are one column."""
    types = {} if table.schema is None else table.schema.columns
    shown: dict[str, str] = {}  # raw column → the typed one that stands for it
    for typed in map(str, table.features):
        raw = typed if not types or typed in types else typed.rpartition(".")[0]
        if raw not in shown or typed.endswith(".elapsed"):  # days since 1970, of a date's parts
            shown[raw] = typed
    few = table.features
    if len(few) > SAMPLE:
        few = few.iloc[sampled(np.arange(len(few)), SAMPLE)]
    numbers = [typed for typed in shown.values() if typed not in table.categorical]
    ordered = dict(zip(numbers, np.sort(few[numbers].to_numpy(np.float64).T), strict=True))  # NaN comes last
    missing = (table.features.isna().sum() / max(len(table.features), 1)).to_dict()
    made = {}
    for name, typed in shown.items():
        kind = "categorical" if typed in table.categorical else "numeric"
        kind = types[name].kind.replace("coded", "categorical") if name in types else kind
        if typed in ordered:
            made[name] = _of_numbers(ordered[typed], kind, missing[typed])
        else:
            held = few[typed].dropna()
            counts = (held.map(lambda own: f"{own:g}") if is_number(held) else held.astype(str)).value_counts()
            shares = {str(own): rows / max(len(few), 1) for own, rows in counts[:MOST_VALUES].items()}
            made[name] = ColumnFacts(kind, missing[typed], len(counts), values=shares)
    return made


def _of_numbers(ordered: np.ndarray, kind: str, missing: float) -> ColumnFacts:
    held = ordered[: len(ordered) - np.isnan(ordered).sum()]
    if not len(held):
        return ColumnFacts(kind, missing, 0)
    places = np.asarray(QUANTILES) * (len(held) - 1)  # np.quantile's own call costs more than sorting
    quantiles = np.interp(places, np.arange(len(held)), held).tolist()
    return ColumnFacts(kind, missing, 1 + int(np.count_nonzero(np.diff(held))), tuple(quantiles))
