"""A client's table as a source returns it: columns, target and splits."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from fedlit.errors import DataError, Told, expect
from fedlit.outcomes import LABELS_TASK
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.column import Kind
    from fedlit.data.schema.schema import Schema
    from fedlit.data.training import Numbers

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_BLOCK = 65_536
"""Number of rows that are hashed at a time."""


TaskSettings = str | dict[str, Any]
"""A task's name, or ``{name: …}`` with its choices; for all clients, or by client's name or
pattern."""


@dataclass(frozen=True, eq=False)
class ClientTable:
    """The rows of one client, before any encoding.

    Attributes:
        name: the client's name.
        features: one column per feature, one row per row of the source; the index holds the row's
            number in the source file (0 is its first data row).
        target: the label of each row, in the source's own values, with the same index as
            ``features``. A frame with a column for each of several labels becomes what
            :func:`several` makes of it, and the task ``multi_label`` where none is said.
        splits: for ``"train"``, ``"validation"`` and ``"test"`` the *positions* (int64, shape
            (n_split,)) of its rows in ``features``.
        categorical: the names of the columns that hold categories; all others hold numbers.
        positive: the label that counts as positive where there are two; the larger one if None.
        concept: the concept that the labels follow, where an experiment knows it; used only for
            evaluation.
        task: what is predicted of the rows (``regression``), or ``{name: …}`` with the task's
            choices; classification if None.
        schema: how raw rows became these features, so that new rows can be read in the same way;
            None if the source returns typed columns.
        notes: notes on how the table was read and split.
        groups: (n,) which rows belong to one person or thing, and so in one split and one fold;
            None if that is not known.
        weights: (n,) float64, how much each row counts; None if all count alike.
        classes: the labels that are predicted, where its training rows have one of them only;
            otherwise empty.
        keys: identifier that is left out → a uint64 for each of its different values, ascending, by
            which clients can be compared that one process sees.
        unit: the unit beside the numbers of the target; "" if there is none.
    """

    name: str
    features: pd.DataFrame
    target: pd.Series
    splits: Mapping[Split, np.ndarray]
    categorical: tuple[str, ...] = ()
    positive: Any = None
    concept: str | None = None
    task: TaskSettings | None = None
    schema: Schema | None = None
    notes: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    classes: tuple[Any, ...] = ()
    weights: np.ndarray | None = None
    keys: Mapping[str, np.ndarray] = field(default_factory=dict)
    unit: str = ""

    def __post_init__(self) -> None:
        if self.target.ndim > 1:
            labels = cast("pd.DataFrame", self.target)
            target = several(labels, f"client {self.name!r}, target")
            object.__setattr__(self, "target", target)
        if isinstance(self.target.name, tuple) and self.task is None:
            object.__setattr__(self, "task", LABELS_TASK)

    @property
    def target_title(self) -> str:
        """The name of the target, or the names of its columns."""
        name: Any = self.target.name
        return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)

    @cached_property
    def kinds(self) -> Mapping[str, Kind | None]:
        """The kind of each column in training rows; None for a column without a value there."""
        from fedlit.data.schema.column import kind_of

        coded = {*self.categorical}
        rows = self.splits["train"]
        kinds: dict[str, Kind | None] = {}
        for name in map(str, self.features):
            if name in self.numbers:
                kinds[name] = None if self.numbers[name].moments is None else "numeric"
            else:
                kinds[name] = kind_of(self.features[name].iloc[rows], name in coded)
        return kinds

    @cached_property
    def numbers(self) -> Mapping[str, Numbers]:
        """What the training rows say about each column of numbers."""
        (numbers,) = _numbers_of([self])
        return numbers

    @cached_property
    def training_target(self) -> pd.Series:
        """The target of the training rows."""
        return self.target.iloc[self.splits["train"]]

    def only(self, columns: Sequence[str]) -> ClientTable:
        """Return the table with only some of its columns. New rows then need no others."""
        chosen = {*columns}
        categorical = tuple(name for name in self.categorical if name in chosen)
        schema = self.schema and self.schema.only(columns)
        return replace(
            self, features=self.features[[*columns]], categorical=categorical, schema=schema
        )


def describe_numbers(tables: Sequence[ClientTable]) -> None:
    """Compute :attr:`ClientTable.numbers` of all tables at once."""
    for table, numbers in zip(tables, _numbers_of(tables), strict=True):
        vars(table)["numbers"] = numbers  # the cached property


def _numbers_of(tables: Sequence[ClientTable]) -> list[dict[str, Numbers]]:
    from fedlit.data.training import numbers_of_tables

    frames = [table.features for table in tables]
    rows = [table.splits["train"] for table in tables]
    return numbers_of_tables(frames, rows, [table.categorical for table in tables])


def check_patterns(key: str, patterns: Iterable[str], clients: Iterable[str]) -> None:
    """Refuse names or patterns that match no client.

    Raises:
        ConfigError: naming the key.
    """
    names = list(clients)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            check_client(key, pattern, names)


def check_client(key: str, name: str, clients: Sequence[str]) -> None:
    """Refuse a name that no client has.

    Raises:
        ConfigError: naming the key.
    """
    expect(name in clients, key, f"one of the clients {shorten(clients)}", name, known=clients)


def first_match(settings: Mapping[str, Any], client: str) -> Any:
    """Return the value of the first name or pattern that matches a client, or None."""
    for pattern, value in settings.items():
        if fnmatch.fnmatchcase(client, pattern):
            return value
    return None


def several(columns: pd.DataFrame, where: str = "target", *, partial: bool = True) -> pd.Series:
    """Combine several columns into one target, such as several labels, or a time and an event. The
    target of a row is the tuple of its cells, and the target's name is the tuple of the columns'
    names.

    A cell is a plain Python value. One that is missing is None in the tuple. A row without a label
    is None itself: one that has no value at all and, unless targets may be partial, one that lacks
    a cell. Whole numbers are integers, also where missing ones made them floats.

    Args:
        columns: the columns of the target, in the order of the cells.
        where: the beginning of messages.
        partial: whether a row may lack some cells, see
            :class:`~fedlit.outcomes.base.Outcome`.

    Raises:
        DataError: no column, or one twice.

    Example:
        >>> import pandas as pd
        >>> target = several(pd.DataFrame({"died": [0, 1, None], "readmitted": ["no", None, None]}))
        >>> target.name, target.tolist()
        (('died', 'readmitted'), [(0, 'no'), (1, None), None])
        >>> several(pd.DataFrame({"days": [31.5, 8], "died": [None, 1]}), partial=False).tolist()
        [None, (8, 1)]
    """
    import pandas as pd

    names = tuple(map(str, columns.columns))
    if not 0 < len(names) == len(set(names)):
        advice = "name each once" if names else "name one, or several"
        raise DataError(
            f"{where}: expected a column for each label, found {', '.join(names) or 'none'}; "
            f"{advice}"
        )
    cells = [_plain_labels(columns.iloc[:, position]) for position in range(columns.shape[1])]
    is_enough = any if partial else all
    rows = list[tuple[Any, ...] | None]()
    for row in zip(*cells, strict=True):
        is_labelled = is_enough(value is not None for value in row)
        rows.append(row if is_labelled else None)
    # With fromiter, because np.array would turn tuples into columns.
    values = np.fromiter(rows, dtype=object, count=len(rows))
    return pd.Series(values, columns.index, name=names)


def _plain_labels(column: pd.Series) -> list[Any]:
    labels = list[Any]()
    for value, is_missing in zip(column.tolist(), column.isna().tolist(), strict=True):
        if is_missing:
            labels.append(None)
        elif isinstance(value, float) and value.is_integer():
            labels.append(int(value))
        else:
            labels.append(value)
    return labels


def row_hashes(frame: pd.DataFrame) -> np.ndarray:
    """Return a uint64 for each row (n,), the same for equal rows. Numbers are compared as float64,
    everything else as text.

    Example:
        >>> import pandas as pd
        >>> first, second, third = row_hashes(pd.DataFrame({"x": [1, 1, 2], "ward": ["a", "a", "a"]}))
        >>> bool(first == second), bool(second == third)
        (True, False)
    """
    import pandas as pd

    if len(frame) > _BLOCK:  # Copies of all rows may not fit into memory.
        return np.concatenate(
            [row_hashes(frame.iloc[at : at + _BLOCK]) for at in range(0, len(frame), _BLOCK)]
        )
    are_numbers = np.array([dtype.kind in "iuf" for dtype in frame.dtypes.tolist()], bool)
    columns = frame if are_numbers.all() else frame.loc[:, are_numbers]
    numbers = columns.to_numpy(np.float64, na_value=np.nan) + 0.0  # -0 becomes 0.
    numbers[np.isnan(numbers)] = np.nan  # There are several.
    hashes = _mixed(np.ascontiguousarray(numbers).view(np.uint64))
    hashes *= 2 * np.flatnonzero(are_numbers).astype(np.uint64) + np.uint64(1)
    rows: np.ndarray = hashes.sum(axis=1, dtype=np.uint64)
    texts = {
        position: frame.iloc[:, position].astype(str).to_numpy()
        for position in np.flatnonzero(~are_numbers).tolist()
    }
    if texts:
        rows += pd.util.hash_pandas_object(pd.DataFrame(texts), index=False).to_numpy()
    return rows


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Return a hash of each uint64, the last steps of splitmix64 (Steele, Lea and Flood 2014)."""
    mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: np.ndarray = mixed ^ (mixed >> np.uint64(31))
    return hashes


def choose_columns(
    tables: Sequence[ClientTable], patterns: Sequence[str], *, strict: bool = True
) -> list[ClientTable]:
    """Return the tables with the columns that match the patterns, in their order.

    Args:
        tables: one per client.
        patterns: names or globs; one that starts with ``!`` takes out what an earlier one chose, or
            from all columns if it is the first.
        strict: whether each must match a column; of one client's table alone it need not.

    Raises:
        ConfigError: a pattern that matches no column of any client, or a client that is left
            without columns.
    """
    column_names = list(dict.fromkeys(map(str, chain(*(table.features for table in tables)))))
    expected = f"names or patterns among {shorten(column_names)}"
    selected = set[str]()
    if patterns and patterns[0].startswith("!"):
        selected.update(column_names)
    for pattern in patterns:
        matched = set(fnmatch.filter(column_names, pattern.removeprefix("!")))
        if strict:
            expect(bool(matched), "data.columns", expected, pattern, known=column_names)
        if pattern.startswith("!"):
            selected -= matched
        else:
            selected |= matched
    chosen = []
    for table in tables:
        columns = [name for name in table.features if name in selected]
        expected = f"a column for client {table.name!r}"
        expect(bool(columns), "data.columns", expected, Told("none that is chosen"))
        chosen.append(table.only(columns))
    return chosen


def leave_out(
    tables: Sequence[ClientTable], clients: Sequence[str], names: Sequence[str]
) -> list[ClientTable]:
    """Return the tables without those of some clients.

    Args:
        tables: the tables of the clients in this process.
        clients: the clients to leave out.
        names: the names of all clients, including those of other processes.

    Raises:
        ConfigError: a name that no client has, clients elsewhere, or nobody is left.
    """
    for name in clients:
        check_client("data.leave_out", name, names)
    all_present = not clients or len(tables) == len(names)
    advice = "drop the key, and do not start the sites to leave out"
    expect(all_present, "data.leave_out", "all clients here", Told("some elsewhere"), advice)
    remaining = [table for table in tables if table.name not in clients]
    expect(
        bool(remaining) or not clients,
        "data.leave_out",
        "a client that stays",
        Told("all left out"),
    )
    return remaining
