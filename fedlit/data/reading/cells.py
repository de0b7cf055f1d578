"""Rows of text cells, gathered as compact Arrow columns with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import chosen, mostly_numbers, shown, tidy, with_made_names
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, counted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TextTable", "text_dtype"]


class TextTable:
    """The columns of a table whose cells are text, filled chunk by chunk; an empty cell is missing.

    Args:
        header: the names as they stand in the file, or ``options.names``.
        options: which columns are kept, how many rows there may be.
        notes: whose table it is; takes what is left out.
        spare: whether the rows have one field more than the header, which must stay empty.
    """

    def __init__(self, header: Sequence[str], options: ReadOptions, notes: Notes, *, spare: bool = False) -> None:
        names = tidy(header, notes) + ([""] if spare else [])
        if options.names is None and mostly_numbers(names):
            notes.add(f"most names of columns are numbers ({shown(names[:4])}). If there is no header, write names.")
        self._unnamed = {place for place, name in enumerate(names) if not name}
        self.names = with_made_names(names)
        self._options, self._notes = options, notes
        self._places = chosen(self.names, options, notes)
        self._chunks: list[list[Any]] = [[] for _ in self._places]
        self.rows = 0
        self._empty_rows = 0

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        """Append rows, each of ``width`` texts.

        Raises:
            DataError: if there are more rows than ``max_rows``.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not rows:
            return
        self.rows += len(rows)
        if self.rows > self._options.max_rows:
            raise self._notes.error(
                f"expected at most {self._options.max_rows:,} rows, found more. Raise max_rows if the table is meant "
                f"to be that large."
            )
        columns = list(zip(*rows, strict=True))
        if "" in columns[0]:
            self._empty_rows += sum(1 for row in rows if not any(row))
        missing = pa.scalar(None, pa.large_string())
        for place, chunks in zip(self._places, self._chunks, strict=True):
            cells = columns[place]
            column = pa.array(cells, pa.large_string())
            if "" in cells:
                column = pc.if_else(pc.equal(column, ""), missing, column)
            chunks.append(column)

    def frame(self) -> pd.DataFrame:
        """The table as a frame of ``str`` columns.

        Raises:
            DataError: if nothing is left.
        """
        import pyarrow as pa

        names, columns, left_out = [], [], 0
        for place, chunks in zip(self._places, self._chunks, strict=True):
            column = pa.chunked_array(chunks, pa.large_string())
            name = self.names[place]
            if place in self._unnamed:
                if column.null_count == len(column):
                    left_out += 1
                    continue
                self._notes.add(f"column {place + 1} has no name and is called {name!r}. drop: [{name}] leaves it out.")
            names.append(name)
            columns.append(column)
        if left_out:
            what = counted(left_out, "column without name and values was", "columns without name and values were")
            self._notes.add(f"{what} left out (a separator too many at the end of each line?).")
        if self._empty_rows:
            self._notes.add(f"{counted(self._empty_rows, 'row holds', 'rows hold')} no value at all; they are kept.")
        return pa.table(columns, names=names).to_pandas(types_mapper={pa.large_string(): text_dtype()}.get)


def text_dtype() -> pd.StringDtype:
    """The dtype of text that is kept by Arrow, where NaN means missing."""
    import numpy as np
    import pandas as pd

    try:
        return pd.StringDtype("pyarrow", na_value=np.nan)
    except TypeError:  # pandas 2.2
        return pd.StringDtype("pyarrow_numpy")
