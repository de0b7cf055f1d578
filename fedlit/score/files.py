"""Reads rows from a file, and writes their scores to one. It imports pandas only when there is
something to read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.data.sources.reads import ENDINGS
from fedlit.errors import DataError, told_as
from fedlit.files import write_frames

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.reading import Raw
    from fedlit.data.row_encoder import RowEncoder

_OF_A_FILE = ("sep", "encoding", "sheet", "rename", "query")
"""The settings of reading that depend on the file, and not on the client."""
_PACKED = (".gz", ".bz2", ".xz", ".zip")
_TYPED = (
    ".parquet",
    ".pq",
    ".feather",
    ".arrow",
    ".xlsx",
    ".sav",
    ".zsav",
    ".dta",
    ".sas7bdat",
    ".xpt",
)
_KINDS = (".csv", ".tsv", ".txt", ".data", *_TYPED, *ENDINGS)


def _apart(path: Path) -> tuple[str, str]:
    """Return a file's name without its endings, and its kind by these endings."""
    if path.suffix.lower() in _PACKED:
        path = path.with_suffix("")
    return path.stem, path.suffix.lower()


def has_reads(path: Path) -> bool:
    """Return whether a file contains reads, judging by its name.

    Example:
        >>> has_reads(Path("new.FASTA.gz"))
        True
    """
    return _apart(path)[1] in ENDINGS


def check_input(path: Path) -> None:
    """Refuse a file that cannot be read as a table.

    Raises:
        DataError: the file does not exist, or is of another kind.
    """
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "none"
        raise DataError(f"--data: expected a file {path}, found {kind}; correct the path")
    if _apart(path)[1] not in _KINDS:
        raise DataError(
            f"--data: expected a file that ends in {', '.join(_KINDS)} (packed or not), found "
            f"{path.name}"
        )


def check_output(path: Path, data: Path) -> None:
    """Refuse a file to which scores cannot be written.

    Raises:
        DataError: the file has another ending, or is the file of the rows.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(
            f"--out: expected a file that ends in .csv or .parquet, found {path.name!r}"
        )
    if path.is_dir():
        raise DataError(
            f"--out: expected a file, found the folder {path}; add a name, such as "
            f"{path / 'scores.csv'}"
        )
    if path.resolve() == data.resolve():
        raise DataError(f"--out: expected a different file from --data, found {path} for both")


def scores_beside(data: Path) -> Path:
    """Return the file for scores if the user names none.

    Example:
        >>> scores_beside(Path("new.csv.gz")).name
        'new.scores.csv'
    """
    name, kind = _apart(data)
    ending = ".parquet" if kind in _TYPED else ".csv"
    return data.with_name(f"{name}.scores{ending}")


def read_rows(path: str | Path, encoder: RowEncoder) -> Raw:
    """Read the rows of a file in the same way as the client's training file. The cells of a CSV
    file stay text, because the encoder decides what they mean.

    Raises:
        DataError: the file is damaged, or has no rows.
    """
    from fedlit.data.reading import ReadOptions, read_table
    from fedlit.data.sources.reads import are_positions, new_reads

    path = Path(path)
    check_input(path)
    schema = encoder.schema
    client = encoder.client
    if has_reads(path):
        if not are_positions(list(encoder.columns)):
            raise DataError(
                f"--data: expected rows of a table, as client {client!r} has, found reads in "
                f"{path.name}; name a client of reads, or a table"
            )
        return new_reads(path, list(encoder.columns), f"client {client!r}, file {path}")
    # Another file may be written in another way, and lack a renamed column, such as the target.
    settings = {key: value for key, value in schema.reading.items() if key not in _OF_A_FILE}
    try:
        return read_table(path, ReadOptions.from_dict(settings, f"client {client!r}"), client)
    except DataError:
        without = [name for name in settings.get("names", ()) if name != encoder.target_name]
        if len(without) == len(settings.get("names", ())):
            raise
        return read_table(
            path,
            ReadOptions.from_dict({**settings, "names": without}, f"client {client!r}"),
            client,
        )


def write_scores(scores: pd.DataFrame, path: Path, raw: bool = False) -> bool:
    """Write scores in the format of the file's ending, see :func:`fedlit.files.write_frames`.
    Return whether the file existed before.

    Raises:
        DataError: nothing can be written there.
    """
    replaced = path.exists()
    with told_as(
        lambda error: DataError(
            f"--out {path}: expected a file that can be written, found: {error}"
        )
    ):
        write_frames({path.resolve(): scores}, raw)
    return replaced
