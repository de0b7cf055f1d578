"""Plain numbers in a folder's or an archive's files, read so that damage is an error that names file and line."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError

__all__ = ["Place", "open_place", "read_lines", "read_numbers"]

Place = Path | zipfile.Path
"""A folder or a file, on disk or in an archive."""


def open_place(path: Path) -> Place:
    """The folder itself, or the top of a zip; an archive that holds nothing but another one is opened too.

    Raises:
        DataError: the archive cannot be read.
    """
    if path.is_dir():
        return path
    try:
        archive = zipfile.ZipFile(path)
        inner = [name for name in archive.namelist() if name.lower().endswith(".zip")]
        if len(inner) == 1:  # as UCI packs some of its sets
            archive = zipfile.ZipFile(io.BytesIO(archive.read(inner[0])))
        return zipfile.Path(archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise DataError(
            f"file {path}: expected a whole zip archive, found one that cannot be opened ({error}). Get it again."
        ) from error


def read_lines(file: Place) -> list[str]:
    """The lines of a text file, without their ends and without blank lines at the file's end.

    Raises:
        DataError: the file is absent, damaged, or no text.
    """
    if not file.is_file():
        raise DataError(f"file {file}: expected a file there, found none. Unpack the whole original again.")
    try:
        return file.read_bytes().decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"file {file}: expected text, found other bytes ({error}). Get the original again.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise DataError(
            f"file {file}: expected a whole file, found one that is damaged ({error}). Get the original again."
        ) from error


def read_numbers(file: Place, columns: int, more: bool = False) -> NDArray[np.float64]:
    """A table of numbers that are divided by blanks, one row a line, without a header.

    Args:
        file: where it is.
        columns: how many numbers a line has.
        more: whether lines may have more, which are dropped.

    Returns:
        Finite numbers, (lines, columns).

    Raises:
        DataError: the file is absent, damaged or empty, or has a line of another length or with something else than
            finite numbers; lines count from 1.
    """
    lines = read_lines(file)
    try:
        found = np.loadtxt(lines, dtype=np.float64, comments=None, ndmin=2) if lines else None
    except ValueError:
        found = None  # which line it is, is found below
    right = found is not None and (found.shape[1] == columns or (more and found.shape[1] > columns))
    if found is None or not right or len(found) != len(lines) or not np.isfinite(found).all():
        raise DataError(_what_is_wrong(file, lines, columns, more))
    return found[:, :columns]


def _what_is_wrong(file: Place, lines: list[str], columns: int, more: bool) -> str:
    expected = f"{'at least ' if more else ''}{columns} finite number{'s' if columns > 1 else ''}"
    again = "Get the original again."
    if not lines:
        return f"file {file}: expected lines of {expected}, found none. {again}"
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if len(fields) < columns or (len(fields) > columns and not more):
            return f"file {file}, line {number}: expected {expected}, found {len(fields)} fields. {again}"
        for field in fields:
            try:
                finite = bool(np.isfinite(float(field)))
            except ValueError:
                finite = False
            if not finite:
                return f"file {file}, line {number}: expected {expected}, found {field[:40]!r}. {again}"
    widths = sorted({len(line.split()) for line in lines})  # all lines are well, but not of one length
    return f"file {file}: expected lines of {expected} and of one length, found lines of {widths} fields. {again}"
