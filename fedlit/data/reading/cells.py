"""Rows of text cells, gathered as compact Arrow columns with bounds."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import chosen, mostly_numbers, shown, tidy, with_made_names
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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
        self._spare = spare
        self._places = chosen(self.names, options, notes)
        self._chunks: list[list[Any]] = [[] for _ in self._places]
        self.rows = 0
        self._empty_rows = 0

    def add(self, rows: Sequence[Sequence[str]]) -> None:
        """Append rows, each with a text for every name.

        Raises:
            DataError: if there are more rows than ``max_rows``.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not rows:
            return
        columns = list(zip(*rows, strict=True))
        missing = pa.scalar(None, pa.large_string())
        arrays = []
        for place in self._places:
            column = pa.array(columns[place], pa.large_string())
            if "" in columns[place]:
                column = pc.if_else(pc.equal(column, ""), missing, column)
            arrays.append(column)
        self.take(pa.record_batch(arrays, names=[self.names[place] for place in self._places]))

    def parsed(self, block: bytes, sep: str, lines: int, *, quoted: bool) -> pa.RecordBatch | None:
        """What Arrow reads in regular lines; None where one of them is no row as the header has it.

        Args:
            block: the lines, as UTF-8.
            sep: what separates the fields.
            lines: how many lines there are.
            quoted: whether they hold quotes.
        """
        import pyarrow as pa
        from pyarrow import csv

        kept = [self.names[place] for place in self._places]
        if block.startswith(codecs.BOM_UTF8):  # which Arrow would leave out
            return None
        try:
            table = csv.read_csv(
                pa.BufferReader(block),
                csv.ReadOptions(column_names=self.names, block_size=len(block) + 1, use_threads=False),
                csv.ParseOptions(delimiter=sep, quote_char='"' if quoted else False),
                csv.ConvertOptions(
                    column_types=dict.fromkeys(kept, pa.large_string()),
                    include_columns=kept,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != lines or (self._spare and table.column(self.names[-1]).null_count < lines):
            return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None

    def take(self, batch: pa.RecordBatch) -> None:
        """Append the columns that are kept.

        Raises:
            DataError: if there are more rows than ``max_rows``.
        """
        import pyarrow.compute as pc

        self.rows += batch.num_rows
        if self.rows > self._options.max_rows:
            raise self._notes.error(
                f"expected at most {self._options.max_rows:,} rows, found more. Raise max_rows if the table is meant "
                f"to be that large."
            )
        empty = None
        for column, chunks in zip(batch.columns, self._chunks, strict=True):
            chunks.append(column)
            if empty is None or empty.true_count:
                here = pc.is_null(column)
                empty = here if empty is None else pc.and_(empty, here)
        self._empty_rows += empty.true_count if empty is not None else 0

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
        frame: pd.DataFrame = pa.table(columns, names=names).to_pandas(
            types_mapper={pa.large_string(): text_dtype()}.get
        )
        return frame


def text_dtype() -> Any:
    """The dtype of text that is kept by Arrow, where NaN means missing."""
    import numpy as np
    import pandas as pd

    try:
        return pd.StringDtype("pyarrow", na_value=np.nan)
    except TypeError:  # pandas 2.2
        kind: Any = pd.StringDtype
        return kind("pyarrow_numpy")
