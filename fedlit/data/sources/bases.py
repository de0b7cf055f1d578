"""Reads of DNA as tables: a column for each position, coded alike everywhere; to train on, and to be scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedlit.errors import ConfigError, DataError
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BASES",
    "ENDINGS",
    "are_positions",
    "as_positions",
    "codes_in",
    "codes_of",
    "lengths",
    "new_reads",
    "position_names",
    "records_of",
    "texts_of",
    "without_bases",
]

BASES = "ACGNT"
"""The symbols by their codes 0 to 4, sorted as encoders sort categories; N is a base that was not read. The code of a
position behind a read's end is −1."""
ENDINGS = (".fasta", ".fa", ".fna", ".fastq", ".fq")

_READ = "read"
_PLAIN = str.maketrans({"U": "T", **dict.fromkeys("RYSWKMBDHV", "N")})  # RNA; IUPAC's letters for one of several bases
_LETTERS = np.array([*BASES, None], dtype=object)


def codes_of(reads: Iterable[str], length: int, where: str) -> tuple[np.ndarray, list[str]]:
    """Codes of bases (n, length) int8, −1 behind a read's end; longer reads are cut. Other letters for a base are
    converted, which the notes list.

    Args:
        reads: texts of letters.
        length: positions.
        where: whose reads, for messages.

    Returns:
        The codes, and notes.

    Raises:
        DataError: a letter that means no base.

    Example:
        >>> codes, notes = codes_of(["ACGTT", "u"], 4, "client 'north'")
        >>> codes.tolist(), notes[0]
        ([[0, 1, 2, 4], [4, -1, -1, -1]], 'converted: u to T (1)')
    """
    made, converted, others = [], Counter[str](), Counter[int]()
    for row, read in enumerate(reads, 1):
        plain = read[:length].upper().translate(_PLAIN)
        if wrong := set(plain) - {*BASES}:
            raise DataError(f"{where}, read {row}: expected bases (A, C, G, T, N), found {min(wrong)!r}. Correct it.")
        if plain != read[:length]:
            converted.update(f"{old} to {new}" for old, new in zip(read, plain, strict=False) if old != new)
        others[(len(read) > length) - (0 < len(read) < length)] += 1
        made.append([BASES.find(base) for base in plain.ljust(length)])
    notes = []
    if converted:
        notes.append(f"converted: {', '.join(f'{own} ({times:,})' for own, times in sorted(converted.items()))}")
    if others[-1]:
        notes.append(f"{others[-1]:,} reads are shorter than {length}: no base and no label behind their end")
    if others[1]:
        notes.append(f"{others[1]:,} reads are longer than {length}: what is behind is cut off")
    return np.array(made, dtype=np.int8).reshape(-1, length), notes


def texts_of(codes: np.ndarray) -> list[str]:
    """The reads that have these codes (n, length), without what is behind their ends.

    Example:
        >>> texts_of(np.array([[0, 1, 2], [3, -1, -1]]))
        ['ACG', 'N']
    """
    return ["".join(own) for own in np.array([*BASES, ""])[codes].tolist()]


def codes_in(features: pd.DataFrame) -> np.ndarray:
    """The codes (n, length) that a table's columns hold."""
    return np.stack([features[name].cat.codes.to_numpy() for name in features], 1)


def position_names(length: int) -> list[str]:
    """Names of the columns, whose order as text is that of positions.

    Example:
        >>> position_names(10)[:2]
        ['p01', 'p02']
    """
    return [f"p{place + 1:0{len(str(length))}}" for place in range(length)]


def are_positions(columns: Sequence[str]) -> bool:
    """Return whether these are the columns of reads.

    Example:
        >>> are_positions(["p1", "p2"]), are_positions(["age", "p2"])
        (True, False)
    """
    return list(columns) == position_names(len(columns))


def records_of(path: Path, where: str) -> list[tuple[str, str]]:
    """Header and bases of each record of a FASTA or FASTQ file, packed or not.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: the file is damaged, or empty.
    """
    try:
        import dnaio
    except ImportError as error:
        raise ConfigError(f'{where}: needs dnaio. Run: pip install "fedlit[reads]"') from error
    try:
        with dnaio.open(path) as reader:
            records = [(record.name, record.sequence) for record in reader]
    except Exception as error:  # of a damaged file dnaio and zlib raise many kinds
        raise DataError(
            f"{where}: expected FASTA or FASTQ, found: {' '.join(str(error).split())}. Fetch the file again."
        ) from error
    if not records:
        raise DataError(f"{where}: expected reads, found an empty file. Fetch or write the file again.")
    return records


def new_reads(path: Path, where: str) -> pd.DataFrame:
    """The columns ``name`` and ``read`` of a FASTA or FASTQ file's records; labels in headers are not needed.

    Args:
        path: the file.
        where: whose it is and which, for messages.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: the file is damaged or empty.
    """
    import pandas as pd

    records = [((header.split() or [""])[0], bases) for header, bases in records_of(path, where)]
    return pd.DataFrame(records, columns=["name", _READ], dtype=object)


def as_positions(frame: pd.DataFrame, columns: Sequence[str], where: str) -> tuple[pd.DataFrame, list[str]]:
    """Return rows with a column for each position; bases are converted as in training.

    Args:
        frame: rows with the column ``read``; others pass as they are.
        columns: of the positions, in their order.
        where: whose rows, for messages.

    Returns:
        The rows without ``read`` and with all columns (None where there is no base), and notes.

    Raises:
        DataError: no column of reads or positions, or a letter that means no base.

    Example:
        >>> import pandas as pd
        >>> frame, notes = as_positions(pd.DataFrame({"read": ["acg", "U"]}), ["p1", "p2"], "client 'north'")
        >>> frame.fillna("-").to_dict("list")
        {'p1': ['A', 'T'], 'p2': ['C', '-']}
    """
    import pandas as pd

    if _READ not in frame:
        if not set(columns) & set(frame):
            raise DataError(
                f"{where}: expected a column {_READ}, or a file that ends in .fasta or .fastq, found the columns "
                f"{shorten([*map(str, frame)])}"
            )
        return frame, []
    codes, notes = codes_of(_texts(frame), len(columns), where)
    read = pd.DataFrame(_LETTERS[codes], index=frame.index, columns=list(columns))
    rest = frame.drop(columns=[name for name in (*columns, _READ) if name in frame])
    return pd.concat([rest, read], axis=1), notes


def without_bases(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Which rows have no base at all, (n,) bool; ``frame`` as :func:`as_positions` takes it."""
    if _READ in frame:
        return np.array([not text for text in _texts(frame)], dtype=bool)
    empty: np.ndarray = frame[list(columns)].isna().all(axis=1).to_numpy()
    return empty


def lengths(frame: pd.DataFrame) -> list[int | None]:
    """Return how many bases each row has, where rows are texts."""
    return [len(text) for text in _texts(frame)] if _READ in frame else [None] * len(frame)


def _texts(frame: pd.DataFrame) -> list[str]:
    return [str(text).strip() for text in frame[_READ].astype(object).fillna("").tolist()]
