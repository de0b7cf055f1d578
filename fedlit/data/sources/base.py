"""The base class of sources, and the checks that every table passes before it leaves one.

This module does without ``from __future__ import annotations``, because jsonargparse reads the
annotations in the module of a user's own source, which need not import their names.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

import numpy as np

from fedlit.data.files import RemoteFile
from fedlit.data.table import SPLITS, ClientTable, check_client
from fedlit.data.targets import outcome_for, task_name
from fedlit.errors import DataError, Told, expect, told_as
from fedlit.names import Share, names_a_folder, plain
from fedlit.outcomes import LABELS_TASK
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

RESERVED = (
    "federation",
    "all",
    "train",
    "val",
    "test",
    "exchange",
    "epoch",
    "plan",
    "checkpoints",
    "predictions",
)
"""Names that no client can have, in lower case: those of pooled rows, of tags in logs and of a
run's folders."""
_LONGEST_NAME = 64
_MOST_NUMBERS = 30
"""The largest number of different numbers that are taken for classes if no task is named."""

_CHECKED = WeakSet[ClientTable]()
"""The tables that have been checked, which are frozen. Those of a source are not checked again before
they are encoded."""


class Source(ABC):
    """The source of a federation's tables.

    Constructing a source only stores its arguments; :meth:`tables` finds and reads the files. The
    docstring of its class describes clients, columns, targets, splits and licence, and what to
    cite; its first sentence is what ``fedlit data`` lists.

    Attributes:
        name: the source's name in messages and on the command line.
        known: the names of all its clients, where these are fixed; ``clients`` then chooses among
            them.
        known_files: all published files that the source can read, whether or not an instance reads
            them.
    """

    name: ClassVar[str] = "source"
    known: ClassVar[tuple[str, ...]] = ()
    known_files: ClassVar[tuple[RemoteFile, ...]] = ()

    def __post_init__(self) -> None:
        """Check the arguments that several sources have: the shares of rows, and the clients.

        Raises:
            ConfigError: A share is outside (0, 1), or a client does not exist.
        """
        check_fractions(getattr(self, "test", 0.5), getattr(self, "validation", 0.5))
        source: Any = self  # A source with known clients has the attribute clients.
        for key, value in vars(self).items():
            setattr(self, key, plain(value))
        if self.known:
            source.clients = choose_clients(source.clients, self.known, self.name)

    @abstractmethod
    def tables(self, seed: int) -> list[ClientTable]:
        """Read every client's table.

        Args:
            seed: the run's seed. Sources draw random splits from it, and ignore it where splits are
                given.

        Returns:
            One table for each client, in the order in which clients were asked for, checked by
            :func:`check_tables`.
        """

    def some(
        self, clients: Sequence[str], seed: int, share: Share | None = None
    ) -> list[ClientTable]:
        """Return the tables of some clients. A source that can do so reads no others.

        Args:
            clients: the names of the clients.
            seed: see :meth:`tables`.
            share: sends facts to the other processes that read the rest; None if there are none.

        Raises:
            ConfigError: There is no such client.
        """
        tables = {table.name: table for table in self.tables(seed)}
        return [tables[client] for client in choose_clients(clients, list(tables), self.name)]

    def sizes(self) -> dict[str, int] | None:
        """Return the size of each client's table, by which clients are distributed over the
        processes of a cluster; None if sizes are not known before all tables are read. If they are,
        :meth:`some` reads no other tables.
        """
        return None


def check_client_name(name: object) -> None:
    """Refuse a client name that cannot be a folder name, or that fedlit uses itself.

    Raises:
        ConfigError: The name contains other characters than letters, digits, ``_`` and ``-``, or
            logs use it.
    """
    is_valid = names_a_folder(name, _LONGEST_NAME)
    expected = (
        f"a name of at most {_LONGEST_NAME} letters A-Z and a-z, digits, '_' and '-', not '-' or "
        "'_' first, and no device such as CON"
    )
    advice = "it becomes a folder's name: rename the client"
    expect(is_valid, f"client {name!r}", expected, name, advice)
    is_free = str(name).casefold() not in RESERVED
    key = f"client {name!r}: this name is taken by fedlit itself"
    expect(is_free, key, "another", name, "rename the client")


def client_name(text: object) -> str:
    """Turn any text into a valid client name.

    Example:
        >>> client_name("São Paulo (2024)"), client_name(3.0)
        ('Sao_Paulo_2024', '3')
    """
    import unicodedata

    if isinstance(text, float) and text.is_integer():
        text = int(text)
    plain = unicodedata.normalize("NFKD", str(text)).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_-")
    return name[:_LONGEST_NAME] or "client"


def owners_of(values: "pd.Series") -> "pd.Series":
    """Return the client of each row, given the values of the column that names it.

    Values that differ in blanks or in case alone are one client, called as most rows call it.

    Args:
        values: (n,), without gaps.

    Example:
        >>> import pandas as pd
        >>> owners_of(pd.Series(["north ", "NORTH", "north", "St. Gallen"])).tolist()
        ['north', 'north', 'north', 'St_Gallen']
    """
    owners = values.map({value: client_name(value) for value in values.unique()})
    usual = dict[str, str]()
    for name in owners.value_counts().index:
        usual.setdefault(name.casefold(), name)
    return owners.map({name: usual[name.casefold()] for name in owners.unique()})


def choose_clients(
    chosen_names: Sequence[str] | None, all_names: Sequence[str], source: str
) -> tuple[str, ...]:
    """Return the clients to read: those chosen, or all if None.

    Raises:
        ConfigError: No client is chosen, one is unknown, or one is named twice.
    """
    key = f"{source}: clients"
    chosen = tuple(all_names if chosen_names is None else chosen_names)
    are_distinct = not isinstance(chosen_names, str) and 0 < len(chosen) == len({*chosen})
    expected = f"a list of names among {', '.join(all_names)}, each once"
    expect(are_distinct, key, expected, chosen_names)
    for client in chosen:
        check_client(key, client, all_names)
    return chosen


def read_known(path: Path, columns: Sequence[str], header: bool, **how: Any) -> "pd.DataFrame":
    """Read a published CSV file whose columns are known.

    Args:
        path: the file, compressed or not.
        columns: the column names; those to read if the file has a header.
        header: whether the first line names the columns.
        how: further arguments of ``pandas.read_csv``.

    Raises:
        DataError: The file is damaged, or is not the expected one.
    """
    import pandas as pd

    names = {"usecols": list(columns)} if header else {"header": None, "names": list(columns)}
    with published(path):
        frame: pd.DataFrame = pd.read_csv(path, **names, **how)
        # pandas makes an index of fields without a name.
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError(f"more than {len(columns)} columns")
    return frame


def published(path: Path, expected: str = "the published file") -> AbstractContextManager[None]:
    """Turn whatever a reader raises for a damaged file into a :class:`DataError`.

    Args:
        path: The file, for messages.
        expected: The expected content of the file.
    """
    return told_as(
        lambda error: DataError(
            f"file {path}: expected {expected}, found: {error}. Get the original again."
        )
    )


def check_fractions(test: float, validation: float) -> None:
    """Refuse shares of rows that leave a split empty.

    Raises:
        ConfigError: A share is not strictly between 0 and 1.
    """
    for key, value in (("test", test), ("validation", validation)):
        expect(0 < value < 1, key, "a share of the rows above 0 and below 1", value)


def check_names(names: Sequence[str]) -> list[str]:
    """Return the names if no two clients have the same one.

    Raises:
        ConfigError: Two clients have the same name.
    """
    # Compared without case: on some file systems a and A are one folder.
    for name, times in Counter(map(str.casefold, names)).items():
        key = f"client {name!r}: {times} clients have this name"
        expect(times == 1, key, "one", times, "rename one")
    return list(names)


def check_tables(tables: Sequence[ClientTable]) -> list[ClientTable]:
    """Return the tables if a run can be built on them.

    A constant column, a column without values and a training split of a single class are allowed:
    encoders, metrics and the plan define what happens to each.

    Raises:
        ConfigError: A client name is not allowed, or two clients have the same name.
        DataError: A table cannot be used. The message names the client, and the column or split.
    """
    if not tables:
        raise DataError(
            "clients: expected at least one client, found none; name the clients to read"
        )
    check_names([table.name for table in tables])
    for table in tables:
        if table in _CHECKED:
            continue
        check_client_name(table.name)
        for check in (_check_columns, _check_numbers, _check_target, _check_splits):
            check(table, partial(expect, kind=DataError), f"client {table.name!r}")
        _CHECKED.add(table)
    return list(tables)


def _check_columns(table: ClientTable, expect: Callable[..., None], head: str) -> None:
    features = table.features
    names = list(table.features.columns)
    problem = "none"
    if table.schema is not None and table.schema.left_out:
        reasons = [f"{name} ({why})" for name, why in table.schema.left_out.items()]
        problem += f"; left out: {shorten(reasons)}"
    advice = "types keeps a column that is needed"
    expect(bool(names), head, "a column beside the target", Told(problem), advice)
    are_texts = len(names) == len({*names}) and all(isinstance(column, str) for column in names)
    expect(are_texts, head, "columns whose names are text, each once", names[:9])
    for column in table.categorical:
        expect(column in names, f"{head}: categorical", "columns", column, known=names)
    problem = (
        f"{len(features)} rows of features and {len(table.target)} labels, or other row numbers"
    )
    are_aligned = features.index.equals(table.target.index)
    expect(are_aligned, head, "one label for each row, in the same order", Told(problem))


def _check_numbers(table: ClientTable, expect: Callable[..., None], head: str) -> None:
    key = f"{head}: columns"
    coded = {*table.categorical}
    names = [name for name in table.features if name not in coded]
    numbers = table.features
    if coded:
        numbers = numbers[names]
    wrong_types = {
        name: str(dtype)
        for name, dtype in zip(names, numbers.dtypes.tolist(), strict=True)
        if dtype.kind not in "iuf"
    }
    advice = "correct the file, or list them as categorical"
    expect(not wrong_types, key, "numbers", wrong_types, advice)
    counts = np.isinf(numbers.to_numpy(np.float64, na_value=np.nan)).sum(axis=0)
    infinite = {name: count for name, count in zip(names, counts.tolist(), strict=True) if count}
    problem = Told(f"infinite ones: {infinite}")
    expect(not infinite, key, "finite numbers", problem, "empty these cells")


def _check_target(table: ClientTable, expect: Callable[..., None], head: str) -> None:
    target = table.target
    columns = target.name if isinstance(target.name, tuple) else ()
    outcome = outcome_for(table.task, table.name)
    is_allowed = not columns or outcome.several_columns
    expected = f"one column for task: {task_name(table)}"
    advice = f"name one, or say task: {LABELS_TASK}"
    expect(is_allowed, f"{head}: target", expected, columns, advice)
    name = ", ".join(columns) if columns else target.name
    head = f"{head}, target {name!r}"
    missing = int(target.isna().sum())
    if columns and not outcome.partial:
        missing = sum(row is None or None in row for row in target)
    problem = Told(f"{counted(missing, 'row')} without one")
    expect(not missing, head, "a label in every row", problem, "fill them in, or drop those rows")
    if table.task is None and target.dtype.kind in "iuf":
        different = target.nunique()
        if different > _MOST_NUMBERS:
            raise DataError(
                f"{head}: expected classes, or a task, found {different:,} different numbers such "
                f"as {target.iloc[0]}; say task: regression (predict a number), counts, or "
                "classification (each number is a class)"
            )


def _check_splits(table: ClientTable, expect: Callable[..., None], head: str) -> None:
    expect({*table.splits} == {*SPLITS}, head, f"the splits {list(SPLITS)}", sorted(table.splits))
    for split, rows in table.splits.items():
        advice = "give it rows, or leave the client out"
        expect(len(rows) > 0, head, f"rows in {split}", Told("none"), advice)
    used = np.concatenate(list(table.splits.values()))
    are_inside = used.min() >= 0 and used.max() < len(table.features)
    are_distinct = len(np.unique(used)) == len(used)
    expected = "rows of the table, each in one split"
    expect(are_inside and are_distinct, head, expected, Told("others"))
