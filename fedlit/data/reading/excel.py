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

from fedlit.data.reading.arrow import check_bytes
from fedlit.data.reading.names import check_no_header
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, counted, one_line
from fedlit.data.reading.texts import Header
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_excel"]

CHUNK_CELLS = 200_000
PIECE = 2**20
MERGED = re.compile(rb'<mergeCell ref="([A-Z]+)(\d+):([A-Z]+)(\d+)"')
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
    _check_size(path, options, notes)
    try:
        # read_only streams the rows; data_only takes the values that Excel computed last.
        with (
            path.open("rb") as file,
            closing(openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)) as book,
        ):
            sheet = _sheet(book, options, notes)
            merged, not_computed = _looked_through(path, sheet)
            if not_computed:
                notes.add(
                    f"{counted(not_computed, 'formula has', 'formulas have')} no computed value and are read as empty. "
                    f"Open and save the file in Excel."
                )
            sheet.reset_dimensions()  # what a file says of its size may be wrong
            return _table(sheet, merged, options, notes)
    except (DataError, OSError, MemoryError, zipfile.BadZipFile):
        raise
    except Exception as error:  # openpyxl raises what its parsers do
        raise notes.error(
            f"cannot be read as .xlsx ({type(error).__name__}: {one_line(error)}). Open it and save it again."
        ) from error


def _check_size(path: Path, options: ReadOptions, notes: Notes) -> None:
    """Python's zipfile reads no more of a member than its entry says, so that the entries bound memory."""
    with zipfile.ZipFile(path) as archive:
        size = sum(own.file_size for own in archive.infolist())
    if size > options.max_bytes:
        raise notes.error(
            f"expected at most {options.max_bytes:,} bytes (unpacked), found {size:,}. Raise max_bytes if the table is "
            f"meant to be that large, or save it as Parquet."
        )


def _sheet(book: Any, options: ReadOptions, notes: Notes) -> Any:
    sheets = {own.title: own for own in book.worksheets}
    if not sheets:
        raise notes.error("expected a sheet with cells, found none. Write the table into a sheet.")
    if options.sheet is None:
        if len(sheets) > 1:
            names = ", ".join(map(repr, list(sheets)[:12]))
            notes.add(f"of its {len(sheets)} sheets the first is read: {names}. sheet chooses another.")
            notes.hint = f" Only the first of the sheets {names} is read; sheet chooses another."
        return next(iter(sheets.values()))
    if isinstance(options.sheet, int):
        if options.sheet >= len(sheets):
            raise notes.error(f"sheet says {options.sheet}, counted from 0, but there are {len(sheets)}. Lower it.")
        return list(sheets.values())[options.sheet]
    if options.sheet not in sheets:
        names = ", ".join(map(repr, list(sheets)[:12]))
        raise notes.error(
            f"expected a sheet {options.sheet!r}, found {names}.{did_you_mean(options.sheet, sheets)} Correct the name."
        )
    return sheets[options.sheet]


def _looked_through(path: Path, sheet: Any) -> tuple[list[tuple[int, int]], int]:
    """First and last rows of cells merged across columns, and how many formulas have no value.

    Reading row by row shows neither.
    """
    merged: list[tuple[int, int]] = []
    not_computed, last = 0, b""
    with zipfile.ZipFile(path) as archive, archive.open(sheet._worksheet_path.lstrip("/")) as file:
        while piece := file.read(PIECE):
            seen = last + piece
            new = [own for own in MERGED.finditer(seen) if own.end() > len(last)]
            merged += [(int(own[2]), int(own[4])) for own in new if own[1] != own[3]]
            not_computed += sum(own.end() > len(last) for own in NOT_COMPUTED.finditer(seen))
            last = piece[-200:]
    return merged, not_computed


def _table(sheet: Any, merged: list[tuple[int, int]], options: ReadOptions, notes: Notes) -> pd.DataFrame:
    rows = _rows(sheet, options.skiprows)
    number, header = (0, options.names) if options.names else next(rows, (0, None))
    at, first = next(rows, (0, None))
    if header is None or first is None:
        raise notes.error("expected a header and rows of data, found none. Fill the sheet, or choose another by sheet.")
    if options.names:
        check_no_header(first, header, notes, f"row {at:,}")
    else:
        _check_title(number, header, first, merged, notes)
    own = Header(header, options, notes)
    if any(last > number for _, last in merged):
        notes.add("it holds cells merged across columns: their value stands in the first column only.")
    return own.frame(own.table(_chunks(own, itertools.chain([(at, first)], rows), number, options, notes)))


def _check_title(number: int, header: list[str], first: list[str], merged: list[tuple[int, int]], notes: Notes) -> None:
    title = sum(map(bool, header)) == 1 < sum(map(bool, first))
    if title or any(start <= number <= last for start, last in merged):
        found = "one cell only" if title else "merged cells"
        raise notes.error(
            f"expected a header with one name for each column, found {found} in row {number:,}. If a title stands "
            f"above the header, write skiprows: {number}; else write one name into each cell."
        )


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
        check_bytes(used, options, notes)
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
        if number > skipped and any(value is not None for value in values):
            row = [_text(value) for value in values]
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
