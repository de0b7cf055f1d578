"""A client for each value of a column."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.shaping.deal import Deal, Hand, Whole
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ByColumn"]


class ByColumn(Deal):
    """A client for each value of a column, named after it: a federation as it is found. Or for each range of a number.

    Args:
        column: which has a value in every row.
        drop: whether clients get no such column; it is constant within each of them.
        cuts: numbers, rising, that part the column into ranges: ``[45, 60]`` makes clients ``below-45``, ``45-to-60``
            (45 among them) and ``from-60``.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"site": ["Bern", "St. Gallen", "Bern"]})
        >>> ByColumn("site").deal(Whole(rows, rows["site"], {"train": np.arange(3)}), None, seed=0)
        {'Bern': {'train': array([0, 2])}, 'St-Gallen': {'train': array([1])}}
    """

    def __init__(self, column: str, drop: bool = False, cuts: list[float] | None = None) -> None:
        if cuts is not None and (not cuts or list(cuts) != sorted(set(cuts))):
            raise ConfigError(f"partition: deal: cuts: expected numbers, each larger than the one before, found {cuts}")
        self.column, self.dropped, self.cuts = column, (column,) if drop else (), cuts

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
        if self.cuts is not None:
            own = _ranges(own, self.cuts)
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


def _ranges(own: pd.Series, cuts: list[float]) -> pd.Series:
    """The range of each number (n,), by its name; missing stays missing."""
    if own.dtype.kind not in "iuf":
        raise DataError(
            f"partition: deal: cuts: expected numbers in {own.name}, found {own.dropna().iloc[0]!r}; leave cuts out"
        )
    edges = [f"{cut:g}" for cut in cuts]
    middle = [f"{low}-to-{high}" for low, high in itertools.pairwise(edges)]
    names = np.array([f"below-{edges[0]}", *middle, f"from-{edges[-1]}"], dtype=object)
    place = np.searchsorted(cuts, own.to_numpy(np.float64), side="right")
    return own.astype(object).mask(own.notna(), names[place])


def _client_name(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(value)).strip("-_")
