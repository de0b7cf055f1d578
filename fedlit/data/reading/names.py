"""Columns: their names made unique text, chosen and renamed; cells of text as a frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.options import Notes, ReadOptions
from fedlit.errors import did_you_mean
from fedlit.show.text import counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Header", "check_no_header", "check_size", "chosen", "mostly_numbers", "renamed", "text_dtype"]


def tidy(header: Sequence[object], notes: Notes) -> list[str]:
    """The names of a header without outer blanks; what has no name is called ``""``.

    Args:
        header: the names as they stand in the file.
        notes: takes what was changed.

    Returns:
        One name for each column.

    Raises:
        DataError: if two columns have one name, or none has any.
    """
    texts = [str(name) for name in header]
    names = [name.strip().strip("\ufeff").strip() for name in texts]  # a mark may stand there twice
    changed = [name for name, text in zip(names, texts, strict=True) if name and name != text]
    for name, times in Counter(names).items():
        if times > 1 and name:
            hint = " If the file has no header, write names." if mostly_numbers(names) else ""
            raise notes.error(
                f"{times} columns are called {name!r}. Rename or remove all but one in the file, or write skiprows: 1 "
                f"and names for all columns.{hint}"
            )
    if not any(names):
        raise notes.error("expected a header with the names of columns, found only empty cells. Write them, or names.")
    if changed:
        notes.add(f"blanks around {counted(len(changed), 'name of a column', 'names of columns')} were left out.")
    return names


def with_made_names(names: Sequence[str]) -> list[str]:
    """Names where columns without one are called by their place, counted from 1.

    >>> with_made_names(["age", "", "unnamed_2"])
    ['age', 'unnamed_2_', 'unnamed_2']
    """
    taken, result = set(names), []
    for place, name in enumerate(names):
        made = name or f"unnamed_{place + 1}"
        while not name and made in taken:
            made += "_"
        taken.add(made)
        result.append(made)
    return result


def mostly_numbers(names: Iterable[str]) -> bool:
    """Return whether a header looks like a row of data.

    >>> mostly_numbers(["63.0", "1", "-1", "?"]), mostly_numbers(["age", "sex", "2019"])
    (True, False)
    """
    given = [name for name in names if name]
    return bool(given) and 2 * sum(map(_number, given)) > len(given)


def check_no_header(first: Sequence[str], names: Sequence[str], notes: Notes, where: str) -> None:
    """Refuse ``names`` for a file whose first line holds the names already."""
    if 2 * sum(cell.strip() in names for cell in first) > len(names):
        raise notes.error(
            f"{where}: names are for a file without a header, but here stand the names. Leave out names, or write "
            f"skiprows: 1."
        )


def _number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return text.lower() not in ("nan", "inf", "infinity")


def chosen(names: Sequence[str], options: ReadOptions, notes: Notes) -> list[int]:
    """Which columns to read.

    Args:
        names: all names in the file's order.
        options: their ``keep`` and ``drop``.
        notes: whose columns they are.

    Returns:
        Their places, ascending.

    Raises:
        DataError: if a name or glob fits no column, or no column is left.
    """
    kept = set(range(len(names)))
    if options.keep is not None:
        kept = _fitting(names, options.keep, "keep", notes)
    if options.drop is not None:
        kept -= _fitting(names, options.drop, "drop", notes)
    if not kept:
        raise notes.error("keep and drop leave no column. Keep one, or drop fewer.")
    return sorted(kept)


def _fitting(names: Sequence[str], patterns: Iterable[str], key: str, notes: Notes) -> set[int]:
    places: set[int] = set()
    for pattern in patterns:
        # An exact name comes first: 'dose [mg]' would be a glob too.
        fit = {place for place, name in enumerate(names) if name == pattern}
        fit = fit or {place for place, name in enumerate(names) if fnmatchcase(name, pattern)}
        if not fit:
            raise notes.error(
                f"expected a column {pattern!r} ({key}), found {shown(names)}."
                f"{did_you_mean(pattern, names)} Correct the name."
            )
        places |= fit
    return places


def renamed(names: Sequence[str], options: ReadOptions, notes: Notes) -> list[str]:
    """The names after ``rename``.

    Raises:
        DataError: if an old name is no column, or two columns would have one name.
    """
    given = options.rename or {}
    for old in given:
        if old not in names:
            raise notes.error(
                f"rename names {old!r}, but the columns read are {shown(names)}.{did_you_mean(old, names)} "
                f"Correct the name."
            )
    result = [given.get(name, name) for name in names]
    for name, times in Counter(result).items():
        if times > 1:
            raise notes.error(f"rename would make {times} columns called {name!r}. Choose another name, or drop one.")
    return result


def shown(names: Sequence[str]) -> str:
    """The first names, for a message.

    >>> shown(["a", "b"])
    "'a', 'b'"
    """
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(repr(name[:80]) for name in names[:12]) + more


class Header:
    """The columns of a table whose cells are text; an empty cell is missing.

    Args:
        header: the names as they stand in the file, or ``options.names``.
        options: which columns are kept, how many rows there may be.
        notes: whose table it is; takes what is left out.
        spare: whether the rows have one field more than the header, which must stay empty.

    Attributes:
        names: of all columns.
        kept: of those that are read.
        missing: texts that mean a missing value where types are known.
    """

    def __init__(self, header: Sequence[str], options: ReadOptions, notes: Notes, *, spare: bool = False) -> None:
        names = tidy(header, notes) + [""] * spare
        if options.names is None and mostly_numbers(names):
            notes.add(f"most names of columns are numbers ({shown(names[:4])}). If there is no header, write names.")
        self.names, self.spare = with_made_names(names), spare
        self._unnamed = {
            made: place for place, (name, made) in enumerate(zip(names, self.names, strict=True)) if not name
        }
        self._places = chosen(self.names, options, notes)
        self.kept = [self.names[place] for place in self._places]
        self._options, self._notes = options, notes
        self.missing = [str(own) for own in options.missing] if isinstance(options.missing, list) else []

    def table(self, chunks: Iterable[Sequence[Sequence[str]]]) -> pa.Table:
        """Turn rows, each with a text for every name, into columns.

        Raises:
            DataError: there are more rows than ``max_rows``.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        missing, batches, rows = pa.scalar(None, pa.large_string()), [], 0
        for chunk in chunks:
            rows += len(chunk)
            check_size(rows, 0, self._options, self._notes)
            columns = list(zip(*chunk, strict=True)) or [()] * len(self.names)
            arrays = [pa.array(columns[place], pa.large_string()) for place in self._places]
            arrays = [pc.if_else(pc.equal(own, ""), missing, own) for own in arrays]
            batches.append(pa.record_batch(arrays, names=self.kept))
        return pa.Table.from_batches(batches)

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """The table as a frame of ``str`` columns, without columns that have neither a name nor a value.

        Raises:
            DataError: there are more rows than ``max_rows``.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        check_size(len(table), 0, self._options, self._notes)
        unnamed = [name for name in table.column_names if name in self._unnamed]
        nothing = [name for name in unnamed if table.column(name).null_count == len(table)]
        for name in unnamed:
            if name not in nothing:
                place = self._unnamed[name] + 1
                self._notes.add(f"column {place} has no name and is called {name!r}. drop: [{name}] leaves it out.")
        if nothing:
            what = counted(len(nothing), "column without name and values was", "columns without name and values were")
            self._notes.add(f"{what} left out (a separator too many at the end of each line?).")
        gaps = sorted(table.columns, key=lambda own: own.null_count)
        if gaps and gaps[0].null_count:
            empty = pc.sum(reduce(pc.and_, map(pc.is_null, gaps))).as_py()
            if empty:
                self._notes.add(f"{counted(empty, 'row holds', 'rows hold')} no value at all; they are kept.")
        table = table.drop_columns(nothing)
        frame: pd.DataFrame = table.to_pandas(
            types_mapper={pa.large_string(): text_dtype(), pa.string(): text_dtype()}.get,
            split_blocks=True,
            self_destruct=True,
        )
        return frame


def check_size(rows: int, size: int, options: ReadOptions, notes: Notes) -> None:
    """Refuse a table of more rows, or of more bytes in memory, than it may have."""
    for key, most, found, what in (
        ("max_rows", options.max_rows, rows, "rows"),
        ("max_bytes", options.max_bytes, size, "bytes in memory"),
    ):
        if found > most:
            raise notes.error(
                f"expected at most {most:,} {what}, found {found:,} or more. Keep fewer, or raise {key} if the table "
                "is meant to be that large."
            )


def text_dtype() -> Any:
    """The dtype of text that is kept by Arrow, where NaN means missing."""
    import numpy as np
    import pandas as pd

    return pd.StringDtype("pyarrow", na_value=np.nan)
