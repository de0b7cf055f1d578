"""Rows from a file, and their scores in one. Light: pandas is imported when there is something to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_input", "check_output", "read_rows", "scores_beside", "write_scores"]

_TEXT, _PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")


def _ends(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(endings)


def check_input(path: Path) -> None:
    """Refuse a file that cannot be read as a table.

    Raises:
        DataError: it is not there, or of another kind.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "none"
        raise DataError(f"--data: expected a file {path}, found {found}; correct the path")
    if not _ends(path, (*_TEXT, *_PARQUET)):
        raise DataError(f"--data: expected a file that ends in {', '.join((*_TEXT, *_PARQUET))}, found {path.name}")


def check_output(path: Path, data: Path) -> None:
    """Refuse a file that scores cannot be written to.

    Raises:
        DataError: it ends in something else, or is the file of the rows.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"--out: expected a file that ends in .csv or .parquet, found {path.name!r}")
    if path.is_dir():
        raise DataError(f"--out: expected a file, found the folder {path}; add a name, such as {path / 'scores.csv'}")
    if path.resolve() == data.resolve():
        raise DataError(f"--out: expected another file than that of the rows, found {path} for both")


def scores_beside(data: Path) -> Path:
    """The file that scores are written to where nobody names one.

    Example:
        >>> scores_beside(Path("new.csv.gz")).name
        'new.scores.csv'
    """
    ending = next(own for own in sorted((*_TEXT, *_PARQUET), key=len, reverse=True) if _ends(data, (own,)))
    return data.with_name(data.name[: -len(ending)] + (".scores.csv" if ending in _TEXT else ".scores.parquet"))


def read_rows(path: Path, client: str) -> pd.DataFrame:
    """The rows of a file: of CSV all cells as text, for what they mean is the client's encoder's to say.

    Raises:
        DataError: it is damaged, or has no rows.
    """
    check_input(path)
    if _ends(path, _TEXT):
        from fedlit.data.sources.reading import read_csv

        return read_csv(path, client=client, missing=["?"], dtype=str)
    import pandas as pd

    try:
        return pd.read_parquet(path, engine="pyarrow").reset_index(drop=True)
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these classes
        what = " ".join(str(error).split())
        raise DataError(f"file {path}: is no readable Parquet file: {what}; write the file again") from error


def write_scores(scores: pd.DataFrame, path: Path) -> bool:
    """Write them as the file's ending says; whether there was a file before.

    Raises:
        DataError: nothing can be written there.
    """
    replaced = path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".csv":
            scores.to_csv(path, index=False)
        else:
            scores.to_parquet(path, index=False)
    except OSError as error:
        raise DataError(f"--out {path}: cannot be written: {error.strerror or error}; give another file") from error
    return replaced
