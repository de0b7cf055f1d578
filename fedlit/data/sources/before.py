"""Tables as versions before 0.3 read them, so that their runs can be scored and continued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.labels import class_labels
from fedlit.data.sources.base import Source, check_tables, random_split
from fedlit.data.sources.places import find_file, places_of
from fedlit.data.sources.tables import Tables
from fedlit.data.table import ClientTable
from fedlit.data.target import own_task
from fedlit.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TablesBefore", "as_before"]


def as_before(source: Source) -> Source:
    """A source as it was before 0.3: :class:`Tables`, also within another source; others are unchanged."""
    if isinstance(source, Tables):
        return TablesBefore(source)
    inner: Any = getattr(source, "source", None)
    if isinstance(inner, Source):
        source.source = as_before(inner)  # type: ignore[attr-defined]  # sources of sources have it
    return source


class TablesBefore(Source):
    """Columns of numbers are numeric, all others categorical; splits are random; nothing is left out.

    Args:
        tables: whose arguments count.
    """

    name, about = Tables.name, Tables.about

    def __init__(self, tables: Tables) -> None:
        self.tables_now = tables

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        now = self.tables_now
        return check_tables(
            [self._table(place.client, place.path, seed) for place in places_of(now.given, now.read, now.root)]
        )

    def _table(self, client: str, path: str, seed: int) -> ClientTable:
        now = self.tables_now
        frame, target = self._read(client, path), now.target_of(client)
        assert isinstance(target, str)
        left = [column for column in now.listed("drop", client) if column in frame]
        features = frame.drop(columns=[target, *left])
        listed = now.listed("categorical", client)
        kinds = {column: _kind(client, features[column]) for column in features.columns}
        numeric = {column: np.float64 for column, kind in kinds.items() if kind == "convert"}
        return ClientTable(
            name=client,
            features=features.astype(numeric),
            target=class_labels(client, frame[target], now.task),
            splits=random_split(len(frame), seed, now.test, now.validation, client),
            categorical=tuple(c for c, kind in kinds.items() if kind == "category" or c in listed),
            task=own_task(now.task, client),
        )

    def _read(self, client: str, path: str) -> pd.DataFrame:
        import pandas as pd

        from fedlit.data.sources.reading import read_csv

        file = find_file(client, path, self.tables_now.root)
        if file.suffix in (".parquet", ".pq"):
            frame = pd.read_parquet(file, engine="pyarrow").reset_index(drop=True)
        else:
            encoding = self.tables_now.read.get("encoding", "utf-8")
            frame = read_csv(file, client=client, encoding=encoding, missing=["?"])
        names = {f"Unnamed: {place}": f"unnamed_{place + 1}" for place in range(frame.shape[1])}
        return frame.rename(columns=names)


def _kind(client: str, column: pd.Series) -> str:
    """How a column was treated: ``"number"``, ``"convert"`` (a number, once it is a plain one) or ``"category"``."""
    from pandas.api import types

    if types.is_bool_dtype(column.dtype):
        return "category"
    if types.is_numeric_dtype(column.dtype):
        return "number" if isinstance(column.dtype, np.dtype) else "convert"
    if column.isna().all():
        return "convert"
    content = types.infer_dtype(column, skipna=True)
    if content == "mixed":
        raise DataError(f"client {client!r}, column {column.name!r}: holds nested values. Drop the column.")
    return "convert" if content == "decimal" else "category"
