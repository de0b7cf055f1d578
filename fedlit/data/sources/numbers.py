"""Plain numbers in the files of a folder or an archive."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlit.errors import DataError

__all__ = ["Place", "open_place", "read_numbers"]

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
    except Exception as error:  # of a damaged archive the reader raises many kinds
        raise DataError(f"file {path}: expected a whole zip archive, found: {error}. Get it again.") from error


def read_numbers(file: Place, columns: int, more: bool = False) -> NDArray[np.float64]:
    """A table of numbers that are divided by blanks, one row a line, without a header.

    Args:
        file: where it is.
        columns: how many numbers a line has.
        more: whether lines may have more, which are dropped.

    Returns:
        Finite numbers, (lines, columns).

    Raises:
        DataError: the file is absent, damaged or empty, or a line has another length or something else than numbers.
    """
    import pandas as pd

    try:
        with io.BytesIO(file.read_bytes()) as stream:
            frame = pd.read_csv(
                stream,
                sep=r"\s+",
                header=None,
                usecols=range(columns) if more else None,
                skip_blank_lines=False,
            )
        found = frame.to_numpy(dtype=np.float64)
        if found.shape[1] != columns or not np.isfinite(found).all():
            raise ValueError(f"{found.shape[1]} fields, or others")
    except Exception as error:  # of a damaged file readers raise many kinds
        raise DataError(
            f"file {file}: expected lines of {columns} finite numbers, found: {error}. Get the original again."
        ) from error
    return found
