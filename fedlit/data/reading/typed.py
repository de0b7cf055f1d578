"""Parquet and Feather: typed as they are, and bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import check_size, chosen, text_dtype, tidy, with_made_names
from fedlit.data.reading.options import Notes, ReadOptions, one_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["read_feather", "read_parquet", "series_of"]


def read_parquet(path: Path, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read a Parquet file.

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
    import pyarrow.parquet as pq

    with _said(notes), pq.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        places, names = _columns(schema, options, notes)
        check_size(rows, rows * sum(_least_bits(schema.types[place]) for place in places) // 8, options, notes)
    # Texts that a file keeps once may fill memory when each cell holds its own: they are read as codes and counted.
    texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if _is_text(kind)]
    with _said(notes), pq.ParquetFile(path, read_dictionary=texts) as file:
        columns = file.read([schema.names[place] for place in places], use_pandas_metadata=False).columns
        check_size(rows, sum(map(_bytes_of, columns)), options, notes)
        return _frame(columns, [schema.types[place] for place in places], [names[place] for place in places])


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
            check_size(rows, used, options, notes)
            batch.validate(full=True)  # a damaged file points outside of its own memory, which would end the process
            batches.append(batch)
        columns = pa.Table.from_batches(batches, reader.schema).columns
        del batches, reader
        return _frame(columns, [schema.types[place] for place in places], [names[place] for place in places])


@contextmanager
def _said(notes: Notes) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise notes.error(
            f"is damaged, or not of its kind ({one_line(error)}). Fetch or write the file again."
        ) from error


def _columns(schema: pa.Schema, options: ReadOptions, notes: Notes) -> tuple[list[int], list[str]]:
    """The places to read, and the names of all columns."""
    names = with_made_names(tidy(schema.names, notes))
    index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    left_out = [name for name in index if name in names and name not in (options.keep or ())]
    places = [place for place in chosen(names, options, notes) if names[place] not in left_out]
    named = [name for name in left_out if not name.startswith("__index_level_")]
    if named:
        notes.add(f"the pandas index {', '.join(map(repr, named))} is not read. keep reads it if it is named there.")
    if not places:
        raise notes.error("expected columns, found none beside the index. Write the file with columns.")
    return places, names


def _least_bits(kind: pa.DataType) -> int:
    """Bits that a cell takes in memory, at least."""
    try:
        return int(kind.bit_width)
    except ValueError:  # text, lists and so on have no fixed width
        return 8


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _bytes_of(column: pa.ChunkedArray) -> int:
    """Bytes of a column in memory; of texts read as codes, once each cell holds its text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return int(column.nbytes)
    lengths = (pc.binary_length(chunk.dictionary).cast("int64").take(chunk.indices) for chunk in column.chunks)
    return 8 * len(column) + sum(pc.sum(own).as_py() or 0 for own in lengths)


def _frame(columns: list[pa.ChunkedArray], kinds: list[pa.DataType], names: list[str]) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    series = {}
    for name, kind in zip(names, kinds, strict=True):
        column = columns.pop(0)  # freed as soon as pandas has it
        column = column.cast(pa.large_string()) if _is_text(kind) else column
        column.validate(full=not pa.types.is_primitive(kind))  # texts that are no UTF-8
        series[name] = series_of(column)
    # Without copy=False all columns of one type would be copied into one block.
    return pd.DataFrame(series, copy=False)


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
    kind, own = column.type, None
    test = pa.types
    value = kind.value_type if test.is_dictionary(kind) else kind
    if test.is_null(kind):
        return pd.Series([None] * len(column), dtype=object)
    if _is_text(kind):
        column, own = column.cast(pa.large_string()), text_dtype()
    elif column.null_count and (test.is_integer(kind) or test.is_boolean(kind)):
        # Whole numbers beyond 2**53 would change as floats.
        own = _nullable()[kind]
    elif test.is_nested(value) or not (test.is_dictionary(kind) or _fits_numpy(kind)):
        own = pd.ArrowDtype(kind)
    try:
        series: pd.Series = column.to_pandas(types_mapper=(lambda _: own) if own is not None else None)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, LookupError):
        # times that pandas' own type cannot hold, for example
        series = pd.Series(pd.arrays.ArrowExtensionArray(column))
    return series


def _nullable() -> dict[Any, Any]:
    import pandas as pd
    import pyarrow as pa

    whole = [getattr(pd, f"{sign}Int{bits}Dtype")() for sign in ("", "U") for bits in (8, 16, 32, 64)]
    return {pa.from_numpy_dtype(own.numpy_dtype): own for own in (*whole, pd.BooleanDtype())}


def _fits_numpy(kind: pa.DataType) -> bool:
    import pyarrow as pa

    own = pa.types
    return any(
        test(kind) for test in (own.is_integer, own.is_floating, own.is_boolean, own.is_timestamp, own.is_duration)
    )
