"""Reads formats other than text: Excel, Parquet, Feather and SQL."""

from __future__ import annotations

import csv
import datetime
import io
import os
import re
import zipfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_plus

from fedlit.data.reading.options import Add, ReadOptions
from fedlit.data.reading.text import read_text, text_dtype
from fedlit.errors import ConfigError, DataError, Told, expect
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PIECE_ROWS = 4096
NOT_COMPUTED = re.compile(rb"<f(?:[^<>]*/>|[^<>]*>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>|</c>)")
HIDDEN = re.compile(rb"<row [^<>]*hidden=\"(?:1|true)\"")
ZEROS = re.compile("0{2,}")
SHOWS_ZEROS = re.compile(rb'formatCode="0{2,}"')
VARIABLE = re.compile(r"\$\{(\w+)\}")
PASSWORD = re.compile(r"[^:/?#]*://[^:/?#]*:(?P<value>[^@]*)@")
SECRET = re.compile(
    r"(?i)(?<!\w)(?=\w*?(?:password|passwd|pwd|token|secret|api_?key))\w++\s*+=\s*(?P<value>[^;&]*)"
)
_BETWEEN = re.compile(r"[=&;]")


# ---------------------------------------------------------------------- Excel


def read_excel(path: Path, options: ReadOptions, add: Add) -> pd.DataFrame:
    """Read one sheet of an ``.xlsx`` file as if its rows were lines of text.

    Args:
        path: The file.
        options: How it is read.
        add: Called with each note.

    Returns:
        A ``str`` column for each column of the sheet. A whole number is written without a point, a
        date as in ISO 8601.

    Raises:
        DataError: The sheet is no table, or is too large.
    """
    import openpyxl

    padded = _look_at_sheets(path, options, add)
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    # read_only streams the rows; data_only takes the values that Excel computed last.
    with (
        path.open("rb") as file,
        closing(
            openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        ) as book,
    ):
        titles = [worksheet.title for worksheet in book.worksheets]
        listing = shorten([*map(repr, titles)])
        if options.sheet is None and len(titles) > 1:
            add(
                f"of its sheets {listing} only the first is read; sheet chooses another",
                sheet=titles[0],
            )
        title = options.sheet or 0
        if isinstance(title, int) and title < len(titles):
            title = titles[title]
        expected = f"one of {listing}, or its place from 0 on"
        expect(title in titles, "sheet", expected, title, "", DataError, titles)
        sheet = book[title]
        sheet.reset_dimensions()  # The size that a file states may be wrong.
        text_of_cell = _padded if padded else _text_of
        width = 0
        for cells in sheet.iter_rows(values_only=not padded):
            row = [text_of_cell(cell) for cell in cells]
            while row and not row[-1]:
                row.pop()
            width = max(width, len(row))  # A title above the header is shorter.
            if row:
                row += [""] * (width - len(row))
            writer.writerow(row)
    return read_text(text.getvalue().encode(), options, add, ",")


def _look_at_sheets(path: Path, options: ReadOptions, add: Add) -> bool:
    """Note what is odd about sheets; return whether a format shows numbers with leading zeros."""
    # ZipFile reads no more of a member than its entry says.
    with zipfile.ZipFile(path) as archive:
        options.check_size(size=sum(sheet.file_size for sheet in archive.infolist()))
        names = archive.namelist()
        contents = [
            archive.read(sheet) for sheet in names if sheet.startswith("xl/worksheets/sheet")
        ]
        styles = [archive.read(sheet) for sheet in names if sheet == "xl/styles.xml"]
    if any(map(NOT_COMPUTED.search, contents)):
        add(
            "some formulas have no computed value and are read as empty. Open and save the file in "
            "Excel"
        )
    if any(b"<mergeCell " in sheet for sheet in contents):
        add(
            "it has merged cells, of which only the first has the value. If some are rows of data, "
            "unmerge them in Excel and fill them in"
        )
    hidden = sum(len(HIDDEN.findall(sheet)) for sheet in contents)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        add(f"{counted(hidden, 'hidden row')} {verb} read like the others", "converted")
    return any(map(SHOWS_ZEROS.search, styles))


def _padded(cell: Any) -> str:
    """Return a cell's text, with leading zeros if its format shows them, as for postcodes."""
    text = _text_of(cell.value)
    if isinstance(cell.value, int) and ZEROS.fullmatch(cell.number_format):
        return text.zfill(len(cell.number_format))
    return text


def _text_of(value: Any) -> str:
    """Return a cell's value as a person would write it.

    >>> [_text_of(value) for value in (None, True, 1.0, 0.1 + 0.2, "007", datetime.datetime(2024, 1, 5))]
    ['', 'TRUE', '1', '0.3', '007', '2024-01-05']
    """
    match value:
        case None:
            return ""
        case bool():
            return str(value).upper()
        case float():
            if value.is_integer() and abs(value) < 1e15:
                return str(int(value))
            return f"{value:.15g}"  # Excel itself shows 15 digits.
        case datetime.datetime():
            return value.isoformat().removesuffix("T00:00:00")
    return str(value)


# ---------------------------------------------------------------------- Parquet


def read_parquet(path: Path, options: ReadOptions) -> pd.DataFrame:
    """Read a Parquet file and check its size while reading.

    Args:
        path: The file.
        options: The largest size.

    Returns:
        The columns, typed as they are in the file. Whole numbers and truth values with gaps have
        pandas' nullable types; decimals, dates, times, bytes and nested values keep Arrow's types.

    Raises:
        DataError: The table is too large.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    batches = []
    batch = None
    rows = 0
    used = 0
    with pq.ParquetFile(path) as file:
        options.check_size(file.metadata.num_rows)
        # Row numbers that pandas wrote are not a column.
        names = [
            name
            for name in file.schema_arrow.names
            if not re.fullmatch(r"__index_level_\d+__", name)
        ]
        for batch in file.iter_batches(PIECE_ROWS, columns=names):
            rows += batch.num_rows
            used += batch.nbytes
            options.check_size(rows, used)
            # A damaged file points outside of its own memory, which would end the process.
            batch.validate(full=True)
            batches.append(batch)
    columns = pa.Table.from_batches(batches).columns if batches else []
    del batches, batch
    return _frame_of(columns, names)


def read_arrow(path: Path, options: ReadOptions) -> pd.DataFrame:
    """Read a Feather file, which is in Arrow's format, as :func:`read_parquet` reads Parquet.

    Raises:
        DataError: The table is too large.
    """
    import pyarrow as pa

    batches = []
    rows = 0
    used = 0
    with pa.ipc.open_file(path) as file:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            rows += batch.num_rows
            used += batch.nbytes
            options.check_size(rows, used)
            batch.validate(full=True)
            batches.append(batch)
        table = pa.Table.from_batches(batches, file.schema)
    return _frame_of(table.columns, table.column_names)


def _frame_of(columns: list[pa.ChunkedArray], names: list[str]) -> pd.DataFrame:
    """Return a frame of columns. Each is freed as soon as pandas has it."""
    import pandas as pd

    # Without copy=False, all columns of a type would be copied into one block.
    frame = pd.DataFrame(
        {position: series_of(columns.pop(0)) for position in range(len(columns))}, copy=False
    )
    return frame.set_axis(names[: frame.shape[1]], axis=1)


def series_of(column: pa.ChunkedArray) -> pd.Series:
    """Convert an Arrow column to a pandas one without loss: to a NumPy type if that is enough,
    otherwise to a nullable type of pandas, otherwise to Arrow's own.
    """
    import pandas as pd
    import pyarrow as pa

    is_ = pa.types
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    kind = column.type
    has_numpy_type = (
        is_.is_boolean(kind)
        or is_.is_integer(kind)
        or is_.is_floating(kind)
        or is_.is_timestamp(kind)
        or is_.is_duration(kind)
        or is_.is_dictionary(kind)
    )
    dtype = None
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        column = column.cast(pa.large_string())
        dtype = text_dtype()
    elif is_.is_boolean(kind) and column.null_count:
        dtype = pd.api.types.pandas_dtype("boolean")
    elif is_.is_integer(kind) and column.null_count:
        # Whole numbers beyond 2**53 would change as floats.
        dtype = pd.api.types.pandas_dtype(str(kind).replace("i", "I").replace("u", "U"))
    elif not has_numpy_type:
        dtype = pd.ArrowDtype(kind)
    series: pd.Series = column.to_pandas(types_mapper=lambda _: dtype)
    return series


# ---------------------------------------------------------------------- SQL


def check_url(url: str) -> None:
    """Refuse a URL that holds a password, so that no configuration, log or checkpoint can contain
    one.

    Args:
        url: An SQLAlchemy URL, before its ``${NAME}`` are replaced.

    Raises:
        ConfigError: The URL holds a password, which the message does not show.

    Example:
        >>> check_url("postgresql://reader:${NORTH_PASSWORD}@db.north.example/cohort")
        >>> check_url("postgresql://reader:hunter2@db.north.example/cohort")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: database postgresql://…: the URL holds a password. ...
    """
    query = unquote_plus(url.partition("?")[2])
    addresses = [PASSWORD.match(part) for part in (url, *_BETWEEN.split(query))]
    for match in [*filter(None, addresses), *SECRET.finditer(query)]:
        secret = match["value"].strip()
        if secret and not VARIABLE.fullmatch(secret):
            raise ConfigError(
                f"database {url.partition('://')[0][:40]}://…: the URL holds a password. Write "
                f"${{NAME}} in its place, and set the environment variable NAME where fedlit runs."
            )


def read_sql(url: str, options: ReadOptions) -> pd.DataFrame:
    """Read the result of a query.

    Args:
        url: an SQLAlchemy URL without a password; ``${NAME}`` stands for an environment variable.
        options: the query, and the largest size.

    Returns:
        The columns, typed as the database gives them. The transaction is rolled back: only reading
        is meant.

    Raises:
        ConfigError: A variable is not set, or there is no query.
        DataError: There is no such file, or the table is too large.
    """
    query = options.query or ""
    expect(bool(query), "query", "a SELECT or the name of a table", Told("none"))
    for name in VARIABLE.findall(url):
        expect(
            bool(os.environ.get(name)),
            f"the environment variable {name}",
            "a value",
            Told("none"),
            "set it",
        )
    import pandas as pd
    import sqlalchemy as sa

    address = sa.make_url(
        VARIABLE.sub(lambda variable: quote(os.environ[variable[1]], safe="/:"), url)
    )
    path = address.database or ""
    is_sqlite = address.get_backend_name() == "sqlite"
    # SQLite would make an empty database of that name.
    if is_sqlite and not path.startswith("file:") and not Path(path).is_file():
        raise DataError(
            "path: expected sqlite:///relative/path or sqlite:////absolute/path, found no such file"
        )
    with sa.create_engine(address, poolclass=sa.NullPool).connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA query_only = ON")
        is_table = not re.search(r"\s", query.strip())
        select = f"SELECT * FROM {query}" if is_table else query
        # The driver takes the query as it stands: a colon in it is no parameter.
        result = connection.exec_driver_sql(select)
        names = list(result.keys())
        rows = result.fetchmany(options.max_rows + 1)
        options.check_size(len(rows))
    columns = {}
    for position in range(len(names)):
        columns[position] = _series_of([row[position] for row in rows])
    frame = pd.DataFrame(columns)
    options.check_size(size=int(frame.memory_usage(deep=True).sum()))
    return frame.set_axis(names, axis=1)


def _series_of(values: list[Any]) -> pd.Series:
    import pandas as pd
    import pyarrow as pa

    try:
        return series_of(pa.chunked_array([pa.array(values, from_pandas=False)]))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # In SQLite, cells of a column may be of several types, and they stay what they are.
        return pd.Series(values, dtype=object)
