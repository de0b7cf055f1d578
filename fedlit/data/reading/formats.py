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
        path: the file.
        options: how it is read.
        add: takes the notes.

    Returns:
        One ``str`` column for each. A whole number is written without a point, a date as ISO 8601
        does.

    Raises:
        DataError: the sheet is no table, or too large.
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
        sheets = [own.title for own in book.worksheets]
        wanted = options.sheet
        listed = shorten([*map(repr, sheets)])
        if wanted is None and len(sheets) > 1:
            add(
                f"of its sheets {listed} only the first is read; sheet chooses another",
                sheet=sheets[0],
            )
        place = wanted or 0
        title = sheets[place] if isinstance(place, int) and place < len(sheets) else place
        expect(
            title in sheets,
            "sheet",
            f"one of {listed}, or its place from 0 on",
            title,
            "",
            DataError,
            sheets,
        )
        sheet = book[title]
        sheet.reset_dimensions()  # what a file says of its size may be wrong
        width = 0
        for cells in sheet.iter_rows(values_only=not padded):
            row = [_padded(cell) if padded else _text_of(cell) for cell in cells]
            while row and not row[-1]:
                row.pop()
            width = max(width, len(row))  # a title above the header is shorter
            writer.writerow(row + [""] * (width - len(row)) if row else [])
    return read_text(text.getvalue().encode(), options, add, ",")


def _look_at_sheets(path: Path, options: ReadOptions, add: Add) -> bool:
    """Note what is odd about sheets, and return whether a format shows numbers with leading zeros."""
    with zipfile.ZipFile(path) as archive:  # which reads no more of a member than its entry says
        options.check_size(size=sum(own.file_size for own in archive.infolist()))
        names = archive.namelist()
        contents = [archive.read(own) for own in names if own.startswith("xl/worksheets/sheet")]
        styles = [archive.read(own) for own in names if own == "xl/styles.xml"]
    if any(map(NOT_COMPUTED.search, contents)):
        add(
            "some formulas have no computed value and are read as empty. Open and save the file in "
            "Excel"
        )
    if any(b"<mergeCell " in own for own in contents):
        add(
            "it has merged cells, of which only the first has the value. If some are rows of data, "
            "unmerge them in Excel and fill them in"
        )
    hidden = sum(len(HIDDEN.findall(own)) for own in contents)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        add(f"{counted(hidden, 'hidden row')} {verb} read like the others", "converted")
    return any(map(SHOWS_ZEROS.search, styles))


def _padded(cell: Any) -> str:
    """Return a cell's text, with leading zeros if its format shows them, as those of postcodes do."""
    text = _text_of(cell.value)
    is_padded = isinstance(cell.value, int) and ZEROS.fullmatch(cell.number_format)
    return text.zfill(len(cell.number_format)) if is_padded else text


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
            # Excel itself shows 15 digits.
            return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
        case datetime.datetime():
            return value.isoformat().removesuffix("T00:00:00")
    return str(value)


# ---------------------------------------------------------------------- Parquet


def read_parquet(path: Path, options: ReadOptions) -> pd.DataFrame:
    """Read a Parquet file and check its size while reading.

    Args:
        path: the file.
        options: the largest size.

    Returns:
        The columns, typed as they are in the file. Whole numbers and truth values with gaps have
        pandas' nullable types; decimals, dates, times, bytes and nested values keep Arrow's.

    Raises:
        DataError: it is too large.
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
            rows = rows + batch.num_rows
            used = used + batch.nbytes
            options.check_size(rows, used)
            # a damaged file points outside of its own memory, which would end the process
            batch.validate(full=True)
            batches.append(batch)
    columns = pa.Table.from_batches(batches).columns if batches else []
    del batches, batch
    return _frame_of(columns, names)


def read_arrow(path: Path, options: ReadOptions) -> pd.DataFrame:
    """Read a Feather file, which is a file of Arrow's, as :func:`read_parquet` reads Parquet.

    Raises:
        DataError: it is too large.
    """
    import pyarrow as pa

    batches = []
    rows = 0
    used = 0
    with pa.ipc.open_file(path) as file:
        for place in range(file.num_record_batches):
            batch = file.get_batch(place)
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

    # without copy=False, all of one type would be copied into one block
    frame = pd.DataFrame(
        {place: series_of(columns.pop(0)) for place in range(len(columns))}, copy=False
    )
    return frame.set_axis(names[: frame.shape[1]], axis=1)


def series_of(column: pa.ChunkedArray) -> pd.Series:
    """Convert an Arrow column to a pandas one without loss: to a NumPy type if that is enough,
    otherwise to a nullable type of pandas, otherwise to Arrow's own.
    """
    import pandas as pd
    import pyarrow as pa

    is_ = pa.types
    own = None
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        )
    kind = column.type
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        column = column.cast(pa.large_string())
        own = text_dtype()
    elif is_.is_boolean(kind) or is_.is_integer(kind):
        # Whole numbers beyond 2**53 would change as floats.
        name = "boolean" if is_.is_boolean(kind) else str(kind).replace("i", "I").replace("u", "U")
        own = pd.api.types.pandas_dtype(name) if column.null_count else None
    elif not (
        is_.is_floating(kind)
        or is_.is_timestamp(kind)
        or is_.is_duration(kind)
        or is_.is_dictionary(kind)
    ):
        own = pd.ArrowDtype(kind)
    series: pd.Series = column.to_pandas(types_mapper=lambda _: own)
    return series


# ---------------------------------------------------------------------- SQL


def check_url(url: str) -> None:
    """Refuse a URL that holds a password, so that no configuration, log or checkpoint can contain
    one.

    Args:
        url: an SQLAlchemy URL, before its ``${NAME}`` are replaced.

    Raises:
        ConfigError: if it does; the message does not show it.

    Example:
        >>> check_url("postgresql://reader:${NORTH_PASSWORD}@db.north.example/cohort")
        >>> check_url("postgresql://reader:hunter2@db.north.example/cohort")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: database postgresql://…: the URL holds a password. ...
    """
    query = unquote_plus(url.partition("?")[2])
    addresses = [PASSWORD.match(part) for part in (url, *_BETWEEN.split(query))]
    found = [*filter(None, addresses), *SECRET.finditer(query)]
    if any((value := own["value"].strip()) and not VARIABLE.fullmatch(value) for own in found):
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
        ConfigError: a variable is not set, or there is no query.
        DataError: there is no such file, or the table is too large.
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

    whole = sa.make_url(VARIABLE.sub(lambda own: quote(os.environ[own[1]], safe="/:"), url))
    path = whole.database or ""
    # SQLite would make an empty database of that name.
    there = whole.get_backend_name() != "sqlite" or path.startswith("file:") or Path(path).is_file()
    expect(
        there,
        "path",
        "sqlite:///relative/path or sqlite:////absolute/path",
        Told("no such file"),
        "",
        DataError,
    )
    with sa.create_engine(whole, poolclass=sa.NullPool).connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA query_only = ON")
        select = query if re.search(r"\s", query.strip()) else f"SELECT * FROM {query}"
        result = connection.exec_driver_sql(select)  # as it stands: a colon in it is no parameter
        names = list(result.keys())
        rows = result.fetchmany(options.max_rows + 1)
        options.check_size(len(rows))
    frame = pd.DataFrame(
        {place: _series_of([row[place] for row in rows]) for place in range(len(names))}
    )
    options.check_size(size=int(frame.memory_usage(deep=True).sum()))
    return frame.set_axis(names, axis=1)


def _series_of(values: list[Any]) -> pd.Series:
    import pandas as pd
    import pyarrow as pa

    try:
        return series_of(pa.chunked_array([pa.array(values, from_pandas=False)]))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # In SQLite cells of one column may be of several types, and those stay what they are.
        return pd.Series(values, dtype=object)
