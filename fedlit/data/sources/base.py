"""What every source is, and the checks that every table passes before it leaves one."""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile
from fedlit.data.labels import class_labels
from fedlit.data.splitting import random_split
from fedlit.data.table import SPLITS, ClientTable
from fedlit.data.target import own_task
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.names import Share

__all__ = [
    "Source",
    "check_client_name",
    "check_fractions",
    "check_names",
    "check_tables",
    "choose_clients",
    "class_labels",
    "random_split",
    "read_known",
]

_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_RESERVED = {
    "federation": "the run of the whole federation",
    "all": "the union of pooled rows",
    **dict.fromkeys(("train", "val", "test"), "the tags of a split"),
    **dict.fromkeys(("exchange", "epoch", "plan"), "a tag of the logs"),
    **dict.fromkeys(("checkpoints", "predictions"), "a folder of each run"),
}
_LONGEST_NAME = 64
_MOST_NUMBERS = 30  # that pass for classes where nobody says so


class Source(ABC):
    """The source of a federation's tables.

    A source's constructor only stores its arguments; files are looked for and read by :meth:`tables`. The docstring of
    its class says what clients, columns, targets and splits there are, the licence and what to cite.

    Attributes:
        name: how the source is called on the command line.
        about: what it holds, in one line.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    @classmethod
    def files(cls) -> tuple[RemoteFile, ...]:
        """All files that the source knows, whether or not this instance reads them; empty if it needs none."""
        return ()

    @abstractmethod
    def tables(self, seed: int) -> list[ClientTable]:
        """Read every client's table.

        Args:
            seed: the run's seed. Sources with random splits draw them from it; sources with given splits ignore it.

        Returns:
            One table a client, in the order the clients were asked for, as :func:`check_tables` lets them pass.
        """

    def table(self, client: str, seed: int) -> ClientTable:
        """Return one client's table. A source that can do so reads no other's.

        Raises:
            ConfigError: there is no such client.
        """
        tables = {table.name: table for table in self.tables(seed)}
        if client not in tables:
            raise ConfigError(
                f"{self.name}: expected a client among {', '.join(tables)}, found {client!r}."
                + did_you_mean(client, tables)
            )
        return tables[client]

    def sizes(self) -> dict[str, int] | None:
        """Client → the size of its table, by which clients are dealt to the processes of a cluster; None if it cannot
        be said without reading all tables. Where it can, :meth:`some` reads no others.
        """
        return None

    def some(self, clients: Sequence[str], seed: int, share: Share | None = None) -> list[ClientTable]:
        """Some clients' tables; others read the rest.

        Args:
            clients: their names.
            seed: see :meth:`tables`.
            share: tells the others facts, where something is to be refused that fits no client at all; None where
                nobody else reads.
        """
        return [self.table(client, seed) for client in clients]


def check_client_name(name: object) -> None:
    """Refuse a client name that could not be a folder's name, or that fedlit uses itself.

    Raises:
        ConfigError: if the name is not made of letters, digits, ``_`` and ``-``, or is one that logs need for
            themselves.
    """
    if not isinstance(name, str) or not _CLIENT_NAME.fullmatch(name):
        raise ConfigError(
            f"client {name!r}: expected a name of the letters A-Z and a-z, digits, '_' and '-' that starts with a "
            f"letter or a digit, because it becomes a folder's name. Rename the client."
        )
    if len(name) > _LONGEST_NAME:
        raise ConfigError(
            f"client {name!r}: expected at most {_LONGEST_NAME} letters, found {len(name)}. Rename the client."
        )
    if name.casefold() in _RESERVED:
        raise ConfigError(f"client {name!r}: this name is taken by {_RESERVED[name.casefold()]}. Rename the client.")


def choose_clients(wanted: Sequence[str] | None, known: Sequence[str], source: str) -> tuple[str, ...]:
    """The clients to read: those wanted, or all that are known if None.

    Raises:
        ConfigError: if none is wanted, one is unknown, or one is named twice.
    """
    if isinstance(wanted, str):
        raise ConfigError(f"{source}: clients: expected a list of names, found the text {wanted!r}. Write [{wanted}].")
    chosen = tuple(known if wanted is None else wanted)
    if not chosen:
        raise ConfigError(f"{source}: clients: expected at least one of {', '.join(known)}; found an empty list.")
    for name, times in Counter(chosen).items():
        if name not in known:
            raise ConfigError(
                f"{source}: clients: expected names among {', '.join(known)}; found {name!r}."
                f"{did_you_mean(str(name), known)}"
            )
        if times > 1:
            raise ConfigError(f"{source}: clients: {name!r} is named {times} times. Name each client once.")
    return chosen


def read_known(path: Path, columns: Sequence[str], header: bool, **how: Any) -> pd.DataFrame:
    """Read a published file of comma-separated values whose columns are known.

    Args:
        path: the file, packed or not.
        columns: their names; those to read if the file has a header.
        header: whether the first line names the columns.
        how: further arguments of ``pandas.read_csv``.

    Raises:
        DataError: it is damaged, or another file.
    """
    import pandas as pd

    names = {"usecols": list(columns)} if header else {"header": None, "names": list(columns)}
    try:
        frame: pd.DataFrame = pd.read_csv(path, **names, **how)
        if not isinstance(frame.index, pd.RangeIndex):  # which pandas makes of fields without a name
            raise ValueError(f"more than {len(columns)} columns")
        return frame
    except Exception as error:  # of damaged files readers raise classes of many modules
        raise DataError(f"file {path}: expected the published file, found: {error}. Fetch it again.") from error


def check_fractions(test: float, validation: float) -> None:
    """Refuse shares of rows that leave a split empty.

    Raises:
        ConfigError: unless both lie strictly between 0 and 1.
    """
    for key, value in (("test", test), ("validation", validation)):
        if not 0 < value < 1:
            raise ConfigError(f"{key}: expected a share of the rows above 0 and below 1, found {value}.")


def check_names(names: Sequence[str]) -> list[str]:
    """Let names pass that are each one client's.

    Raises:
        ConfigError: two clients have one name.
    """
    # Compared without case: on some file systems a and A are one folder.
    for name, times in Counter(map(str.casefold, names)).items():
        if times > 1:
            raise ConfigError(f"client {name!r}: {times} clients have this name. Give each client a name of its own.")
    return list(names)


def check_tables(tables: Sequence[ClientTable]) -> list[ClientTable]:
    """Let tables pass that a run can be built on.

    A constant column, a column without any value and a training split of one class pass: encoders, metrics and the
    plan have a stated treatment for each.

    Raises:
        ConfigError: for a client name that cannot be used, or two clients of one name.
        DataError: for a table that cannot be used. The message names the client and the column or the split.
    """
    if not tables:
        raise DataError("expected at least one client, found none. Name the clients to read.")
    for table in tables:
        check_client_name(table.name)
    check_names([table.name for table in tables])
    for table in tables:
        problems = itertools.chain(_of_columns(table), _of_target(table), _of_splits(table))
        if problem := next(problems, None):
            raise DataError(f"client {table.name!r}{problem}")
    return list(tables)


def _of_columns(table: ClientTable) -> Iterator[str]:
    features, names = table.features, list(table.features.columns)
    if not names:
        yield ": expected at least one feature column, found none."
    for column, times in Counter(names).items():
        if not isinstance(column, str):
            yield f": expected text as names of columns, found {column!r}. Rename the columns."
        if times > 1:
            yield f": {times} columns are called {column!r}. Rename or drop one."
    for column in table.categorical:
        if column not in names:
            yield f": categorical names the column {column!r}, which is no feature.{did_you_mean(column, names)}"
    if not features.index.equals(table.target.index):
        yield (
            f": expected one label for each row, in the same order; found {len(features)} rows of features and "
            f"{len(table.target)} labels, or other row numbers."
        )
    numbers = features.loc[:, [name not in table.categorical for name in names]]
    for column, dtype in numbers.dtypes.items():
        if dtype.kind not in "iuf":
            yield (
                f", column {column!r}: expected numbers, found values of type {dtype}. Correct the file, or list the "
                "column as categorical."
            )
    infinite = np.isinf(numbers.to_numpy(np.float64)).sum(axis=0)
    if infinite.any():
        yield (
            f", column {numbers.columns[infinite.argmax()]!r}: expected finite numbers, found {infinite.max()} infinite "
            "values. Mark them as missing (leave the cell empty), or drop the rows or the column."
        )


def _of_target(table: ClientTable) -> Iterator[str]:
    target = table.target
    name = (own_task(table.task, table.name) or {"name": "classification"})["name"]
    if isinstance(target.name, tuple) and name != "multi_label":
        yield (
            f", target {', '.join(target.name)}: expected one column for task: {name}, found a list of "
            f"{len(target.name)}. Name one column, or say task: multi_label, which predicts each by yes or no."
        )
    if missing := int(target.isna().sum()):
        yield (
            f", target {target.name!r}: expected a label in every row, found {missing} rows without one. Fill them in "
            "or drop those rows."
        )
    if table.task is None and target.dtype.kind in "iuf" and (values := target.nunique()) > _MOST_NUMBERS:
        yield (
            f", target {target.name!r}: expected labels, or to be told what is meant by {values:,} different numbers "
            f"such as {target.iloc[0]}. Say task: regression (predict a number), counts (how often something happens) "
            "or classification (each number is a class) in the source's init_args."
        )


def _of_splits(table: ClientTable) -> Iterator[str]:
    if set(table.splits) != set(SPLITS):
        yield f": expected the splits {list(SPLITS)}, found {sorted(table.splits)}."
    uses = np.zeros(len(table.features), dtype=np.int64)
    for split in SPLITS:
        rows = table.splits[split]
        if len(rows) == 0:
            yield f": expected rows in every split, found none in {split}. Give it rows, or leave the client out."
        if rows.min() < 0 or rows.max() >= len(uses):
            yield f": the {split} split names rows that the table does not have."
        uses += np.bincount(rows, minlength=len(uses))
    if shared := int((uses > 1).sum()):
        yield f": expected each row in one split, found {shared} rows in more than one."
