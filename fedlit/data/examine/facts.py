"""What a client's table holds, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.table import SPLITS, ClientTable

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ClientFacts",
    "ColumnFacts",
    "facts_of",
    "is_number",
    "labels_of",
    "last_of",
    "quantiles_of",
    "sampled",
    "task_of",
]

SAMPLE = 100_000
"""Rows of which quantiles and different values are taken, spread over the table."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_VALUES = 500  # of a column of categories that are kept


@dataclass(frozen=True)
class ColumnFacts:
    """The facts of one raw column.

    Attributes:
        kind: numeric, categorical, ordinal, boolean or date.
        missing: share of its cells without a value.
        different: how many different values, in a sample of :data:`SAMPLE` rows.
        quantiles: of numbers (dates: of days since 1970): 5, 25, 50, 75 and 95 %; and least and largest.
        values: of categories: value → share of rows, the most frequent first.
    """

    kind: str
    missing: float
    different: int
    quantiles: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 0.0
    values: Mapping[str, float] | None = None


@dataclass(frozen=True)
class ClientFacts:
    """A client's table in numbers.

    Attributes:
        client: its name.
        rows: of each split.
        target: its name.
        task: its name.
        classes: label → rows, the most frequent first; empty where a number is predicted.
        positive: the label that counts as positive where there are two.
        quantiles: of a number that is predicted.
        labels: of several labels a row, each with its values → rows.
        columns: by name.
        left_out: column → why.
        missing: empty cells.
        cells: all cells.
        notes: what reading had to say.
    """

    client: str
    rows: Mapping[str, int]
    target: str
    task: str
    classes: Mapping[Any, int]
    positive: Any
    quantiles: tuple[float, ...]
    labels: Mapping[str, Mapping[Any, int]]
    columns: Mapping[str, ColumnFacts]
    left_out: Mapping[str, str]
    missing: int
    cells: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        made = {own.name: getattr(self, own.name) for own in fields(self)}
        made["columns"] = {name: vars(own) for name, own in self.columns.items()}
        made["classes"] = {str(label): rows for label, rows in self.classes.items()}
        made["labels"] = {name: {str(value): rows for value, rows in own.items()} for name, own in self.labels.items()}
        return made


def task_of(table: ClientTable) -> str:
    """The name of a client's task."""
    if table.task is None:
        return "classification"
    return str(table.task if isinstance(table.task, str) else table.task.get("name", "classification"))


def sampled(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, spread over all."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def is_number(column: pd.Series) -> bool:
    """Return whether a typed column holds numbers."""
    return column.dtype.kind in "iuf"


def labels_of(target: pd.Series) -> dict[str, list[Any]]:
    """Return each label's known values, for a target of several labels a row; empty for any other."""
    if not isinstance(target.name, tuple):
        return {}
    rows = [row for row in target if isinstance(row, tuple)]
    return {str(name): [row[place] for row in rows if row[place] is not None] for place, name in enumerate(target.name)}


def facts_of(table: ClientTable) -> ClientFacts:
    """Look at one table."""
    target, task, features = table.target, task_of(table), table.features
    classes: dict[Any, int] = {}
    quantiles: tuple[float, ...] = ()
    several = labels_of(target)
    if not several and task == "classification":
        classes = {label: int(count) for label, count in target.value_counts().items()}
    elif is_number(target):
        quantiles = tuple(map(float, target.quantile([0, *QUANTILES, 1])))
    missing = {str(name): int(count) for name, count in features.isna().sum().items()}
    columns = _columns(table, missing)
    return ClientFacts(
        client=table.name,
        rows={split: len(table.splits[split]) for split in SPLITS},
        target=", ".join(several) or str(target.name),
        task=task,
        classes=classes,
        positive=_positive(table, classes),
        quantiles=quantiles,
        labels={name: dict(Counter(held)) for name, held in several.items()},
        columns=columns,
        left_out=dict(table.schema.left_out) if table.schema is not None else {},
        missing=round(sum(own.missing * len(features) for own in columns.values())),
        cells=len(columns) * len(features),
        notes=table.notes,
    )


def _positive(table: ClientTable, classes: Mapping[Any, int]) -> Any:
    if len(classes) != 2:
        return None
    return table.positive if table.positive is not None else last_of(classes)


def last_of(values: Iterable[Any]) -> Any:
    """The last one in their order: that of text where they have none."""
    own = list(values)
    try:
        return max(own)
    except TypeError:
        return max(own, key=str)


def _columns(table: ClientTable, missing: Mapping[Any, int]) -> dict[str, ColumnFacts]:
    """Return the facts of each raw column; the parts of a date are one column."""
    rows = max(len(table.features), 1)
    few = table.features
    if len(few) > SAMPLE:
        few = few.iloc[sampled(np.arange(len(few)), SAMPLE)]
    schema = table.schema
    parts = {} if schema is None else {name: own for name, own in schema.columns.items() if own.kind == "date"}
    made = {}
    for key, cells in few.items():
        name = str(key)
        raw = name.rpartition(".")[0] if name not in (schema.columns if schema else ()) else name
        if raw in parts and raw != name:
            if raw not in made or name.endswith(".elapsed"):
                made[raw] = _column(cells, "date", missing[name] / rows)
            continue
        kind = schema.columns[name].kind if schema is not None and name in schema.columns else None
        kind = kind or ("categorical" if name in table.categorical else "numeric")
        made[name] = _column(cells, "categorical" if kind == "coded" else kind, missing[name] / rows)
    return made


def _column(values: pd.Series, kind: str, missing: float) -> ColumnFacts:
    held = values.dropna()
    if kind in ("categorical", "boolean"):
        plain = held.map(lambda own: f"{own:g}") if is_number(held) else held.astype(str)
        counts = plain.value_counts()
        shares = {str(value): float(count / max(len(values), 1)) for value, count in counts[:MOST_VALUES].items()}
        return ColumnFacts(kind, missing, len(counts), values=shares)
    numbers = held.to_numpy(np.float64)
    if not len(numbers):
        return ColumnFacts(kind, missing, 0)
    numbers = np.sort(numbers)
    different = 1 + int(np.count_nonzero(np.diff(numbers)))
    quantiles = tuple(map(float, quantiles_of(numbers, QUANTILES)))
    return ColumnFacts(kind, missing, different, quantiles, low=float(numbers[0]), high=float(numbers[-1]))


def quantiles_of(ordered: np.ndarray, shares: Sequence[float] | np.ndarray) -> np.ndarray:
    """Quantiles (k,) of sorted numbers (n,), as :func:`numpy.quantile` has them: its own call costs more than sorting.

    Example:
        >>> quantiles_of(np.array([1.0, 2.0, 4.0]), [0.25, 1])
        array([1.5, 4. ])
    """
    places = np.asarray(shares) * (len(ordered) - 1)
    return np.asarray(np.interp(places, np.arange(len(ordered)), ordered), np.float64)
