"""Reading CSV files of known data sets so that a damaged file is an error, never a shorter or shifted table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_csv"]


def read_csv(
    path: Path,
    *,
    client: str | None = None,
    names: Sequence[str] | None = None,
    required: Iterable[str] = (),
    missing: Sequence[str] = (),
    types: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Read a comma-separated UTF-8 file, plain or ``.gz``, by pyarrow, which is strict.

    Args:
        path: the file.
        client: whose file it is; messages name it.
        names: the names of the columns of a file without a header; None if its first line is the header.
        required: columns that must be there.
        missing: texts that mean a missing value.
        types: column → its NumPy type, or ``str``; found if it is not among them.

    Returns:
        One row for each line, numbered from 0.

    Raises:
        DataError: if the file is unreadable, cut short, empty, ragged, has two columns of one name, or lacks a column.
    """
    import pyarrow as pa
    from pyarrow import csv

    where = f"client {client!r}, file {path}" if client else f"file {path}"
    try:
        with pa.input_stream(str(path)) as stream:  # unpacks .gz
            table = csv.read_csv(
                stream,
                csv.ReadOptions(column_names=names, use_threads=False),
                convert_options=csv.ConvertOptions(
                    null_values=list(missing),
                    strings_can_be_null=bool(missing),
                    column_types={
                        name: pa.string() if own is str else pa.from_numpy_dtype(own)
                        for name, own in (types or {}).items()
                    },
                ),
            )
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{where}: expected a regular table, found: {error}. Correct the file or fetch it again."
        ) from error
    found = [str(name) for name in table.column_names]
    for column in required:
        if column not in found:
            raise DataError(
                f"{where}: expected a column {column!r}, found {', '.join(found[:12])}.{did_you_mean(column, found)} "
                "Correct the name or the file."
            )
    if twice := [name for name in found if found.count(name) > 1]:
        raise DataError(f"{where}: two columns are called {twice[0]!r}. Rename or drop one.")
    if not len(table):
        raise DataError(f"{where}: expected rows of data, found none. Fetch or write the file again.")
    frame: pd.DataFrame = table.to_pandas()
    return frame
