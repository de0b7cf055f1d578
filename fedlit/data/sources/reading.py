"""Reading delimited text so that a damaged file is an error, never a shorter or shifted table."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedlit.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_csv", "require_columns"]


def read_csv(
    path: Path,
    *,
    client: str | None = None,
    names: Sequence[str] | None = None,
    required: Iterable[str] = (),
    encoding: str = "utf-8",
    missing: Sequence[str] = (),
    **options: Any,
) -> pd.DataFrame:
    """Read a comma-separated file, plain or ``.gz``.

    Args:
        path: the file.
        client: whose file it is; messages name it.
        names: the names of the columns of a file without a header; None if its first line is the header.
        required: columns that must be there.
        encoding: how the file's text is encoded.
        missing: texts that mean a missing value, beside those that pandas knows (an empty cell, ``NA`` and so on).
        **options: passed to ``pandas.read_csv``.

    Returns:
        One row for each line, numbered from 0. Blanks around a number and before a text are removed.

    Raises:
        DataError: if the file is absent, unreadable, cut short, empty, ragged, in another encoding, has two columns of
            one name, or lacks a column.
    """
    import pandas as pd

    where = f"client {client!r}, file {path}" if client else f"file {path}"
    try:
        _check_first_lines(where, path, encoding, names)
        frame: pd.DataFrame = pd.read_csv(
            path,
            header=0 if names is None else None,
            names=None if names is None else list(names),
            encoding=encoding,
            na_values=list(missing),
            skipinitialspace=True,
            **options,
        )
        # pandas fills a short line with missing values from the right, so only such a line needs a second look.
        if len(frame) and frame.iloc[:, -1].isna().any():
            _check_no_short_line(where, path, encoding, frame.shape[1])
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise DataError(f"{where}: expected a gzip file, found something else. Fetch the file again.") from error
        raise DataError(f"{where}: cannot be read: {error.strerror or error}. Check path and rights.") from error
    except (EOFError, zlib.error) as error:
        raise DataError(f"{where}: is cut short or damaged ({error}). Fetch the file again.") from error
    except (UnicodeError, LookupError) as error:
        raise DataError(
            f"{where}: expected text encoded as {encoding}, found something else ({error}). Save the file as UTF-8, or "
            f"name its encoding (encoding: latin-1, for example)."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise DataError(
            f"{where}: expected rows of data, found an empty file. Fetch or write the file again."
        ) from error
    except (pd.errors.ParserError, csv.Error) as error:
        raise DataError(f"{where}: is no regular table: {_one_line(error)}. Correct that line.") from error
    except (ValueError, OverflowError) as error:  # what pandas raises where the caller states the columns' types
        if names is not None:
            _check_no_short_line(where, path, encoding, len(names))
        raise DataError(
            f"{where}: holds a value that does not fit its column: {_one_line(error)}. Correct the value, or fetch the "
            f"file again."
        ) from error
    if frame.empty:
        raise DataError(f"{where}: expected rows of data, found none. Fetch or write the file again.")
    require_columns(frame, required, where)
    return frame


def require_columns(frame: pd.DataFrame, required: Iterable[str], where: str) -> None:
    """Refuse a table that lacks a column.

    Args:
        frame: the table.
        required: the names that must be there.
        where: whose table it is, the start of the message.

    Raises:
        DataError: naming the first column that is not there, and those that are.
    """
    found = [str(column) for column in frame.columns]
    for column in required:
        if column not in found:
            shown = ", ".join(found[:12]) + (", …" if len(found) > 12 else "")
            raise DataError(
                f"{where}: expected a column {column!r}, found {shown}.{did_you_mean(column, found)} "
                f"Correct the name or the file."
            )


def _check_first_lines(where: str, path: Path, encoding: str, names: Sequence[str] | None) -> None:
    with _open_text(path, encoding) as text:
        lines = (fields for fields in csv.reader(text, skipinitialspace=True) if fields)
        header = [name.strip() for name in next(lines, [])] if names is None else list(names)
        first = next(lines, [])
    # pandas would silently take the first column for an index; a later line that is too long is an error of its own.
    if header and len(first) > len(header):
        raise DataError(
            f"{where}: expected {len(header)} fields in each line, found {len(first)} in the first line of data. "
            f"Correct the file (often there is a comma too many at the end of each line)."
        )
    for name, times in Counter(header).items():
        if times > 1 and name:
            raise DataError(f"{where}: {times} columns are called {name!r}. Rename or drop all but one.")


def _check_no_short_line(where: str, path: Path, encoding: str, width: int) -> None:
    with _open_text(path, encoding) as text:
        reader = csv.reader(text, skipinitialspace=True)
        for fields in reader:
            if fields and len(fields) < width:
                raise DataError(
                    f"{where}, line {reader.line_num}: expected {width} fields, found {len(fields)}. The file may be "
                    f"cut short: fetch it again, or correct that line."
                )


def _open_text(path: Path, encoding: str) -> TextIO:
    # newline=None: lines that end in a bare carriage return are lines too.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding=encoding, newline=None)
    return path.open(encoding=encoding, newline=None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).replace("Error tokenizing data. C error:", "").split()).rstrip(".")
