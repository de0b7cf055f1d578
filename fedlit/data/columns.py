"""From a client's raw columns to numbers: what is learnt from training rows, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
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


class Learnt:
    """What the training rows of tables say about their columns; each thing is found out once.

    Args:
        tables: one per client.
        common: whether clients have a common input space: categories of all count, otherwise a client's own.
        pooled: whether numbers are scaled by what all clients who have the column tell of theirs.

    Attributes:
        train: client → its training rows.
    """

    def __init__(self, tables: Sequence[ClientTable], *, common: bool, pooled: bool) -> None:
        self.tables, self.common, self.is_pooled = tables, common, pooled
        self.train = {table.name: table.features.iloc[table.splits["train"]] for table in tables}
        self._filled = {name: {str(c) for c in own if own[c].notna().any()} for name, own in self.train.items()}
        self._moments: dict[tuple[str, str], Moments | None] = {}
        self._observed: dict[tuple[str, str], pd.Series] = {}

    def categorical(self, table: ClientTable) -> set[str]:
        """The table's columns that hold categories. One without any value is of the kind that it has where clients
        meet, else of the client's own.
        """
        met = self.tables if self.common else [table]
        filled = {column for other in met for column in self._filled[other.name]}
        elsewhere = {name for other in met for name in other.categorical if name in self._filled[other.name]}
        elsewhere |= {name for name in table.categorical if name not in filled}
        own = self._filled[table.name]
        return {c for c in map(str, table.features) if c in (table.categorical if c in own else elsewhere)}

    def moments(self, table: ClientTable, column: str) -> Moments | None:
        """By which a client's column is standardised; None where nobody has a number."""
        if not self.is_pooled:
            return self._own_moments(table.name, column)
        if ("", column) not in self._moments:
            parts = [self._own_moments(other.name, column) for other in self.tables if column in other.features]
            self._moments["", column] = Moments.pooled([part for part in parts if part is not None])
        return self._moments["", column]

    def _own_moments(self, client: str, column: str) -> Moments | None:
        if (client, column) not in self._moments:
            values = self.train[client][column].to_numpy(np.float64, na_value=np.nan)
            self._moments[client, column] = Moments.of(values)
        return self._moments[client, column]

    def observed(self, table: ClientTable, column: str) -> pd.Series:
        """The categories that training rows show, each once."""
        key = ("" if self.common else table.name, column)
        if key not in self._observed:
            met = self.tables if self.common else [table]
            parts = [self.train[other.name][column].drop_duplicates() for other in met if column in other.features]
            parts = [part for part in parts if part.notna().any()] or parts
            self._observed[key] = pd.concat(parts).drop_duplicates()
        return self._observed[key]


def inputs(
    table: ClientTable, learnt: Learnt, scaling: Scaling, categories: Categories
) -> tuple[list[str], np.ndarray]:
    """Names of the inputs, and all rows of a table as (n, inputs) float32.

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
    for column in map(str, table.features):
        own = table.features[column]
        if column not in coded:
            blocks[column] = _numbers(own, learnt.moments(table, column), scaling)
        elif categories == "codes":
            blocks[column] = _codes(own, learnt.observed(table, column))
        else:
            made = _indicators(own, learnt.observed(table, column))
            if clash := sorted(made.keys() & {*blocks, *(str(other) for other in table.features if other != column)}):
                raise DataError(
                    f"client {table.name!r}: column {column!r}: expected indicators of names that no other column has, "
                    f"found {clash[0]!r} twice; rename one of the two columns"
                )
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
    return features, x


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
