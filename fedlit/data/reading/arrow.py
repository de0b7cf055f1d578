"""Parquet and Feather: typed as they are, bounded before they are read, with one copy in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import chosen, tidy, with_made_names
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, one_line
from fedlit.data.reading.texts import text_dtype
from fedlit.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["check_bytes", "check_rows", "read_feather", "read_parquet", "series_of"]

GROUP_BYTES = 2**28


def read_parquet(path: Path, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read a Parquet file, column by column.

    Args:
        path: the file.
        options: which columns are kept, how many rows and bytes there may be.
        notes: takes what is left out; whose file it is.

    Returns:
        The columns, typed as they are in the file. Whole numbers and truth values with gaps have pandas' nullable
        types; decimals, dates, times, bytes and nested values keep Arrow's.

    Raises:
        DataError: if the file is damaged or too large.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _said(notes), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        places, names = _columns(schema, options, notes)
        given, kinds = schema.names, schema.types
        rows = file.metadata.num_rows
        check_rows(rows, options, notes)
        sizes = [_least_bytes(kind, rows) for kind in kinds]
        check_bytes(sum(sizes[place] for place in places), options, notes)
    # Texts that a file keeps once may fill memory when each cell holds its own: they are read as codes and counted.
    texts = [name for name, kind in zip(given, kinds, strict=True) if _is_text(kind)]
    series: dict[str, pd.Series] = {}
    used = 0
    with _said(notes), pq.ParquetFile(path, read_dictionary=texts) as file:
        for group in _groups(places, sizes):
            columns = file.read([given[place] for place in group], use_pandas_metadata=False).columns
            for place in group:
                column = columns.pop(0)
                used += _bytes_of(column, as_text=_is_text(kinds[place]))
                check_bytes(used, options, notes)
                if _is_text(kinds[place]):
                    column = column.cast(pa.large_string())
                if not _fits_numpy(kinds[place]):
                    column.validate(full=True)  # texts that are no UTF-8
                series[names[place]] = series_of(column)
    return _frame(series)


def read_feather(path: Path, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read a Feather (Arrow) file, as :func:`read_parquet` does; it is bounded batch by batch."""
    import pyarrow as pa

    with _said(notes), pa.OSFile(str(path)) as file:  # a mapped file could be changed below the frame
        schema = pa.ipc.open_file(file).schema
        places, names = _columns(schema, options, notes)
        reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=places))
        batches, rows, used = [], 0, 0
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rows, used = rows + batch.num_rows, used + batch.nbytes
            check_rows(rows, options, notes)
            check_bytes(used, options, notes)
            batch.validate(full=True)  # a damaged file points outside of its own memory, which would end the process
            batches.append(batch)
        columns = pa.Table.from_batches(batches, reader.schema).columns
        del batches, reader
        return _frame({names[place]: series_of(columns.pop(0)) for place in places})


def check_rows(rows: int, options: ReadOptions, notes: Notes) -> None:
    """Refuse a table with more rows than it may have."""
    if rows > options.max_rows:
        raise notes.error(
            f"expected at most {options.max_rows:,} rows, found {rows:,} or more. Raise max_rows if the table is meant "
            f"to be that large."
        )


def check_bytes(found: int, options: ReadOptions, notes: Notes) -> None:
    """Refuse a table with more bytes than it may have."""
    if found > options.max_bytes:
        raise notes.error(
            f"expected at most {options.max_bytes:,} bytes in memory, found {found:,} or more. Keep fewer columns, or "
            f"raise max_bytes if the table is meant to be that large."
        )


@contextmanager
def _said(notes: Notes) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise notes.error(
            f"is damaged, or not of its kind ({one_line(error)}). Fetch or write the file again."
        ) from error


def _columns(schema: pa.Schema, options: ReadOptions, notes: Notes) -> tuple[list[int], list[str]]:
    """The places to read, and the names of all columns."""
    names = with_made_names(tidy(schema.names, notes))
    places = chosen(names, options, notes)
    index = _index_names(schema)
    left_out = [name for name in index if name in names and name not in (options.keep or ())]
    places = [place for place in places if names[place] not in left_out]
    named = [name for name in left_out if not name.startswith("__index_level_")]
    if named:
        notes.add(f"the pandas index {', '.join(map(repr, named))} is not read. keep reads it if it is named there.")
    if not places:
        raise notes.error("expected columns, found none beside the index. Write the file with columns.")
    return places, names


def _index_names(schema: pa.Schema) -> list[str]:
    try:
        given = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return []
    return [name for name in given if isinstance(name, str)]


def _least_bytes(kind: pa.DataType, rows: int) -> int:
    """Bytes that a column takes in memory, at least."""
    try:
        return rows * int(kind.bit_width) // 8
    except ValueError:  # text, lists and so on have no fixed width
        return rows


def _groups(places: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Columns to read at once: one by one costs time where there are thousands, all at once costs memory twice."""
    group: list[int] = []
    size = 0
    for place in places:
        if group and size + sizes[place] > GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(place)
        size += sizes[place]
    if group:
        yield group


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _bytes_of(column: pa.ChunkedArray, *, as_text: bool) -> int:
    """Bytes of a column in memory; of texts read as codes, once each cell holds its text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not as_text or not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    size = 8 * len(column)
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
        size += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return size


def series_of(column: pa.ChunkedArray) -> pd.Series:
    """An Arrow column as a pandas one that loses nothing.

    Args:
        column: any type.

    Returns:
        NumPy types where these can say the same, else pandas' nullable types, else Arrow's.
    """
    import pandas as pd
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    kind = column.type
    if pa.types.is_null(kind):
        return pd.Series([None] * len(column), dtype=object)
    gaps = column.null_count > 0
    own: Any = None
    if _is_text(kind):
        column, own = column.cast(pa.large_string()), text_dtype()
    elif pa.types.is_integer(kind) and gaps:
        # Whole numbers beyond 2**53 would change as floats.
        own = getattr(pd, f"{'UInt' if pa.types.is_unsigned_integer(kind) else 'Int'}{kind.bit_width}Dtype")()
    elif pa.types.is_boolean(kind) and gaps:
        own = pd.BooleanDtype()
    elif not _fits_numpy(kind):
        own = pd.ArrowDtype(kind)
    try:
        series: pd.Series = column.to_pandas(types_mapper=(lambda _: own) if own is not None else None)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, LookupError):
        series = pd.Series(
            pd.arrays.ArrowExtensionArray(column)
        )  # times that pandas' own type cannot hold, for example
    return series


def _fits_numpy(kind: pa.DataType) -> bool:
    import pyarrow as pa

    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_timestamp,
        pa.types.is_duration,
    )
    if pa.types.is_dictionary(kind):
        return not pa.types.is_nested(kind.value_type)
    return any(test(kind) for test in tests)


def _frame(series: dict[str, pd.Series]) -> pd.DataFrame:
    import pandas as pd

    # Without copy=False all columns of one type would be copied into one block.
    return pd.DataFrame(series, copy=False)
