"""A client for each value of a column."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from fedlit.data.shaping.deal import Deal, Hand, Whole
from fedlit.errors import ConfigError, DataError, did_you_mean

__all__ = ["ByColumn"]


class ByColumn(Deal):
    """A client for each value of a column, named after it: a federation as it is found.

    Args:
        column: which has a value in every row.
        drop: whether clients get no such column; it is constant within each of them.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"site": ["Bern", "St. Gallen", "Bern"]})
        >>> ByColumn("site").deal(Whole(rows, rows["site"], {"train": np.arange(3)}), None, seed=0)
        {'Bern': {'train': array([0, 2])}, 'St-Gallen': {'train': array([1])}}
    """

    def __init__(self, column: str, drop: bool = False) -> None:
        self.column, self.dropped = column, (column,) if drop else ()

    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """See the class; nothing is drawn."""
        if self.column not in whole.features:
            columns = list(map(str, whole.features))
            raise ConfigError(
                f"partition: deal: column: expected one of {', '.join(columns)}, found {self.column!r}."
                + did_you_mean(self.column, columns)
            )
        splits = {split: np.sort(rows) for split, rows in whole.splits.items()}
        own = whole.features[self.column]
        values = own.iloc[np.concatenate(list(splits.values()))]
        if missing := int(values.isna().sum()):
            raise DataError(
                f"partition: deal: expected a value of {self.column} in every row, found {missing} rows without one; "
                "deal by another column"
            )
        names = {value: _client_name(value) for value in sorted(values.unique().tolist())}
        if clients is not None and clients != len(names):
            raise ConfigError(
                f"partition: clients: expected {len(names)}, the number of values of {self.column}, found {clients}; "
                "leave it out"
            )
        for name, times in Counter(names.values()).items():
            if times > 1 or not name:
                alike = [value for value in names if names[value] == name]
                raise DataError(
                    f"partition: deal: expected values of {self.column} that make different names of clients, found "
                    f"{', '.join(map(repr, alike))}, which become {name!r}; give them other names in the source"
                )
        return {
            name: {split: rows[(own.iloc[rows] == value).to_numpy()] for split, rows in splits.items()}
            for value, name in names.items()
        }


def _client_name(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(value)).strip("-_")
