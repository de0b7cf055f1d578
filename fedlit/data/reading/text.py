"""Reads delimited text strictly and keeps each cell as it is written."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.encoding import as_utf8
from fedlit.data.reading.layout import layout_of, names_if_none
from fedlit.data.reading.options import Add, ReadOptions
from fedlit.errors import DataError
from fedlit.show.text import counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

MOST_IN_LINE = 2**23
_QUOTED = re.compile("'[^']*'")


def read_text(
    content: bytes, options: ReadOptions, add: Add, sep: str | None = None
) -> pd.DataFrame:
    """Read delimited text with pyarrow. Python's strict csv reader checks quotes and finds the line
    of an error.

    Args:
        content: The bytes of the file, decompressed.
        options: How the text is read.
        add: Called with each note.
        sep: The separator; if None, it comes from the options or is detected.

    Returns:
        A ``str`` column for each column of the text; an empty cell is missing.

    Raises:
        DataError: The text is no regular table; the message names the line.
    """
    import pyarrow as pa

    # The reader's limit of 131,072 characters a cell is one for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), MOST_IN_LINE))
    layout = layout_of(as_utf8(content, options, add), options, add, sep)
    content = layout.content
    line = layout.line
    sep = layout.sep
    del layout
    first_rows = [row for _, _, row in itertools.islice(_rows(content, sep, line), 2)]
    header = first_rows[0] if first_rows else []
    names = _names_of(header, options.names, add)
    if not first_rows or (len(first_rows) == 1 and not names):
        raise DataError("expected rows of data, found none. Fetch or write the file again.")
    width = len(names or header)
    if b'"' in content:
        _check(content, sep, line, width, add)
    try:
        table = _parsed(content, sep, width, has_header=not names)
    except pa.ArrowInvalid as error:
        _check(content, sep, line, width, add)
        raise DataError(f"expected a regular table, found: {error}. Correct the file.") from error
    options.check_size(len(table))
    del content  # The columns hold copies of it.
    frame: pd.DataFrame = table.to_pandas(
        types_mapper={pa.large_string(): text_dtype()}.get, split_blocks=True, self_destruct=True
    )
    return frame.set_axis(names or header, axis=1)


def _names_of(header: list[str], names: list[str] | None, add: Add) -> list[str] | None:
    """Return the names of the columns if the first line does not hold them, otherwise None."""
    if names and 2 * sum(cell.strip() in names for cell in header) > len(names):
        raise DataError(
            "names are for a file without a header, but it has one. Leave out names, or write "
            "skiprows: 1."
        )
    if header and all(_QUOTED.fullmatch(cell) for cell in header):
        raise DataError(
            f"header: expected names, found {header[0]}. Write double quotes instead of single "
            "ones in the whole file, or none."
        )
    return names or names_if_none(header, add)


def _parsed(content: bytes, sep: str, width: int, *, has_header: bool) -> pa.Table:
    """Return columns of text, which are called by their positions."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    has_quotes = b'"' in content
    quote = '"' if has_quotes else False
    positions = [str(position) for position in range(width)]
    return arrow.read_csv(
        pa.BufferReader(content),
        arrow.ReadOptions(
            column_names=positions,
            skip_rows_after_names=int(has_header),
            block_size=MOST_IN_LINE,
            use_threads=False,
        ),
        arrow.ParseOptions(
            delimiter=sep,
            quote_char=quote,
            newlines_in_values=has_quotes,
            invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
        ),
        arrow.ConvertOptions(
            column_types=dict.fromkeys(positions, pa.large_string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _rows(content: bytes, sep: str, line: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield, for each row that is not empty, the line where it begins, its number of lines, and its
    cells; ``line`` is the number of the first line.
    """
    reader = csv.reader(
        io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""), delimiter=sep, strict=True
    )
    before = 0
    try:
        for row in reader:
            if row:
                yield line + before, reader.line_num - before, row
            before = reader.line_num
    except csv.Error as error:
        raise DataError(
            f"line {line + before:,}: expected quotes in pairs around whole cells, found a cell of "
            f"{counted(reader.line_num - before, 'line')} ({error}). "
            "Correct the row that begins here; a quote inside a quoted cell is written twice."
        ) from error


def _check(content: bytes, sep: str, line: int, width: int, add: Add) -> None:
    """Refuse the first line that is not a valid row."""
    longest = 1
    for start, taken, row in _rows(content, sep, line):
        longest = max(longest, taken)
        if len(row) != width and not (len(row) == 1 and row[0].isspace()):
            raise DataError(
                f"line {start:,}: expected {counted(width, 'field')} as in the header, found "
                f"{len(row):,}. Correct that line. If lines of text stand above the header, write "
                "skiprows; if the separator is another one, sep; if the first column has no name, "
                "skiprows: 1 and names."
            )
    if longest > 1:
        add(
            f"quoted cells hold line ends; the longest row takes {longest:,} lines. Were lines "
            "swallowed by a quote?"
        )
    # A search from each of many blanks takes long.
    separator = rb"(?<! ) " if sep == " " else re.escape(sep.encode())
    if re.search(separator + rb' ++"(?!")', content):
        add(
            "blanks stand before quotes, which are then read as a part of the cell. Remove the "
            "blanks"
        )


def text_dtype() -> Any:
    """Return the dtype of text that Arrow stores, in which NaN means missing."""
    import numpy as np
    import pandas as pd

    return pd.StringDtype("pyarrow", na_value=np.nan)
