"""Excel sheets as text, streamed row by row with bounds."""

from __future__ import annotations

import datetime
import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import Header, check_no_header, check_size
from fedlit.data.reading.options import Notes, ReadOptions, one_line
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.show.text import counted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_excel"]

CHUNK_CELLS = 200_000
NOT_COMPUTED = re.compile(rb"</f>\s*(?:<v\s*/>|<v>\s*</v>|</c>)|<f[^>]*/>\s*(?:<v\s*/>|<v>\s*</v>|</c>)")


def read_excel(path: Path, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read one sheet of an ``.xlsx`` file.

    Args:
        path: the file.
        options: which sheet and columns, rows above the header, how many rows and bytes there may be.
        notes: takes what is found; whose file it is.

    Returns:
        One ``str`` column for each that is kept. A whole number is written without a point, a date as ISO 8601 does.

    Raises:
        ConfigError: if openpyxl is not installed.
        DataError: if the file is damaged, too large, or the sheet is no table.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise ConfigError(f'{notes.where}: needs openpyxl. Run: pip install "fedlit[excel]"') from error
    try:
        with zipfile.ZipFile(path) as archive:  # which reads no more of a member than its entry says
            check_size(0, sum(own.file_size for own in archive.infolist()), options, notes)
        # read_only streams the rows; data_only takes the values that Excel computed last.
        with (
            path.open("rb") as file,
            closing(openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)) as book,
        ):
            sheet = _sheet(book, options, notes)
            with zipfile.ZipFile(path) as archive:
                written = archive.read(sheet._worksheet_path.lstrip("/"))
            if missing := len(NOT_COMPUTED.findall(written)):
                notes.add(
                    f"{counted(missing, 'formula has', 'formulas have')} no computed value and are read as empty. "
                    f"Open and save the file in Excel."
                )
            if b"<mergeCell " in written:
                notes.add("it holds merged cells: their value stands in the first of them only.")
            del written
            return _table(sheet, options, notes)
    except (DataError, OSError, MemoryError, zipfile.BadZipFile):
        raise
    except Exception as error:  # openpyxl raises what its parsers do
        raise notes.error(
            f"cannot be read as .xlsx ({type(error).__name__}: {one_line(error)}). Open it and save it again."
        ) from error


def _sheet(book: Any, options: ReadOptions, notes: Notes) -> Any:
    sheets = {own.title: own for own in book.worksheets}
    names = ", ".join(map(repr, list(sheets)[:12])) or "none"
    if options.sheet is None and sheets:
        if len(sheets) > 1:
            notes.add(f"of its {len(sheets)} sheets the first is read: {names}. sheet chooses another.")
            notes.hint = f" Only the first of the sheets {names} is read; sheet chooses another."
        return next(iter(sheets.values()))
    if options.sheet in sheets:
        return sheets[options.sheet]
    if isinstance(options.sheet, int) and options.sheet < len(sheets):
        return list(sheets.values())[options.sheet]
    hint = did_you_mean(str(options.sheet), sheets)
    raise notes.error(
        f"expected a sheet {options.sheet!r} (a name, or a place from 0 to {len(sheets) - 1}), found {names}.{hint}"
    )


def _table(sheet: Any, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows = _rows(sheet, options.skiprows)
    number, header = (0, options.names) if options.names else next(rows, (0, None))
    at, first = next(rows, (0, None))
    if header is None or first is None:
        raise notes.error("expected a header and rows of data, found none. Fill the sheet, or choose another by sheet.")
    if options.names:
        check_no_header(first, header, notes, f"row {at:,}")
    elif sum(map(bool, header)) == 1 < sum(map(bool, first)):
        raise notes.error(
            f"expected a header with one name for each column, found one cell only in row {number:,}. If a title "
            f"stands above the header, write skiprows: {number}; else write one name into each cell."
        )
    own = Header(header, options, notes)
    return own.frame(own.table(_chunks(own, itertools.chain([(at, first)], rows), number, options, notes)))


def _chunks(
    header: Header, rows: Iterable[tuple[int, list[str]]], before: int, options: ReadOptions, notes: Notes
) -> Iterator[list[list[str]]]:
    width = len(header.names)
    chunk: list[list[str]] = []
    empty = used = 0
    for number, row in rows:
        if len(row) > width:
            raise notes.error(
                f"row {number:,}: expected {counted(width, 'cell')} as in the header, found {len(row):,}. If a title "
                f"stands above the header, write skiprows; else name the column, or empty the cell."
            )
        empty, before = empty + max(0, number - before - 1), number
        used += 8 * width + sum(map(len, row))
        check_size(0, used, options, notes)
        chunk.append(row + [""] * (width - len(row)))
        if len(chunk) * width >= CHUNK_CELLS:
            yield chunk
            chunk = []
    yield chunk
    if empty and options.names is None:
        notes.add(f"{counted(empty, 'empty row was', 'empty rows were')} skipped.")


def _rows(sheet: Any, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """Rows that hold anything, as texts without empty cells at their end, with their numbers counted from 1."""
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        row = [_text(value) for value in values] if number > skipped else []
        while row and not row[-1]:
            row.pop()
        if row:
            yield number, row


def _text(value: Any) -> str:
    """A cell's value as a person would write it.

    >>> [_text(value) for value in (None, True, 1.0, 0.1 + 0.2, "007", datetime.datetime(2024, 1, 5))]
    ['', 'TRUE', '1', '0.3', '007', '2024-01-05']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        # Excel itself shows 15 digits
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
