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
            archive.filename = f"{path}/{inner[0]}"  # for messages
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
    try:
        return file.read_bytes().decode("utf-8-sig").rstrip().splitlines()
    except (OSError, KeyError, UnicodeError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"file {file}: expected a whole text file, found: {error}. Get the original again.") from error


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
    lines = read_lines(file) or [""]
    expected = f"file {file}: expected lines of {columns} finite numbers, found"
    if "" in map(str.strip, lines):
        raise DataError(f"{expected} line {[*map(str.strip, lines)].index('') + 1} empty. Get the original again.")
    try:
        found = np.loadtxt(lines, dtype=np.float64, comments=None, ndmin=2, usecols=range(columns) if more else None)
    except ValueError as error:
        raise DataError(f"{expected}: {error}. Get the original again.") from error
    if found.shape[1] != columns or not np.isfinite(found).all():
        line = 1 + int((~np.isfinite(found)).any(axis=1).argmax())
        raise DataError(f"{expected} {found.shape[1]} fields, or others, in line {line}. Get the original again.")
    return found
