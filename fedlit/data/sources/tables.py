"""One's own tables: a CSV or Parquet file for each client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedlit.data.files import search_roots
from fedlit.data.sources.base import (
    Source,
    check_client_name,
    check_fractions,
    check_tables,
    class_labels,
    random_split,
)
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.data.target import check_task, own_task
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Tables"]


class Tables(Source):
    """A CSV or Parquet file for each client.

    Columns of numbers are numeric, all others (text, true or false, dates) categorical. An empty cell, ``?``, ``NA``
    and the like are missing. A column without any value stays, as a number that is missing everywhere. A pandas index
    inside a Parquet file is not read. Splits are random, drawn from the run's seed as
    :func:`~fedlit.data.sources.base.random_split` says.

    Args:
        files: each client's name and its file: ``.csv``, ``.csv.gz`` (any other ending is read as CSV too) or
            ``.parquet``. A relative path is looked up in the working directory, then in the data folders.
        target: the column to predict; one name for all clients, or one for each. A list of columns of two values each
            is ``task: multi_label``.
        categorical: columns of numbers that hold categories; one list for all clients (each uses the ones it has), or
            one for each.
        drop: columns to leave out; one list for all clients (each drops the ones it has), or one for each.
        root: a folder in which relative paths are looked up after the working directory, before the data folders.
        encoding: how the text of the CSV files is encoded.
        test: the share of a table's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        task: what is predicted: ``classification``, ``regression``, ``multi_label``, ``counts`` or ``{name:
            regression, loss: huber, targets: pooled}``; for all clients, or by client's name or pattern. If None,
            classification, or multi_label where the target is a list.

    Example::

        source = Tables(
            files={"north": "north.csv", "south": "south.parquet"},
            target={"north": "readmitted", "south": "outcome"},
            categorical=["ward"],
            drop=["patient_id"],
        )
        tables = source.tables(seed=8)
    """

    name: ClassVar[str] = "tables"
    about: ClassVar[str] = "your own tables: a CSV or Parquet file for each client"
    layout: ClassVar[str] = (
        "Clients: one for each file you name.\n"
        "Columns: numbers are numeric, all others categorical; list numbers that are codes under categorical.\n"
        "Target: the column you name.\n"
        "Splits: random by the run's seed, 20 % test, then 10 % of the rest validation."
    )

    def __init__(
        self,
        files: dict[str, str | Path],
        target: str | list[str] | dict[str, str | list[str]],
        categorical: list[str] | dict[str, list[str]] | None = None,
        drop: list[str] | dict[str, list[str]] | None = None,
        root: str | None = None,
        encoding: str = "utf-8",
        test: float = 0.2,
        validation: float = 0.1,
        task: TaskSettings | None = None,
    ) -> None:
        if not files:
            raise ConfigError("tables: files: expected a file for at least one client, found none.")
        for client in files:
            check_client_name(client)
        for key, value in (("target", target), ("categorical", categorical), ("drop", drop)):
            _check_clients(key, value, files)
        if isinstance(target, dict) and (without := [client for client in files if client not in target]):
            raise ConfigError(f"tables: target: expected a column for each client, found none for {without[0]!r}.")
        check_fractions(test, validation)
        check_task(task, files)
        self.clients = dict(files)
        self.task = task
        self.target = {client: target[client] if isinstance(target, dict) else target for client in files}
        self.categorical = categorical
        self.drop = drop
        self.root = root
        self.encoding = encoding
        self.test = test
        self.validation = validation

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        frames = {client: self._read(client, self._path(client, path)) for client, path in self.clients.items()}
        drop = _columns_of("drop", self.drop, frames)
        categorical = _columns_of("categorical", self.categorical, frames)
        tables = []
        for client, frame in frames.items():
            for target in _listed(self.target[client]):
                if target not in (*drop[client], *categorical[client]):
                    continue
                key = "drop" if target in drop[client] else "categorical"
                raise ConfigError(f"tables: {key}: names {target!r}, which is the target of {client!r}. Take it out.")
            if both := set(drop[client]) & set(categorical[client]):
                raise ConfigError(f"tables: {sorted(both)[0]!r} is under drop and under categorical. Keep one.")
            tables.append(self._table(client, frame.drop(columns=drop[client]), categorical[client], seed))
        return check_tables(tables)

    def table(self, client: str, seed: int) -> ClientTable:
        """Read one client's file alone."""
        if client not in self.clients:
            return super().table(client, seed)  # says which there are
        frame = self._read(client, self._path(client, self.clients[client]))
        own = Tables({client: self.clients[client]}, self.target[client], test=self.test, validation=self.validation)
        own.task = self.task
        known = {
            key: [
                column
                for column in (value.get(client, []) if isinstance(value, dict) else value or [])
                if column in frame
            ]
            for key, value in (("drop", self.drop), ("categorical", self.categorical))
        }
        return check_tables([own._table(client, frame.drop(columns=known["drop"]), known["categorical"], seed)])[0]

    def _table(self, client: str, frame: pd.DataFrame, categorical: list[str], seed: int) -> ClientTable:
        features = frame.drop(columns=self.target[client])
        kinds = {column: _kind(client, features[column]) for column in features.columns}
        # Nullable and decimal numbers become plain ones; then all that comes after knows one way of being missing.
        numeric = {column: np.float64 for column, kind in kinds.items() if kind == "convert"}
        return ClientTable(
            name=client,
            features=features.astype(numeric),
            target=class_labels(client, frame[self.target[client]], self.task),
            splits=random_split(len(frame), seed, self.test, self.validation, client),
            categorical=tuple(c for c, kind in kinds.items() if kind == "category" or c in categorical),
            task=own_task(self.task, client),
        )

    def _path(self, client: str, path: str | Path) -> Path:
        given = Path(path).expanduser()
        folders = [Path.cwd(), *search_roots(self.root)]
        for folder in folders:
            if (folder / given).is_file():  # an absolute path replaces the folder
                return folder / given
        tried = "" if given.is_absolute() else "\n  ".join([" Looked in:", *map(str, folders)])
        raise DataError(f"client {client!r}: expected a file {given}, found none. Correct the path.{tried}")

    def _read(self, client: str, path: Path) -> pd.DataFrame:
        where = f"client {client!r}, file {path}"
        from fedlit.data.sources.reading import read_csv, require_columns

        if path.suffix in (".parquet", ".pq"):
            frame = _read_parquet(where, path)
        else:
            frame = read_csv(path, client=client, encoding=self.encoding, missing=["?"])
        dropped = self.drop.get(client, []) if isinstance(self.drop, dict) else self.drop or []
        for column in frame.columns:
            if str(column).startswith("Unnamed: ") and column not in dropped:
                raise DataError(
                    f"{where}: expected a name above each column, found none above column "
                    f"{frame.columns.get_loc(column)} (counted from 0), often a saved row number. Name it, or leave it "
                    f"out with drop: [{str(column)!r}]."
                )
        require_columns(frame, _listed(self.target[client]), where)
        return frame


def _listed(target: str | list[str]) -> list[str]:
    """The columns of a target: several are several labels a row."""
    return [target] if isinstance(target, str) else target


def _check_clients(key: str, value: object, files: Mapping[str, object]) -> None:
    for client in value if isinstance(value, dict) else ():
        if client not in files:
            raise ConfigError(
                f"tables: {key}: expected clients among {', '.join(files)}; found {client!r}."
                f"{did_you_mean(str(client), files)}"
            )


def _columns_of(
    key: str, wanted: list[str] | dict[str, list[str]] | None, frames: Mapping[str, pd.DataFrame]
) -> dict[str, list[str]]:
    """Which of the wanted columns each client has; a column that fits nowhere is an error."""
    if not isinstance(wanted, dict):
        everywhere = {str(column) for frame in frames.values() for column in frame.columns}
        for column in wanted or []:
            if column not in everywhere:
                raise ConfigError(
                    f"tables: {key}: no client has a column {column!r}.{did_you_mean(column, everywhere)}"
                )
        return {client: [c for c in wanted or [] if c in frame.columns] for client, frame in frames.items()}
    for client, columns in wanted.items():
        for column in columns:
            if column not in frames[client].columns:
                known = map(str, frames[client].columns)
                raise ConfigError(
                    f"tables: {key}: client {client!r} has no column {column!r}.{did_you_mean(column, known)}"
                )
    return {client: wanted.get(client, []) for client in frames}


def _kind(client: str, column: pd.Series) -> str:
    """How to treat a column: ``"number"``, ``"convert"`` (a number, once it is a plain one) or ``"category"``."""
    from pandas.api import types

    if types.is_bool_dtype(column.dtype):
        return "category"
    if types.is_numeric_dtype(column.dtype):
        return "number" if isinstance(column.dtype, np.dtype) else "convert"
    if column.isna().all():
        return "convert"
    content = types.infer_dtype(column, skipna=True)
    if content == "mixed":
        raise DataError(
            f"client {client!r}, column {column.name!r}: expected numbers, text, dates or true and false; found nested "
            f"values such as {column.dropna().iloc[0]!r}. Drop the column."
        )
    return "convert" if content == "decimal" else "category"


def _read_parquet(where: str, path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        frame = pd.read_parquet(path, engine="pyarrow").reset_index(drop=True)
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these classes
        raise DataError(f"{where}: is no readable Parquet file: {error}. Write the file again.") from error
    if frame.empty:
        raise DataError(f"{where}: expected rows, found none. Write the file again.")
    return frame
