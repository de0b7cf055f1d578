"""From a client's raw columns to numbers: what is learnt from training rows, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sklearn.preprocessing import OrdinalEncoder

from fedlit.data.moments import Moments
from fedlit.data.table import ClientTable
from fedlit.errors import DataError

__all__ = ["Categories", "Learnt", "Scaling", "inputs"]

Scaling = Literal["client", "pooled", "none"]
Categories = Literal["codes", "indicators"]
Meetings = Mapping[str, frozenset[str]]


class Learnt:
    """What the training rows of tables say about their columns; each thing is found out once.

    Args:
        tables: one per client.
        alike: column → the clients at which it means the same: the categories of all of them count, and one without
            any value is of the kind that it has at the others. At any other client a column is its own.
        pooled: column → the clients by whose numbers together it is standardised.

    Attributes:
        train: client → its training rows.
    """

    def __init__(self, tables: Sequence[ClientTable], *, alike: Meetings, pooled: Meetings) -> None:
        self.tables, self.alike, self.pooled = {table.name: table for table in tables}, alike, pooled
        self.train = {table.name: table.features.iloc[table.splits["train"]] for table in tables}
        self._filled = {name: {str(c) for c in own if own[c].notna().any()} for name, own in self.train.items()}
        self._moments: dict[tuple[frozenset[str], str], Moments | None] = {}
        self._observed: dict[tuple[frozenset[str], str], pd.Series] = {}

    def categorical(self, table: ClientTable) -> set[str]:
        """The table's columns that hold categories."""
        return {column for column in map(str, table.features) if self._is_categorical(table, column)}

    def _is_categorical(self, table: ClientTable, column: str) -> bool:
        if column not in self._filled[table.name]:
            for name in _met(self.alike, table, column):
                if column in self._filled[name]:
                    return column in self.tables[name].categorical
        return column in table.categorical

    def moments(self, table: ClientTable, column: str) -> Moments | None:
        """By which a client's column is standardised; None where nobody has a number."""
        key = _met(self.pooled, table, column), column
        if key not in self._moments:
            own = (self.train[name][column].to_numpy(np.float64, na_value=np.nan) for name in sorted(key[0]))
            parts = [Moments.of(values) for values in own]
            known = [part for part in parts if part is not None]
            self._moments[key] = known[0] if len(known) == len(parts) == 1 else Moments.pooled(known)
        return self._moments[key]

    def observed(self, table: ClientTable, column: str) -> pd.Series:
        """The categories that training rows show, each once."""
        key = _met(self.alike, table, column), column
        if key not in self._observed:
            parts = [self.train[name][column].drop_duplicates() for name in sorted(key[0])]
            parts = [part for part in parts if part.notna().any()] or parts
            self._observed[key] = pd.concat(parts).drop_duplicates()
        return self._observed[key]


def _met(meetings: Meetings, table: ClientTable, column: str) -> frozenset[str]:
    """The clients whom a client meets in a column, itself among them."""
    clients = meetings.get(column, frozenset())
    return clients if table.name in clients else frozenset({table.name})


def inputs(
    table: ClientTable, learnt: Learnt, scaling: Scaling, categories: Categories
) -> tuple[dict[str, list[str]], np.ndarray]:
    """Names of the inputs that each column became, and all rows of a table as (n, inputs) float32.

    Args:
        table: whose rows.
        learnt: from the training rows of all tables.
        scaling: see :func:`fedlit.data.encoding.encode`.
        categories: see :func:`fedlit.data.encoding.encode`.

    Raises:
        DataError: a column that is not finite in float32.
    """
    coded = learnt.categorical(table)
    blocks: dict[str, np.ndarray] = {}
    made_of: dict[str, list[str]] = {}
    for column in map(str, table.features):
        own = table.features[column]
        if column not in coded:
            made = {column: _numbers(own, learnt.moments(table, column), scaling)}
        elif categories == "codes":
            made = {column: _codes(own, learnt.observed(table, column))}
        else:
            made = _indicators(own, learnt.observed(table, column))
            if clash := sorted(made.keys() & {*blocks, *(str(other) for other in table.features if other != column)}):
                raise DataError(
                    f"client {table.name!r}: column {column!r}: expected indicators of names that no other column has, "
                    f"found {clash[0]!r} twice; rename one of the two columns"
                )
        made_of[column] = list(made)
        blocks |= made
    features = list(blocks)
    x = np.empty((len(table.features), len(features)), np.float32)
    for position, block in enumerate(blocks.values()):
        x[:, position] = block
    bad = ~np.isfinite(x).all(axis=0)
    if bad.any():
        raise DataError(
            f"client {table.name!r}: column {features[int(bad.argmax())]!r} is not finite after standardisation: "
            "expected numbers within the range of float32; rescale the column or mark the outliers as missing"
        )
    return made_of, x


def _numbers(column: pd.Series, moments: Moments | None, scaling: Scaling) -> np.ndarray:
    if column.isna().all() or moments is None:
        return np.zeros(len(column))
    values = column.to_numpy(np.float64, na_value=np.nan)
    if not np.isfinite([moments.mean, moments.variance]).all():
        return np.full(len(column), np.inf)  # what overflows is refused by the caller
    if scaling == "none":
        return np.where(np.isnan(values), moments.mean, values)
    return np.where(np.isnan(values), 0.0, moments.standardise(values))


def _codes(column: pd.Series, observed: pd.Series) -> np.ndarray:
    if column.isna().all() or observed.isna().all():
        return np.full(len(column), -1.0)
    numeric = is_numeric_dtype(observed)
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
    encoder.fit(_categories(observed, numeric))
    codes: np.ndarray = encoder.transform(_categories(column, numeric))[:, 0]
    return codes


def _indicators(column: pd.Series, observed: pd.Series) -> dict[str, np.ndarray]:
    """A column of 0 and 1 for each category, a single one (for the second) where there are two; 0.5 where missing."""
    numeric = is_numeric_dtype(observed)
    labels = sorted(pd.Series(_categories(observed, numeric)[:, 0]).dropna().tolist())
    values = _categories(column, numeric)[:, 0]
    missing = pd.isna(values)
    if len(labels) <= 2:
        unknown = missing | ~np.isin(values, labels)  # one that training rows do not have is neither of the two
        return {str(column.name): np.where(unknown, 0.5, values == labels[-1] if len(labels) == 2 else 0.0)}
    return {f"{column.name}={_text(label)}": np.where(missing, 0.5, values == label) for label in labels}


def _text(label: Any) -> str:
    """A category's name, exact: 1000001, not 1e+06."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _categories(column: pd.Series, numeric: bool) -> np.ndarray:
    """Floats where categories are numbers, else strings; NaN where missing: what OrdinalEncoder sorts without
    surprise.
    """
    if numeric:
        return column.to_numpy(np.float64, na_value=np.nan).reshape(-1, 1)
    text = column.astype(object)
    return text.where(text.isna(), text.astype(str)).where(~text.isna(), np.nan).to_numpy(object).reshape(-1, 1)
