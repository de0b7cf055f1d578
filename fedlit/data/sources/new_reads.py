"""New reads to be labelled: of a FASTA or FASTQ file, a column of texts, or one column for each position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedlit.data.sources.bases import position_names
from fedlit.data.sources.read_files import format_of, name_of, plain_bases, records_of, repeated, said
from fedlit.errors import DataError

__all__ = ["are_positions", "as_positions", "lengths", "new_reads", "without_bases"]

_READ = "read"
_NOTHING = " "  # a position without a base, in a text


def are_positions(columns: Sequence[str]) -> bool:
    """Return whether these are the columns of reads.

    Example:
        >>> are_positions(["p1", "p2"]), are_positions(["age", "p2"])
        (True, False)
    """
    return list(columns) == position_names(len(columns))


def new_reads(path: Path, where: str) -> tuple[pd.DataFrame, list[str]]:
    """The columns ``name`` and ``read`` of a FASTA or FASTQ file's records, and what is odd about names; labels in
    headers are not needed.

    Args:
        path: the file.
        where: whose it is and which, for messages.

    Raises:
        ConfigError: dnaio is not installed.
        DataError: the file is damaged or empty, or a record has a letter that means no base.
    """
    records, found = list[tuple[str, str]](), Counter[str]()
    for place, header, bases in records_of(path, format_of(path), where):
        plain_bases(bases, f"{where}, {place}", found, found)  # a wrong letter is named where it stands
        records.append((name_of(header), bases))
    names = [name for name, _ in records]
    notes = repeated(names, "rows tell them apart")
    if nameless := names.count(""):
        notes.append(f"records without a name: {nameless:,}")
    return pd.DataFrame(records, columns=["name", _READ], dtype=object), [f"{where}: {note}" for note in notes]


def as_positions(frame: pd.DataFrame, columns: Sequence[str], where: str) -> tuple[pd.DataFrame, list[str]]:
    """Return rows with a column for each position; bases are converted as in training.

    Args:
        frame: rows with the column ``read``, or with ``columns``: a base in each, or nothing.
        columns: of the positions, in their order.
        where: whose rows, for messages.

    Returns:
        The rows without ``read`` and with all columns (None where there is no base), and what was converted.

    Raises:
        DataError: neither ``read`` nor all columns, or a letter that means no base.

    Example:
        >>> frame, notes = as_positions(pd.DataFrame({"read": ["acg", "U"]}), ["p1", "p2"], "client 'north'")
        >>> frame.fillna("-").to_dict("list"), notes[0]
        ({'p1': ['A', 'T'], 'p2': ['C', '-']}, 'lower-case bases in 1 reads are taken as capitals')
    """
    absent, whole = [name for name in columns if name not in frame], _READ in frame
    if absent and not whole:
        raise DataError(
            f"{where}: expected a column {_READ} with the bases of each row as text, or the columns {columns[0]} to "
            f"{columns[-1]} with one base each (A, C, G, T, N; empty behind the end), found no {absent[0]}"
            f"{f' and {len(absent) - 1} more missing' if len(absent) > 1 else ''}. Write one of the two"
        )
    length, found, others = len(columns), Counter[str](), Counter[str]()
    made = []
    for row, text in enumerate(_texts(frame) if whole else _joined(frame, columns, where)):
        bases = text.replace(_NOTHING, "N") if not whole else text
        plain = plain_bases(bases, f"{where}, row {row + 1} of data", found, others)
        letters = [None if old == _NOTHING and not whole else new for old, new in zip(text, plain, strict=True)]
        found["shorter"] += 0 < len(text) < length
        found["longer"] += len(text) > length
        made.append([*letters, *[None] * length][:length])
    values = np.array(made, dtype=object).reshape(len(frame), length)
    read = pd.DataFrame(values, index=frame.index, columns=list(columns))
    rest = frame.drop(columns=[name for name in (*columns, _READ) if name in frame])
    return pd.concat([rest, read], axis=1), said(found, others, length)


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
    return ["" if pd.isna(text) else str(text).strip() for text in frame[_READ].tolist()]


def _joined(frame: pd.DataFrame, columns: Sequence[str], where: str) -> list[str]:
    """A text for each row, with a blank where a cell is empty."""
    cells = frame[list(columns)].astype(object)
    cells = cells.where(cells.notna(), _NOTHING).map(lambda cell: str(cell).strip() or _NOTHING)
    values = cells.to_numpy()
    wrong = [(row, place) for row, own in enumerate(values) for place, cell in enumerate(own) if len(cell) != 1]
    if wrong:
        row, place = wrong[0]
        raise DataError(
            f"{where}, row {row + 1} of data, column {columns[place]!r}: expected one base (A, C, G, T, N) or nothing, "
            f"found {str(values[row, place])[:40]!r}. Correct the cell, or leave it empty"
        )
    return ["".join(own) for own in values]
