"""Cells of text as a frame: what delimited text and Excel have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import chosen, mostly_numbers, shown, tidy, with_made_names
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Header", "text_dtype"]


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
        """Rows, each with a text for every name, as columns.

        Raises:
            DataError: there are more rows than ``max_rows``.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        missing, batches, rows = pa.scalar(None, pa.large_string()), [], 0
        for chunk in chunks:
            rows += len(chunk)
            self._check_rows(rows)
            columns = list(zip(*chunk, strict=True)) or [()] * len(self.names)
            arrays = [pa.array(columns[place], pa.large_string()) for place in self._places]
            arrays = [pc.if_else(pc.equal(own, ""), missing, own) for own in arrays]
            batches.append(pa.record_batch(arrays, names=self.kept))
        return pa.Table.from_batches(batches)

    def _check_rows(self, rows: int) -> None:
        if rows > self._options.max_rows:
            raise self._notes.error(
                f"expected at most {self._options.max_rows:,} rows, found more. Raise max_rows if the table is meant "
                "to be that large."
            )

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """The table as a frame of ``str`` columns, without columns that have neither a name nor a value.

        Raises:
            DataError: there are more rows than ``max_rows``.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        self._check_rows(len(table))
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


def text_dtype() -> Any:
    """The dtype of text that is kept by Arrow, where NaN means missing."""
    import numpy as np
    import pandas as pd

    return pd.StringDtype("pyarrow", na_value=np.nan)
